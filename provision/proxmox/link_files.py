"""Which name a network interface has after a boot, by files of systemd.link(5).

Sources: systemd.link(5) (`[Match]`, `NamePolicy`, `AlternativeNamesPolicy`; the first file that matches
is the only one that counts), systemd.net-naming-scheme(7), udev's database (`ID_NET_NAME_*`); pve-manager,
`PVE/CLI/pve_network_interface_pinning.pm` (`50-pve-nic0.link` has `MACAddress`, `Type` and `Name`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

POLICIES: Mapping[str, str] = {
    "database": "ID_NET_NAME_FROM_DATABASE",
    "onboard": "ID_NET_NAME_ONBOARD",
    "slot": "ID_NET_NAME_SLOT",
    "path": "ID_NET_NAME_PATH",
    "mac": "ID_NET_NAME_MAC",
}
"""Property with the name that a policy gives; `keep` and `kernel` keep what a boot has given before."""
_MATCHED: Mapping[str, str] = {"Path": "ID_PATH", "Driver": "ID_NET_DRIVER"}
_MACS = ("MACAddress", "PermanentMACAddress")


@dataclass(frozen=True, slots=True)
class Nic:
    """A physical interface.

    Args:
        mac: lower case; its own one where a bond has given it another.
        properties: of udev's database (`ID_NET_NAME_PATH`).
    """

    mac: str
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def predictable(self) -> frozenset[str]:
        """Names that udev's policies give it, of which all may be alternative names (altname)."""
        names = (self.properties.get(key, "") for key in POLICIES.values())
        return frozenset(name for name in names if name)

    @property
    def by_place(self) -> frozenset[str]:
        """Names that follow from its place in the machine: another card, kernel or scheme changes them."""
        names = (self.properties.get(POLICIES[policy], "") for policy in ("onboard", "slot", "path"))
        return frozenset(name for name in names if name)


@dataclass(frozen=True, slots=True)
class Naming:
    """What a file gives an interface.

    Args:
        name: the name; empty where the file leaves the present one.
        others: alternative names.
    """

    name: str
    others: frozenset[str] = frozenset()


def naming_of(nic: Nic, files: Sequence[Sequence[str]], *, policies: bool = True) -> Naming | None:
    """Return what the first file that matches gives an interface, None where none matches.

    A file that asks for more than MAC, type, path and driver cannot be judged and is passed over.

    Args:
        nic: the interface.
        files: lines of each file, in the order of the files' names.
        policies: whether names by policies are on (off by `net.ifnames=0`).
    """
    for lines in files:
        sections = _sections(lines)
        link = sections.get("Link", {})
        if not _matches(nic, sections.get("Match", {})):
            continue
        wanted = link.get("NamePolicy", "").split() if policies else []
        chosen = (nic.properties.get(POLICIES.get(policy, ""), "") for policy in wanted)
        name = next((name for name in chosen if name), link.get("Name", ""))
        others = [nic.properties.get(POLICIES.get(policy, ""), "") for policy in _words(link, "Policy")]
        return Naming(name, frozenset((*_words(link, ""), *others)) - {""})
    return None


def _words(link: Mapping[str, str], suffix: str) -> list[str]:
    return link.get("AlternativeNamesPolicy" if suffix else "AlternativeName", "").split()


def _sections(lines: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the values by section and key; several lines of a key add up, an empty one begins anew."""
    sections: dict[str, dict[str, str]] = {}
    section = ""
    for line in map(str.strip, lines):
        key, separator, value = (part.strip() for part in line.partition("="))
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif separator and not line.startswith(("#", ";")):
            values = sections.setdefault(section, {})
            values[key] = f"{values.get(key, '')} {value}".strip() if value else ""
    return sections


def _matches(nic: Nic, match: Mapping[str, str]) -> bool:
    return bool(match) and all(_fits(nic, key, value) for key, value in match.items())


def _fits(nic: Nic, key: str, value: str) -> bool:
    if key in _MACS:
        return nic.mac in value.lower().replace("-", ":").split()
    if key == "Type":
        return "ether" in value.split()
    own = nic.properties.get(_MATCHED.get(key, ""), "")
    return bool(own) and any(fnmatchcase(own, pattern) for pattern in value.split())
