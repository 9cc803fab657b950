"""A router that only people can change: the lines to type, and the proof that somebody did.

The proof: the hypervisor sees the VM's own MAC at the reserved address.
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
from provision.hosts.queries.shell import Shell, ShellResult


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
    """

    kind: ClassVar[str] = "dhcp-reservation"

    reservation: Reservation
    beside: tuple[Reservation, ...] = ()
    guest: str = ""

    def _key_name(self) -> str:
        return self.reservation.name

    @property
    def query(self) -> Shell:
        """Who answers at the address: one echo request, then the neighbour table."""
        address = shlex.quote(self.reservation.address)
        return Shell(f"ping -c 1 -W 1 {address} >/dev/null 2>&1; ip neigh show to {address}")

    def queries(self) -> tuple[Shell, ...]:
        """Ask who has the address."""
        return (self.query,)

    def affects(self, changes: Sequence[Change], /) -> frozenset[AnswerId]:
        """Return the guest's links and addresses: it takes the reserved address at its next renewal."""
        return frozenset((self.guest, query) for query in AddressUsed.QUERIES if self.guest and changes)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return nothing once the VM's MAC answers at the address."""
        holder = neighbour(snapshot[self.query])
        if holder == self.reservation.mac:
            return ()
        return (Change(Op.CREATE, "reservation", holder or None, str(self.reservation)),)

    def fix(self, snapshot: Snapshot, /) -> ByHand:
        """Return the lines to type."""
        del snapshot
        return ByHand(("Reserve on the router:", *table((self.reservation, *self.beside))))


def neighbour(answer: ShellResult) -> str:
    """Return the MAC of a neighbour entry that was confirmed, or empty."""
    for line in answer.stdout.decode(errors="replace").splitlines():
        words = line.split()
        if "lladdr" in words[:-1] and not {"FAILED", "INCOMPLETE"} & set(words):
            return fold_mac(words[words.index("lladdr") + 1])
    return ""
