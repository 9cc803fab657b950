"""A router that only people can change: the lines to type, and the proof that somebody did.

The proof: the hypervisor sees the VM's own MAC at the reserved address. A VM that waits for its reservation
can give none, so a person may say beforehand that it is made (`provision reserved`): a file on the hypervisor
holds that word, and the guest's address proves it afterwards.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.remedy import ByHand
from provision.contracts.resource import AnswerId, KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.dhcp.contract import Reservation, fold_mac
from provision.dhcp.resources.lease_proof import AddressUsed
from provision.hosts.queries.file import FileText
from provision.hosts.queries.shell import Shell, ShellResult
from provision.hosts.resources.file import File

FOLDER = "/var/lib/provision/reserved"
"""Files on a hypervisor, one a node of an inventory, that say what a person has reserved."""


def table(reservations: Iterable[Reservation]) -> tuple[str, ...]:
    """Return the lines that a person types into the router."""
    rows = [("MAC address", "IP address", "Name")]
    rows += [(reservation.mac, reservation.address, reservation.name) for reservation in reservations]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return tuple(
        "  ".join(cell.ljust(widths[column]) for column, cell in enumerate(row)).rstrip() for row in rows
    )


@dataclass(frozen=True, slots=True)
class ManualReservation(KeyedResource):
    """A reservation that a person makes; its system is the hypervisor's host, which sees the address.

    Args:
        reservation: MAC, address, name.
        beside: what cannot be proven from there (the hypervisor's own static address), listed with the rest.
        guest: the system of the machine that gets the address.
        inventory: name of the inventory.
        command: what a person runs once it is done (`provision reserved home.yaml vm-1`).
    """

    kind: ClassVar[str] = "dhcp-reservation"

    reservation: Reservation
    beside: tuple[Reservation, ...] = ()
    guest: str = ""
    inventory: str = ""
    command: str = ""

    def _key_name(self) -> str:
        return self.reservation.name

    @property
    def query(self) -> Shell:
        """Who answers at the address: one echo request, then the neighbour table."""
        address = shlex.quote(self.reservation.address)
        return Shell(f"ping -c 1 -W 1 {address} >/dev/null 2>&1; ip neigh show to {address}")

    @property
    def word(self) -> File:
        """The file that says that a person has made this very reservation."""
        path = word_path(self.inventory, self.reservation.name)
        content = f"{self.reservation.mac} {self.reservation.address}\n".encode()
        return File(self.system, path, content, mode="0600", source=self.source)

    @property
    def _given(self) -> FileText:
        return FileText(self.word.path)

    def queries(self) -> tuple[Shell | FileText, ...]:
        """Ask who has the address, and for a person's word."""
        return (self.query, self._given)

    def affects(self, changes: Sequence[Change], /) -> frozenset[AnswerId]:
        """Return the guest's links and addresses: it takes the reserved address at its next renewal."""
        return frozenset((self.guest, query) for query in AddressUsed.QUERIES if self.guest and changes)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return nothing once the VM's MAC answers there, or while nobody does and it is confirmed."""
        holder = neighbour(snapshot[self.query])
        if holder == self.reservation.mac or (not holder and self.is_confirmed(snapshot)):
            return ()
        return (Change(Op.CREATE, "reservation", holder or None, str(self.reservation)),)

    def is_confirmed(self, snapshot: Snapshot) -> bool:
        """Whether a person said that this MAC has this address; of another pair the word is void."""
        given: bytes | None = snapshot[self._given]
        return given is not None and given == self.word.content

    def fix(self, snapshot: Snapshot, /) -> ByHand:
        """Return the lines to type."""
        del snapshot
        lines = ("Reserve on the router:", *table((self.reservation, *self.beside)))
        return ByHand((*lines, f"When it is done, run `{self.command}`.") if self.command else lines)


def word_path(inventory: str, node: str) -> str:
    """Return the path of the file with a person's word about a node's reservation."""
    return f"{FOLDER}/{inventory}.{node}"


def neighbour(answer: ShellResult) -> str:
    """Return the MAC of a neighbour entry that was confirmed, or empty."""
    for line in answer.stdout.decode(errors="replace").splitlines():
        words = line.split()
        if "lladdr" in words[:-1] and not {"FAILED", "INCOMPLETE"} & set(words):
            return fold_mac(words[words.index("lladdr") + 1])
    return ""
