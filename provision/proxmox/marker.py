"""The marker line in a VM's description: its owner and its host key.

`provision: inventory=lab node=vm-1 host-key=SHA256:... first-key=SHA256:... replace=TOKEN owes=start`,
one line.
The rest of the description belongs to the user and is kept.
"""

from __future__ import annotations

import re
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
    """

    inventory: str
    node: str
    host_key: str = ""
    first_key: str = ""
    replace: str = ""
    owes: str = ""

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


def read(description: str) -> Marker | None:
    """Return the marker in a description, or None; unknown and damaged fields are passed over."""
    match = _LINE.search(description)
    if match is None:
        return None
    fields: dict[str, str] = {}
    for part in match[1].split():
        key, equals, value = part.partition("=")
        if equals:
            fields.setdefault(key, value)
    values = {member: fields.get(member.replace("_", "-"), "") for member in Marker.__slots__}
    return Marker(**values) if values["inventory"] and values["node"] else None


def write(description: str, marker: Marker) -> str:
    """Return the description with this marker; all other lines stay as they are."""
    line = str(marker)
    match = _LINE.search(description)
    if match is None:
        return f"{description.rstrip()}\n{line}".lstrip() if description.strip() else line
    return description[: match.start()] + line + description[match.end() :]
