"""A router that only people can change: the lines to type, and the proof that somebody did.

The proof is the lease: the VM's own MAC answers at the reserved address, seen from its hypervisor.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from provision.contracts.change import Change, Key, Op
from provision.contracts.query import Unknown
from provision.contracts.remedy import ByHand
from provision.contracts.snapshot import Snapshot
from provision.dhcp.contract import Reservation, fold_mac
from provision.hosts.queries.shell import Shell, ShellResult
from provision.values.diagnostics import Source


def table(reservations: Iterable[Reservation]) -> tuple[str, ...]:
    """Return the lines that a person types into the router."""
    rows = [("MAC address", "IP address", "Name")]
    rows += [(reservation.mac, reservation.address, reservation.name) for reservation in reservations]
    widths = [max(len(row[at]) for row in rows) for at in range(3)]
    return tuple("  ".join(cell.ljust(widths[at]) for at, cell in enumerate(row)).rstrip() for row in rows)


@dataclass(frozen=True, slots=True)
class ManualReservation:
    """A reservation that a person makes.

    Args:
        system: the hypervisor by SSH: from there the address is looked at.
        wanted: MAC, address, name.
        source: inventory line.
        beside: what nobody can prove from here (the hypervisor's own static address); told with the rest.
    """

    system: str
    wanted: Reservation
    source: Source | None = None
    beside: tuple[Reservation, ...] = ()

    @property
    def key(self) -> Key:
        """Identity: the host's name."""
        return Key(self.system, "dhcp-reservation", self.wanted.name)

    @property
    def question(self) -> Shell:
        """Who answers at the address: one echo request, then the neighbour table."""
        address = shlex.quote(self.wanted.address)
        return Shell(f"ping -c 1 -W 1 {address} >/dev/null 2>&1; ip neigh show to {address}")

    def queries(self) -> tuple[Shell, ...]:
        """Ask who has the address."""
        return (self.question,)

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return nothing once the VM's MAC was seen at the address."""
        answer = seen.answers.get(self.question, Unknown("the hypervisor was not asked"))
        if isinstance(answer, Unknown):
            return (Change(Op.ATTENTION, "reservation", f"unknown: {answer.reason}", str(self.wanted)),)
        holder = neighbour(answer)
        if holder == self.wanted.mac:
            return ()
        return (Change(Op.CREATE, "reservation", holder or None, str(self.wanted)),)

    def fix(self, seen: Snapshot) -> ByHand:  # noqa: ARG002 - the protocol's form
        """Return the lines to type."""
        return ByHand(("Reserve on the router:", *table((self.wanted, *self.beside))))


def neighbour(answer: object) -> str:
    """Return the MAC of a neighbour entry that was confirmed, or empty."""
    if not isinstance(answer, ShellResult):
        return ""
    for line in answer.stdout.decode(errors="replace").splitlines():
        words = line.split()
        if "lladdr" in words[:-1] and not {"FAILED", "INCOMPLETE"} & set(words):
            return fold_mac(words[words.index("lladdr") + 1])
    return ""
