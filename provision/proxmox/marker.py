"""The marker line in a VM's description: its owner and its host key.

`provision: inventory=lab node=vm-1 host-key=SHA256:... first-key=SHA256:... replace=TOKEN owes=start
tags=a,b`, one line.
The rest of the description belongs to the user and is kept.

People overwrite Notes, so the marker has a second home that nobody edits: the field `family` of `smbios1`,
written at creation with the VM's number and MAC address. A clone keeps that field and has another number.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

TAG = "provision"
START = "start"
"""Noted in the marker from before the shutdown of a power cycle until the start has succeeded."""
_LINE = re.compile(r"^[ \t]*provision:[ \t]+(?=.*\binventory=)(.*?)[ \t\r]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Marker:
    """Ownership of a VM.

    Args:
        inventory: name of the inventory that made it.
        node: name of the node.
        host_key: fingerprint of the SSH host key that it has or will have, or several joined by commas.
        first_key: fingerprint of the key that it got at its creation, until the final one is installed.
        replace: token of `provision rebuild`, empty if it was never asked for.
        owes: `start` while a power cycle is under way, or was interrupted; else empty.
        tags: tags that the inventory declared, joined by commas: they go when it declares them no more.
    """

    inventory: str
    node: str
    host_key: str = ""
    first_key: str = ""
    replace: str = ""
    owes: str = ""
    tags: str = ""

    def __str__(self) -> str:
        fields = {member.replace("_", "-"): getattr(self, member) for member in Marker.__slots__}
        return "provision: " + " ".join(f"{key}={value}" for key, value in fields.items() if value)

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Host keys that the VM may show now; while one replaces another, `host_key` names both."""
        return tuple(word for word in f"{self.host_key},{self.first_key}".split(",") if word)

    def settled(self) -> Marker:
        """Return the marker of a VM whose first key was replaced."""
        return replace(self, first_key="")


def noted_tags(tags: Iterable[str]) -> str:
    """Return tags as a marker notes them; Proxmox VE knows no capitals in them."""
    return ",".join(sorted({tag.lower() for tag in tags}))


def read(description: str) -> Marker | None:
    """Return the marker in a description, or None; unknown and damaged fields are passed over."""
    match = _LINE.search(description)
    return _marker(_fields(match[1])) if match is not None else None


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in text.split():
        key, equals, value = part.partition("=")
        if equals:
            fields.setdefault(key, value)
    return fields


def _marker(fields: Mapping[str, str]) -> Marker | None:
    values = {member: fields.get(member.replace("_", "-"), "") for member in Marker.__slots__}
    return Marker(**values) if values["inventory"] and values["node"] else None


def write(description: str, marker: Marker) -> str:
    """Return the description with this marker; all other lines stay as they are."""
    line = str(marker)
    match = _LINE.search(description)
    if match is None:
        return f"{description.rstrip()}\n{line}".lstrip() if description.strip() else line
    return description[: match.start()] + line + description[match.end() :]


# ---------------------------------------------------------------- the second home

_SPACE = uuid.UUID("6f1d2a34-5c0e-5b7a-9c4e-2f6f0d3b8a11")
"""Namespace of the UUIDs of our VMs."""


def smbios1(marker: Marker, vmid: int, mac: str) -> str:
    """Return the value of a new VM's `smbios1`: a UUID of its own, and the marker with its witnesses."""
    return f"uuid={_own_uuid(marker, vmid)},family={_family(marker, vmid, mac)},base64=1"


def _own_uuid(marker: Marker, vmid: int) -> uuid.UUID:
    return uuid.uuid5(_SPACE, f"{marker.inventory}\0{marker.node}\0{vmid}\0{marker.host_key}")


def _family(marker: Marker, vmid: int, mac: str) -> str:
    kept = str(replace(marker, replace="", owes="", tags="")).partition(" ")[2]
    words = f"{kept} vmid={vmid} mac={mac.upper()}"
    return base64.b64encode(words.encode()).decode()


def repaired_smbios1(text: str, marker: Marker, vmid: int, mac: str) -> str:
    """Return a VM's `smbios1` with its second marker, where that was lost or damaged; empty if it was not.

    That a VM was created with one is told by its UUID; one that was adopted never had any.
    """
    parts = dict(part.partition("=")[::2] for part in text.split(",") if part)
    settled = replace(marker, first_key="")
    if parts.get("uuid", "").lower() != str(_own_uuid(marker, vmid)):
        return ""
    if parts.get("base64") == "1":
        kept = _decoded(parts.get("family", ""))
        if kept is not None and (kept.inventory, kept.node) == (marker.inventory, marker.node):
            return ""
    else:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in parts.items()}
        parts = {**encoded, "uuid": parts["uuid"], "base64": "1"}
    return ",".join(
        f"{key}={value}" for key, value in {**parts, "family": _family(settled, vmid, mac)}.items()
    )


def _decoded(family: str) -> Marker | None:
    try:
        return _marker(_fields(base64.b64decode(family, validate=True).decode()))
    except ValueError:
        return None


_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


def united(noted: Marker, kept: Marker | None) -> Marker:
    """Return the marker of the Notes, with host keys of the second home where those in the Notes are cut.

    Editors wrap and shorten lines: what is left still reads as a marker.
    """
    if kept is None or (noted.inventory, noted.node) != (kept.inventory, kept.node):
        return noted
    if all(map(_FINGERPRINT.fullmatch, noted.fingerprints)):
        return noted  # an adopted VM has none
    return replace(noted, host_key=kept.host_key, first_key=kept.first_key)


def read_smbios1(text: str, vmid: int, name: str, macs: Collection[str]) -> Marker | None:
    """Return the marker in a VM's `smbios1`, if the VM is still the one that it was written for.

    Args:
        text: the property string.
        vmid: the VM's number: it must be the one that was noted.
        name: the VM's name: it, or the MAC address, must be.
        macs: MAC addresses of its network devices, upper-case.
    """
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    if parts.get("base64") != "1":
        return None
    try:
        fields = _fields(base64.b64decode(parts.get("family", ""), validate=True).decode())
    except ValueError:
        return None
    marker = _marker(fields)
    if marker is None or fields.get("vmid") != str(vmid):
        return None
    return marker if name == marker.node or fields.get("mac") in macs else None
