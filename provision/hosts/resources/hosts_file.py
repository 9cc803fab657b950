"""Entries of /etc/hosts: one address for each declared name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations.basic import quote, rewritten
from provision.hosts.queries.file import FileText
from provision.hosts.resources.base import HostResource, Operations, checked_path

# Names have no case, and a comment begins at any `#` (glibc, nss_files). Comments stay as they are; a line of
# which nothing is left goes.
_AWK = r"""BEGIN { name = tolower(ENVIRON["PROVISION_NAME"]); address = ENVIRON["PROVISION_ADDRESS"] }
{ at = index($0, "#"); text = at ? substr($0, 1, at - 1) : $0; note = at ? substr($0, at) : ""
  n = split(text, word, /[ \t\r]+/); first = word[1] == "" ? 2 : 1
  rest = ""; has = 0
  for (i = first + 1; i <= n; i++)
    if (tolower(word[i]) == name) has = 1; else if (word[i] != "") rest = rest " " word[i]
  if (!has) { print; next }
  if (word[first] == address && !done) { print; done = 1; next }
  if (rest != "") print word[first] rest (at ? " " note : ""); else if (at) print note }
END { if (!done) print address " " ENVIRON["PROVISION_NAME"] }"""


@dataclass(frozen=True, slots=True)
class SetHostsEntry:
    """Make a name of a file like hosts(5) have one address, and no other.

    Args:
        path: absolute path.
        name: host name.
        address: its address.
    """

    path: str
    name: str
    address: str

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        variables = f"PROVISION_NAME={quote(self.name)} PROVISION_ADDRESS={quote(self.address)}"
        return rewritten(self.path, f"{variables} awk {quote(_AWK)}")


def _lines(content: bytes) -> list[bytes]:
    return content.removesuffix(b"\n").split(b"\n") if content else []


def _fields(line: bytes) -> list[bytes]:
    """Return address and names of a line, without its comment."""
    return [word for word in re.split(rb"[ \t\r]+", line.partition(b"#")[0]) if word]


def addresses_of(content: bytes, name: str) -> list[str]:
    """Return the addresses of a name in a file like hosts(5), in its order."""
    lowered = name.lower().encode()
    return [
        fields[0].decode("utf-8", "replace")
        for fields in map(_fields, _lines(content))
        if lowered in (field.lower() for field in fields[1:])
    ]


def with_entry(content: bytes, name: str, address: str) -> bytes:
    """Return a content as SetHostsEntry changes it."""
    kept: list[bytes] = []
    placed, lowered = False, name.lower().encode()
    for line in _lines(content):
        fields, (_, sign, note) = _fields(line), line.partition(b"#")
        if lowered not in (field.lower() for field in fields[1:]):
            kept.append(line)
        elif fields[0] == address.encode() and not placed:
            kept.append(line)
            placed = True
        elif rest := [field for field in fields[1:] if field.lower() != lowered]:
            kept.append(b" ".join((fields[0], *rest, *([sign + note] if sign else []))))
        elif sign:
            kept.append(sign + note)
    if not placed:
        kept.append(f"{address} {name}".encode())
    return b"".join(line + b"\n" for line in kept)


@dataclass(frozen=True, slots=True)
class HostsEntry(HostResource):
    """One name with its address in a file like hosts(5).

    Args:
        path: absolute path.
        name: host name.
        address: its address.
    """

    kind: ClassVar[str] = "hosts-entry"

    path: str
    name: str
    address: str

    def __post_init__(self) -> None:
        checked_path(self.path)

    def _key_name(self) -> str:
        return f"{self.path}: {self.name}"

    def queries(self) -> tuple[FileText]:
        """Return the one query."""
        return (FileText(self.path),)

    def creation(self) -> tuple[Change, ...]:
        """Return it as missing."""
        return (Change(Op.CREATE, "address", None, self.address),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the addresses that the name has, where it is not the one."""
        addresses = addresses_of(snapshot[FileText(self.path)] or b"", self.name)
        if addresses == [self.address]:
            return ()
        old = " ".join(addresses) or None
        return (Change(Op.UPDATE if old else Op.CREATE, "address", old, self.address),)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how it is written."""
        del snapshot
        return [SetHostsEntry(self.path, self.name, self.address)]
