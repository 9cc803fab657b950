"""Package sources of our own, which only runs of provision use: a mirror, or the part of it in a bundle.

Everything is in one folder of the host. Our scripts' environment names its configuration (`APT_CONFIG`), so
apt looks at no other source meanwhile, and no file of anybody else is altered. Sources: apt.conf(5),
sources.list(5), apt-get(8); the layout of the archives of Debian and Ubuntu.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from provision.hosts.protocol.script import APT_FOLDER
from provision.inventory import Inventory
from provision.inventory.models.node import Node

CONFIG = f"{APT_FOLDER}/apt.conf"
SOURCES = f"{APT_FOLDER}/provision.sources"
MORE = f"{APT_FOLDER}/sources.d/more.list"
KEY = f"{APT_FOLDER}/key.asc"
STAMP = f"{APT_FOLDER}/lists-fetched"
"""Says for which sources the lists were fetched."""
ARCHIVE = f"{APT_FOLDER}/archive"
OS_RELEASE = "/etc/os-release"
COMPRESSIONS = ("xz", "gz")
"""Of indexes, best first."""
_HEADER = "Written by provision; changes are overwritten."


@dataclass(frozen=True, slots=True)
class Suites:
    """Suites of one archive.

    Args:
        archive: its folder, as all mirrors call it.
        url: where it is online.
        names: of the suites.
    """

    archive: str
    url: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """A release of a distribution.

    Args:
        name: as `sources.releases` has it (`debian-12`).
        codename: as suites and cloud images have it.
        components: of its archive.
        keyring: on its hosts, with the keys that sign the archive.
        parts: its archives.
    """

    name: str
    codename: str
    components: tuple[str, ...]
    keyring: str
    parts: tuple[Suites, ...]


def _debian(number: int, codename: str) -> Release:
    parts = (
        Suites("debian", "http://deb.debian.org/debian", (codename, f"{codename}-updates")),
        Suites("debian-security", "http://deb.debian.org/debian-security", (f"{codename}-security",)),
    )
    components = ("main", "contrib", "non-free", "non-free-firmware")
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    return Release(f"debian-{number}", codename, components, keyring, parts)


def _ubuntu(number: str, codename: str) -> Release:
    suites = (codename, f"{codename}-updates", f"{codename}-security")
    parts = (Suites("ubuntu", "http://archive.ubuntu.com/ubuntu", suites),)
    components = ("main", "restricted", "universe", "multiverse")
    keyring = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"
    return Release(f"ubuntu-{number}", codename, components, keyring, parts)


RELEASES = {
    release.name: release
    for release in (
        _debian(12, "bookworm"),
        _debian(13, "trixie"),
        _ubuntu("22.04", "jammy"),
        _ubuntu("24.04", "noble"),
        _ubuntu("26.04", "resolute"),
    )
}
_FIELD = re.compile(r'^(ID|VERSION_ID)="?([^"\n]*)"?$', re.MULTILINE)


def release_of_host(os_release: bytes | None) -> str:
    """Return the release of a host by its os-release(5), whether it is in `RELEASES` or not."""
    fields = dict(_FIELD.findall((os_release or b"").decode("utf-8", "replace")))
    return f"{fields.get('ID', '')}-{fields.get('VERSION_ID', '')}"


def releases_of_node(inventory: Inventory, node: Node) -> tuple[str, ...]:
    """Return the releases that a node may have: of its cloud image's name, else all of `sources.releases`."""
    image = inventory.images.get(node.image) if node.image else None
    if image is not None:
        text = f"{node.image} {urlsplit(image.url or '').path} {image.file or ''}".lower()
        for release in RELEASES.values():
            if release.codename in text or release.name in text:
                return (release.name,)
    return inventory.sources.releases


def mirror_of(inventory: Inventory, part: Suites) -> str:
    """Return the URL of an archive: online, or that of the declared mirror; security is beside it."""
    mirror = inventory.sources.apt
    if mirror is None:
        return part.url
    return mirror.rstrip("/") + ("-security" if part.archive.endswith("-security") else "")


def config_text(*, only_packages: bool, has_more: bool) -> str:
    """Return the configuration of apt for our runs alone."""
    rows = [
        f'Dir::Etc::SourceList "{SOURCES}";',
        f'Dir::Etc::SourceParts "{MORE.rpartition("/")[0] if has_more else "/dev/null"}";',
        f'Dir::State::Lists "{APT_FOLDER}/lists/";',
        'Dir::Cache::pkgcache "";',
        'Dir::Cache::srcpkgcache "";',
    ]
    if only_packages:
        order = " ".join(f'"{name}";' for name in COMPRESSIONS)
        rows += [f"Acquire::CompressionTypes::Order {{ {order} }};", 'Acquire::Languages "none";']
    return "".join(f"{row}\n" for row in (f"// {_HEADER}", *rows))


def sources_text(
    release: Release, urls: Iterable[tuple[Suites, str]], key: str, *, expires: bool, only_packages: bool
) -> str:
    """Return the sources of a release in the format deb822.

    Args:
        release: whose components.
        urls: of its archives.
        key: file with the keys that sign them.
        expires: whether apt refuses indexes that the archive calls outdated.
        only_packages: whether nothing but the lists of packages is there.
    """
    return f"# {_HEADER}\n" + "\n".join(
        "\n".join(_stanza(release, part, url, key, expires=expires, only_packages=only_packages)) + "\n"
        for part, url in urls
    )


def _stanza(
    release: Release, part: Suites, url: str, key: str, *, expires: bool, only_packages: bool
) -> Iterator[str]:
    yield "Types: deb"
    yield f"URIs: {url}"
    yield f"Suites: {' '.join(part.names)}"
    yield f"Components: {' '.join(release.components)}"
    yield f"Signed-By: {key}"
    if not expires:
        yield "Check-Valid-Until: no"
    if only_packages:
        yield from ("Architectures: amd64", "Targets: Packages", "By-Hash: no")
