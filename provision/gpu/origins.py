"""Whose driver packages there are, and how each distribution calls them: tables.

Names change between branches and archives, so each part of a driver has several; the one that the index has
is taken. Versions are looked up, never built. Sources: the archives' own indexes; Ubuntu's and NVIDIA's
driver installation guides. Run so far: Debian's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from provision.gpu.queries import upstream
from provision.hosts.queries.apt import Offer, Offers

NEWEST = "newest-in-branch"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a driver.

    Args:
        names: templates of package names, best first; `{branch}`, `{major}`, `{open}` (`-open` or nothing),
            `{meta}` (the kernel meta package's own suffix) are filled in.
        versioned: whether its version is the driver's; modules built for a kernel have the kernel's.
        needed: `always`, `nvswitch`, or `dkms` (where the modules are built on the node).
        kind: kernel modules that it is for; empty for both.
    """

    names: tuple[str, ...]
    versioned: bool = True
    needed: str = "always"
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """Packages of one origin.

    Args:
        releases: words in the `Origin` field of its archives.
        parts: in the order in which plans show them; the first carries the driver's version.
        marks: names that no other origin has: where one is installed, the driver came from here.
        metas: suffix of the module or header packages by the kernel meta package that they follow.
        archive: how its archive is added, for remedies.
    """

    releases: frozenset[str]
    parts: tuple[Part, ...]
    marks: re.Pattern[str]
    metas: Mapping[str, str]
    archive: str


_UBUNTU_METAS = {
    "linux-image-generic-hwe-26.04": "generic-hwe-26.04",
    "linux-image-generic-hwe-24.04": "generic-hwe-24.04",
    "linux-image-generic-hwe-22.04": "generic-hwe-22.04",
    "linux-image-nvidia-hwe-26.04": "nvidia-hwe-26.04",
    "linux-image-nvidia-hwe-24.04": "nvidia-hwe-24.04",
    "linux-image-nvidia-hwe-22.04": "nvidia-hwe-22.04",
    "linux-image-nvidia": "nvidia",
    "linux-image-lowlatency": "lowlatency",
    "linux-image-virtual-hwe-26.04": "generic-hwe-26.04",
    "linux-image-virtual-hwe-24.04": "generic-hwe-24.04",
    "linux-image-virtual-hwe-22.04": "generic-hwe-22.04",
    "linux-image-generic": "generic",
    "linux-image-virtual": "generic",
    "linux-image-aws": "aws",
    "linux-image-azure": "azure",
    "linux-image-gcp": "gcp",
    "linux-image-oracle": "oracle",
}
_DEBIAN_METAS = {
    "linux-image-cloud-amd64": "cloud-amd64",
    "linux-image-amd64": "amd64",
    "linux-image-arm64": "arm64",
}
HEADERS = Part(("linux-headers-{meta}",), versioned=False, needed="dkms")

ORIGINS: Mapping[str, Origin] = {
    "ubuntu": Origin(
        frozenset({"Ubuntu"}),
        (
            Part(("nvidia-driver-{branch}{open}",)),
            # Prebuilt and signed modules first: they load with Secure Boot and need no compiler.
            Part(
                ("linux-modules-nvidia-{branch}{open}-{meta}", "nvidia-dkms-{branch}{open}"), versioned=False
            ),
            HEADERS,
            Part(("nvidia-fabricmanager-{major}", "nvidia-fabricmanager"), needed="nvswitch"),
        ),
        re.compile(r"linux-modules-nvidia-.*|nvidia-driver-[0-9]+-server.*"),
        _UBUNTU_METAS,
        "sudo add-apt-repository restricted multiverse",
    ),
    "debian": Origin(
        frozenset({"Debian"}),
        (
            Part(("nvidia-smi",)),
            Part(("libcuda1",)),
            Part(("nvidia-open-kernel-dkms",), kind="open"),
            Part(("nvidia-kernel-dkms",), kind="proprietary"),
            HEADERS,
            # A source package of its own: its version is older than the driver's.
            Part(("nvidia-persistenced",), versioned=False),
        ),
        re.compile(r"nvidia-kernel-dkms|nvidia-open-kernel-dkms|libcuda1"),
        _DEBIAN_METAS,
        "add the components contrib, non-free and non-free-firmware to Debian's sources, then apt-get update",
    ),
    "nvidia": Origin(
        frozenset({"NVIDIA", "NVIDIA CORPORATION"}),
        (
            Part(("nvidia-open-{major}", "nvidia-open"), kind="open"),
            Part(("cuda-drivers-{major}", "cuda-drivers"), kind="proprietary"),
            HEADERS,
            Part(("nvidia-fabricmanager-{major}", "nvidia-fabricmanager"), needed="nvswitch"),
        ),
        re.compile(r"nvidia-open(-[0-9]+)?|cuda-drivers(-[0-9]+)?|libnvidia-compute"),
        {**_UBUNTU_METAS, **_DEBIAN_METAS},
        "install NVIDIA's package cuda-keyring, then apt-get update",
    ),
}
LEAVES = re.compile(r"libnvidia-compute(-[0-9a-z-]+)?|libcuda1")
"""The packages whose version is that of the driver's user-space side, whatever was asked for."""
ANY_DRIVER = re.compile(
    r"(lib)?nvidia-.*|cuda-drivers.*|linux-(modules|objects|signatures)-nvidia-.*|libcuda1"
)
"""Packages of a driver: only these may be removed when another branch comes."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What of a driver is desired.

    Args:
        origin: one of `ORIGINS`.
        branch: `580-server`; empty takes what the archive has.
        version: NVIDIA's version, `newest-in-branch`, or empty for any.
        kind: `open` or `proprietary`.
        nvswitch: whether it needs the fabric manager.
    """

    origin: str
    branch: str = ""
    version: str = ""
    kind: str = "open"
    nvswitch: bool = False

    @property
    def major(self) -> str:
        """The branch's number."""
        match = re.match(r"[0-9]+", self.branch)
        return match[0] if match is not None else ""

    def names(self, part: Part, meta: str) -> tuple[str, ...]:
        """Return the names of a part; those that need a branch are left out where none is declared."""
        values = {
            "branch": self.branch,
            "major": self.major,
            "open": "-open" if self.kind == "open" else "",
            "meta": meta,
        }
        usable = (name for name in part.names if self.branch or not re.search(r"\{(branch|major)\}", name))
        return tuple(name.format_map(values) for name in usable if meta or "{meta}" not in name)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Packages of a driver with the versions to ask for; empty is whatever comes.

    Args:
        packages: version by name, the driver's own package first.
        version: NVIDIA's version that is asked for.
        dkms: whether the modules are built on the node.
    """

    packages: tuple[tuple[str, str], ...]
    version: str
    dkms: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """Why no package can be asked for.

    Args:
        code: diagnostic code.
        summary: one sentence.
        offered: what there is instead, one a line.
        kind: kernel modules that the archive has in this version, where only the desired ones are missing.
    """

    code: str
    summary: str
    offered: tuple[str, ...] = ()
    kind: str = ""


def all_names(origin: str, branch: str, metas: Iterable[str]) -> tuple[str, ...]:
    """Return every name that one of the parts may have, for one question about all of them."""
    names: dict[str, None] = {}
    for kind in ("open", "proprietary"):
        wish = Wish(origin, branch, kind=kind)
        for part in ORIGINS[origin].parts:
            for meta in metas:
                names.update(dict.fromkeys(wish.names(part, meta)))
    return tuple(names)


def choose(wish: Wish, offers: Mapping[str, Offers], meta: str) -> Chosen | Gone:
    """Return the packages of a wish, by what the index offers.

    Args:
        wish: what is desired.
        offers: what apt knows, by name.
        meta: suffix of the kernel's meta package.
    """
    origin = ORIGINS[wish.origin]
    parts = [part for part in origin.parts if part.kind in ("", wish.kind) and _is_needed(part, wish)]
    first = _first_offers(wish, origin, parts[0], offers, meta)
    if isinstance(first, Gone):
        return first
    name, version = first
    packages = [(name, version)]
    driver = upstream(version)
    dkms = wish.origin != "ubuntu"
    for part in parts[1:]:
        if part.needed == "dkms" and not dkms:
            continue
        own = _part(wish, part, offers, meta, driver)
        if isinstance(own, Gone):
            others = (other for other in origin.parts if part.kind and other.kind not in ("", part.kind))
            kinds = (
                other.kind
                for other in others
                if not isinstance(_part(wish, other, offers, meta, driver), Gone)
            )
            return replace(own, kind=next(kinds, ""))
        packages.append(own)
        dkms = dkms or "dkms" in own[0]
    return Chosen(tuple(packages), driver, dkms)


def _is_needed(part: Part, wish: Wish) -> bool:
    return part.needed != "nvswitch" or wish.nvswitch


def _is_offered(origin: Origin, known: Offers, offer: Offer) -> bool:
    return bool(origin.releases.intersection(offer.origins)) or offer.version == known.installed


def _first_offers(
    wish: Wish, origin: Origin, part: Part, offers: Mapping[str, Offers], meta: str
) -> tuple[str, str] | Gone:
    """Return name and version of the package that carries the driver's version."""
    offered: list[str] = []
    for name in wish.names(part, meta):
        known = offers.get(name, Offers())
        if known.installed and wish.version != NEWEST and _fits(wish, known.installed):
            return name, known.installed
        # What is installed counts, too: an archive that lost its newest version is no reason to go back.
        own = [offer for offer in known.versions if _is_offered(origin, known, offer)]
        fitting = next((offer.version for offer in own if _fits(wish, offer.version)), "")
        if fitting:
            return name, fitting
        offered += [f"{name} {offer.version}" for offer in own]
    if not offered:
        names = ", ".join(wish.names(part, meta)) or "any driver package without a branch"
        return Gone("DRIVER_ORIGIN_MISSING", f"no archive of origin {wish.origin} has {names}")
    asked = wish.version if wish.version not in ("", NEWEST) else f"a version of branch {wish.branch}"
    return Gone("DRIVER_VERSION_GONE", f"the archives of {wish.origin} do not have {asked}", tuple(offered))


def _fits(wish: Wish, version: str) -> bool:
    number = upstream(version)
    if wish.version not in ("", NEWEST):
        return wish.version in (number, version)
    return not wish.major or number.split(".")[0] == wish.major


def _part(
    wish: Wish, part: Part, offers: Mapping[str, Offers], meta: str, driver: str
) -> tuple[str, str] | Gone:
    """Return name and version of a part: the driver's own version, or whatever comes."""
    offered: list[str] = []
    names = wish.names(part, meta)
    for name in names:
        known = offers.get(name, Offers())
        candidates = [known.installed, *(offer.version for offer in known.versions)]
        if not part.versioned:
            if any(candidates):
                return name, ""
            continue
        offered += [f"{name} {version}" for version in candidates if version]
        version = next((version for version in candidates if upstream(version) == driver), "")
        if version:
            return name, version
    if offered:
        return Gone("DRIVER_VERSION_GONE", f"no {names[0]} has version {driver}", tuple(offered))
    what = ", ".join(names) or f"a package for this kernel ({'; '.join(part.names)})"
    return Gone("DRIVER_ORIGIN_MISSING", f"no archive of origin {wish.origin} has {what}")
