"""Packages of hosts in a bundle: a part of the archives of their distributions, with the signed indexes.

apt of this machine verifies the indexes and resolves; each file is checked against the digest of its signed
index. The same files serve hosts, which verify the signature again with their own keys.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from provision.api.domains import domains
from provision.contracts.query import Unknown
from provision.hosts.apt_sources import (
    COMPRESSIONS,
    RELEASES,
    Release,
    Suites,
    mirror_of,
    releases_of_node,
    sources_text,
)
from provision.hosts.package_needs import PackageRequest
from provision.hosts.pinned_files import PACKAGES
from provision.hosts.queries.apt import Offers, read_policy
from provision.hosts.queries.shell import ShellResult
from provision.inventory import Inventory
from provision.inventory.models.node import Node
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent
from provision.values.references import load_object

if TYPE_CHECKING:
    from provision.connections.apt_root import AptRoot, PackageFile

ARCHITECTURE = "amd64"
"""That of the other files of a bundle."""
LARGEST_INDEX = 16 * 1024 * 1024
"""Bytes of one InRelease."""
_SUM = re.compile(r"^ ([0-9a-f]{64}) +([0-9]{1,10}) (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class AptFile:
    """An index or a package of a bundle.

    Args:
        path: in the bundle.
        url: where it comes from.
        sha256: its digest in hex.
        is_new: whether it was fetched now.
        release: whose index it is; empty for a package.
        hosts: which hosts need it.
    """

    path: str
    url: str
    sha256: str
    is_new: bool
    release: str
    hosts: tuple[str, ...]


Note = Callable[[str], None]
Progress = Callable[[str, int, int], None]


def fetch_packages(
    inventory: Inventory,
    folder: Path,
    cancel: Cancel,
    note: Note,
    progress: Progress,
    installed: Path | None = None,
) -> tuple[AptFile, ...]:
    """Fetch what the roles may install on the nodes of an inventory; what is there already is not fetched.

    Args:
        inventory: what is declared.
        folder: the bundle.
        cancel: ends it early.
        note: receives what a person should know: nodes and packages that are left out.
        progress: receives how far a download is.
        installed: folder with dpkg's file `status` of nodes, by their names: what must be upgraded there
            comes, too.

    Raises:
        Permanent, Transient: an archive cannot be read, or is not signed; or it has no such driver.
        Interrupted: the run must leave.
    """
    from provision.connections import apt_root  # noqa: PLC0415 - slow

    nodes = [node for node in inventory.nodes.values() if node.manage]
    by_release: dict[str, list[Node]] = {}
    unknown: list[str] = []
    needs = {node.name: node for node in nodes if _may_need(inventory, node)}
    for node in needs.values():
        releases = releases_of_node(inventory, node)
        unknown += [] if releases else [node.name]
        for name in releases:
            by_release.setdefault(name, []).append(node)
    if unknown:
        names = ", ".join(unknown[:10])
        note(f"packages of {names}: left out, as their release is not known (`sources.releases`)")
    if by_release and not apt_root.is_there():
        note("packages of hosts: left out, as this machine has no apt-get")
        return ()
    files: list[AptFile] = []
    for name, members in by_release.items():
        files += _Part(inventory, RELEASES[name], members, folder, cancel, note, progress, installed).fetch()
    return tuple(_united(files))


def _may_need(inventory: Inventory, node: Node) -> bool:
    """Whether a node's roles install anything, as far as this is known before an archive is read."""
    return any(True for _ in _requests(inventory, node, lambda _names: {}, is_certain=False))


def _requests(
    inventory: Inventory,
    node: Node,
    archive: Callable[[tuple[str, ...]], Mapping[str, Offers]],
    *,
    is_certain: bool = True,
) -> Iterator[PackageRequest]:
    for domain in domains():
        if domain.packages and domain.concerns(inventory):
            try:
                yield from load_object(domain.packages)(inventory, node, archive)
            except Permanent:
                if is_certain:
                    raise
                yield PackageRequest(("?",))  # it wants something of the archive


@dataclass(frozen=True, slots=True)
class _Part:
    """What the nodes of one release need."""

    inventory: Inventory
    release: Release
    nodes: list[Node]
    folder: Path
    cancel: Cancel
    note: Note
    progress: Progress
    installed: Path | None

    def fetch(self) -> Iterator[AptFile]:
        from provision.connections.apt_root import AptRoot  # noqa: PLC0415 - slow

        root = self.folder.absolute() / PACKAGES
        hosts = tuple(node.name for node in self.nodes)
        indexes = [row for part in self.release.parts for row in self._indexes(part, hosts)]
        with tempfile.TemporaryDirectory(prefix="provision-apt-") as own:
            apt = AptRoot(Path(own), ARCHITECTURE)
            key = self.inventory.sources.apt_key
            keyring = str(Path(key).expanduser().absolute()) if key else self.release.keyring
            urls = [(part, f"file:{root / part.archive}") for part in self.release.parts]
            sources = sources_text(self.release, urls, keyring, expires=False, only_packages=True)
            self._open(apt, sources, indexes)
            yield from indexes

            @cache  # nodes alike ask alike
            def archive(names: tuple[str, ...]) -> Mapping[str, Offers]:
                return _offers(apt.policy(names))

            wanted: dict[PackageRequest, list[str]] = {}
            for node in self.nodes:
                for request in _requests(self.inventory, node, archive):
                    wanted.setdefault(request, []).append(node.name)
            for request, names in wanted.items():
                for status, who in ((None, names), *self._statuses(names)):
                    files = apt.transaction(request.words, status, recommends=request.recommends)
                    if isinstance(files, str):
                        words = ", ".join(who[:10])
                        self.note(f"packages {', '.join(request.words)} of {words}: left out: {files}")
                        continue
                    for file in files:
                        yield self._package(root, file, tuple(who))

    def _open(self, apt: AptRoot, sources: str, indexes: Sequence[AptFile]) -> None:
        """Verify the indexes; new ones that are wrong go, as the next run would not ask for them again."""
        try:
            apt.open(sources)
        except Permanent:
            for row in indexes:
                if row.is_new and row.path.endswith("/InRelease"):
                    (self.folder / row.path).unlink(missing_ok=True)
            raise

    def _statuses(self, names: Sequence[str]) -> Iterator[tuple[Path, list[str]]]:
        """Yield what is installed on nodes, where it is known."""
        for name in names:
            file = self.installed / name if self.installed is not None else None
            if file is not None and file.is_file():
                yield file.absolute(), [name]

    def _package(self, root: Path, file: PackageFile, hosts: tuple[str, ...]) -> AptFile:
        place = file.file.relative_to(root) if file.file.is_relative_to(root) else file.file
        archive, *names = place.parts
        part = next((one for one in self.release.parts if one.archive == archive), None)
        if part is None or ".." in names or names[:1] in ([], ["dists"]):  # an index names what it likes
            raise _unreadable(f"the package index lists {str(place)!r:.200}: no place for a package")
        inner = quote("/".join(names), safe="/+~:")
        url = f"{mirror_of(self.inventory, part).rstrip('/')}/{inner}"
        is_new = self._fetch(url, f"{PACKAGES}/{place}", file.sha256, file.size)
        return AptFile(f"{PACKAGES}/{place}", url, file.sha256, is_new, "", hosts)

    def _fetch(self, url: str, path: str, sha256: str, size: int) -> bool:
        """Fetch a file that is not there; return whether it was fetched."""
        from provision.connections.fetch import fetch_file, sha256_of  # noqa: PLC0415 - slow

        target = self.folder / path
        if target.is_file() and sha256_of(target) == sha256:
            return False
        target.unlink(missing_ok=True)
        shown = partial(self.progress, target.name)
        try:
            fetch_file(url, sha256, target, self.cancel, shown, size=size)
        except Permanent as error:
            problem = error.diagnostics[0]
            if problem.code != "DOWNLOAD_WRONG":
                raise
            words = f"{url} is not the file that its index lists"
            remedy = "run it again: the mirror was being updated; else look at the mirror"
            raise Permanent(replace(problem, summary=words, remedy=remedy)) from None
        return True

    def _indexes(self, part: Suites, hosts: tuple[str, ...]) -> Iterator[AptFile]:
        """Yield the indexes of an archive's suites; what is there and whole stays: it fits its packages."""
        from provision.connections.download import document  # noqa: PLC0415 - slow
        from provision.connections.fetch import sha256_of  # noqa: PLC0415 - the same

        base = mirror_of(self.inventory, part).rstrip("/")
        for suite in part.names:
            place = f"{PACKAGES}/{part.archive}/dists/{suite}"
            signed, url = self.folder / place / "InRelease", f"{base}/dists/{suite}"
            is_new = not self._is_whole(signed)
            if is_new:
                data = document(f"{url}/InRelease", self.cancel, LARGEST_INDEX)
                if not self._listed(data):
                    raise _unreadable(f"{url}/InRelease does not list the packages of an archive")
                signed.parent.mkdir(parents=True, exist_ok=True)
                signed.write_bytes(data)
            release = self.release.name
            yield AptFile(f"{place}/InRelease", f"{url}/InRelease", sha256_of(signed), is_new, release, hosts)
            for name, (sha256, size) in self._listed(signed.read_bytes()).items():
                is_new = self._fetch(f"{url}/{name}", f"{place}/{name}", sha256, size)
                yield AptFile(f"{place}/{name}", f"{url}/{name}", sha256, is_new, release, hosts)

    def _is_whole(self, signed: Path) -> bool:
        """Whether an index is there with its lists; without them, the mirror may have others by now."""
        from provision.connections.fetch import sha256_of  # noqa: PLC0415 - slow

        lists = self._listed(signed.read_bytes()) if signed.is_file() else {}
        files = [(signed.parent / name, sha256) for name, (sha256, _) in lists.items()]
        return bool(files) and all(file.is_file() and sha256_of(file) == sha256 for file, sha256 in files)

    def _listed(self, signed: bytes) -> dict[str, tuple[str, int]]:
        """Return digest and size of the lists of packages, in the best compression that there is."""
        rows = _SUM.findall(signed.decode("utf-8", "replace"))
        sums = {name: (sha256, int(size)) for sha256, size, name in rows}
        listed: dict[str, tuple[str, int]] = {}
        for component in self.release.components:
            names = (f"{component}/binary-{ARCHITECTURE}/Packages.{kind}" for kind in COMPRESSIONS)
            name = next((name for name in names if name in sums), None)
            if name is not None:
                listed[name] = sums[name]
        return listed


def _unreadable(summary: str) -> Permanent:
    return Permanent(Diagnostic("PACKAGES_UNREADABLE", summary, remedy="look at the mirror: `sources.apt`"))


def _offers(text: str) -> Mapping[str, Offers]:
    offers = read_policy(ShellResult(0, text.encode(), b""))
    if isinstance(offers, Unknown):
        raise _unreadable(f"the package indexes: {offers.reason}")
    return offers


def _united(files: Sequence[AptFile]) -> Iterator[AptFile]:
    """Yield each file once, for all hosts that need it."""
    hosts: dict[str, dict[str, None]] = {}
    first: dict[str, AptFile] = {}
    for file in files:
        first.setdefault(file.path, file)
        hosts.setdefault(file.path, {}).update(dict.fromkeys(file.hosts))
    for path, file in first.items():
        yield AptFile(path, file.url, file.sha256, file.is_new, file.release, tuple(hosts[path]))
