"""Our own package sources of a node: the declared mirror, or what a bundle has for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from provision.contracts.resource import Resource
from provision.contracts.role import Context
from provision.hosts import apt_sources, names
from provision.hosts.apt_sources import ARCHIVE, CONFIG, KEY, MORE, RELEASES, SOURCES, Release
from provision.hosts.pinned_files import PACKAGES, bundle_file, bundled_packages, listed_blob
from provision.hosts.protocol.script import APT_FOLDER
from provision.hosts.queries.file import FileState, FileText
from provision.hosts.resources.apt_source import LISTS, AptSource, AptSourceGone
from provision.inventory import Inventory
from provision.inventory.models.node import Node
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, UsageError
from provision.values.read_file import read_limited

OS_RELEASE = FileText(apt_sources.OS_RELEASE)
EARLIER = FileState(APT_FOLDER)
LARGEST_KEY = 1024 * 1024


def has_package_source(inventory: Inventory, node: Node) -> bool:
    """Whether apt uses a source of ours on a node while provision works there."""
    if inventory.sources.mode == "bundle":
        return bool(bundled_packages(inventory, node.name))
    return inventory.sources.apt is not None


def source_questions(inventory: Inventory, node: Node) -> tuple[object, ...]:
    """Ask for the release of the host; without a source of ours, whether an earlier one is still there."""
    return (OS_RELEASE,) if has_package_source(inventory, node) else (EARLIER,)


def lists_questions(inventory: Inventory, node: Node) -> tuple[object, ...]:
    """Ask whether the lists are there, for roles that choose among the packages on offer."""
    return (LISTS,) if has_package_source(inventory, node) else ()


def package_source(context: Context, node: Node) -> Iterator[Resource]:
    """Yield the source of a node, or the removal of one that is declared no more.

    Raises:
        Permanent: RELEASE_UNSUPPORTED: there is no mirror of such a host; or the bundle has nothing for it.
        UsageError: a file of the bundle, or the key, is not what it should be.
    """
    inventory, system = context.inventory, names.ssh(node.name)
    if not has_package_source(inventory, node):
        if context.require(system, EARLIER).exists:
            yield AptSourceGone(system)
        return
    text = context.require(system, OS_RELEASE, may_be_absent=True)
    name = apt_sources.release_of_host(text)
    is_bundle = inventory.sources.mode == "bundle"
    rows = [row for row in bundled_packages(inventory, node.name) if is_bundle]
    known = {row.release for row in rows if row.release} if is_bundle else set(RELEASES)
    if name not in known:
        where = "the bundle has" if is_bundle else "a mirror is known for"
        raise Permanent(
            Diagnostic(
                "RELEASE_UNSUPPORTED",
                f"{node.name} has {name}, and {where} {', '.join(sorted(known)) or 'none'}",
                node.name,
                source=inventory.source(("sources",)),
                remedy="declare `sources.releases`, and make the bundle again"
                if is_bundle
                else "leave `sources.apt` out, and give the host a source of its own",
            )
        )
    release, root = RELEASES[name], bundle_file(inventory, PACKAGES)
    blobs = tuple(
        (f"{ARCHIVE}/{row.file.relative_to(root)}", listed_blob(inventory, row))
        for row in rows
        if root is not None and row.release in ("", name)
    )
    texts = dict(_texts(inventory, release, is_bundle=is_bundle))
    label = f"{name} of the bundle" if is_bundle else inventory.sources.apt or ""
    keyring = KEY if KEY in texts else release.keyring
    source = inventory.source(("sources", "bundle" if is_bundle else "apt"))
    yield AptSource(system, tuple(texts.items()), blobs, keyring, label, source=source)


def _texts(inventory: Inventory, release: Release, *, is_bundle: bool) -> Iterator[tuple[str, str]]:
    sources = inventory.sources
    if sources.apt_key is not None:
        yield KEY, _key(inventory, sources.apt_key)
    key = KEY if sources.apt_key is not None else release.keyring
    urls = [
        (part, f"file:{ARCHIVE}/{part.archive}" if is_bundle else apt_sources.mirror_of(inventory, part))
        for part in release.parts
    ]
    # A bundle is as old as it is, also where a web server gives it out.
    is_served = bool(sources.mirror and (sources.apt or "").startswith(sources.mirror))
    yield (
        SOURCES,
        apt_sources.sources_text(
            release, urls, key, expires=not (is_bundle or is_served), only_packages=is_bundle or is_served
        ),
    )
    if sources.apt_more:
        yield MORE, "".join(f"{line}\n" for line in sources.apt_more)
    has_more = bool(sources.apt_more)
    yield CONFIG, apt_sources.config_text(only_packages=is_bundle or is_served, has_more=has_more)


def _key(inventory: Inventory, file: Path) -> str:
    try:
        return read_limited(file.expanduser(), LARGEST_KEY).decode("ascii")
    except (OSError, ValueError):
        summary = f"{file} cannot be read, or is not a public key in text form"
        remedy = "write it there: `gpg --armor --export KEY`"
        source = inventory.source(("sources", "apt_key"))
        raise UsageError(Diagnostic("FILE_UNREADABLE", summary, source=source, remedy=remedy)) from None


def retired_source(node: Node) -> Resource:
    """Return our own sources as absent."""
    return AptSourceGone(names.ssh(node.name))
