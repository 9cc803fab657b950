"""An address reserved on a router that we speak to, whatever it speaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from provision.contracts.change import Change, Key, Op
from provision.contracts.query import Unknown
from provision.contracts.remedy import Impossible, Remedy
from provision.contracts.resource import Resource
from provision.contracts.snapshot import Snapshot
from provision.dhcp.contract import Reservation, Router, conflict, held_by_other
from provision.values.diagnostics import Source


@dataclass(frozen=True, slots=True)
class RouterReservation:
    """The only reservation of a MAC, an address and a name; what others wrote is never changed.

    Args:
        router: who keeps it.
        wanted: MAC, address, name.
        absent: our entry must not be there.
        source: inventory line.
    """

    router: Router
    wanted: Reservation
    absent: bool = False
    source: Source | None = None

    @property
    def key(self) -> Key:
        """Identity: the host's name."""
        return Key(self.router.system, "dhcp-reservation", self.wanted.name)

    @property
    def _entry(self) -> Resource:
        return self.router.entry(self.wanted, absent=self.absent, source=self.source)

    def queries(self) -> tuple[Any, ...]:
        """Ask for our entry, and for whom else the address is."""
        if self.absent:
            return self._entry.queries()
        return (*self._entry.queries(), *self.router.questions())

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return what differs; an address that somebody else holds needs a person."""
        found = self._entry.changes(seen)
        if self.absent:
            return found
        if any(each.op is Op.ATTENTION for each in found):
            return found
        if self._by_others(seen):
            # The same reservation, written by somebody else, is as good as ours.
            return ()
        holder = self._holder(seen)
        if isinstance(holder, Unknown):
            return (Change(Op.ATTENTION, "reservation", f"unknown: {holder.reason}", str(self.wanted)),)
        if holder:
            return (Change(Op.ATTENTION, "reservation", holder, str(self.wanted)),)
        return found

    def fix(self, seen: Snapshot) -> Remedy:
        """Make our entry, or take it away."""
        if not self.absent:
            holder = self._holder(seen)
            if isinstance(holder, str) and holder:
                return Impossible(held_by_other(self.wanted, holder, self.wanted.name, self.source))
        return self._entry.fix(seen)

    def _others(self, seen: Snapshot) -> tuple[Reservation, ...] | Unknown:
        found = self.router.reservations(seen)
        if isinstance(found, Unknown):
            return found
        own = self.router.place(self.wanted.name)
        return tuple(each for each in found if each.place != own)

    def _by_others(self, seen: Snapshot) -> bool:
        found = self._others(seen)
        if isinstance(found, Unknown):
            return False
        return any((each.mac, each.address) == (self.wanted.mac, self.wanted.address) for each in found)

    def _holder(self, seen: Snapshot) -> str | Unknown:
        reservations, leases = self._others(seen), self.router.leases(seen)
        if isinstance(reservations, Unknown):
            return reservations
        if isinstance(leases, Unknown):
            return leases
        return conflict(self.wanted, reservations, leases, seen.clock)
