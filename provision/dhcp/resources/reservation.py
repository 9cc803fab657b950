"""An address reserved on a router that provision configures, with any back end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from provision.contracts.change import Change, Key, Op
from provision.contracts.remedy import Impossible, Remedy
from provision.contracts.resource import Resource
from provision.contracts.snapshot import Snapshot
from provision.dhcp.contract import (
    Reservation,
    Router,
    RouterTable,
    conflict,
    held_by_other,
    is_own,
    router_table,
)
from provision.values.diagnostics import Source


@dataclass(frozen=True, slots=True)
class RouterReservation:
    """The only reservation of a MAC, an address and a name; what others wrote is never changed.

    Args:
        router: who keeps it.
        reservation: MAC, address, name.
        absent: our entry must not be there.
        source: inventory line.
    """

    router: Router
    reservation: Reservation
    absent: bool = False
    source: Source | None = None

    @property
    def key(self) -> Key:
        """Identity: the host's name."""
        return Key(self.router.system, "dhcp-reservation", self.reservation.name)

    @property
    def _entry(self) -> Resource:
        return self.router.entry(self.reservation, absent=self.absent, source=self.source)

    def queries(self) -> tuple[Any, ...]:
        """Ask for our entry, and for whom else the address is."""
        if self.absent:
            return self._entry.queries()
        return (*self._entry.queries(), *self.router.queries())

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what differs; an address that somebody else holds needs a person."""
        changes = self._entry.changes(snapshot)
        if self.absent or any(change.op is Op.ATTENTION for change in changes):
            return changes
        table = router_table(self.router, snapshot)
        others = self._others(table)
        if any(
            (other.mac, other.address) == (self.reservation.mac, self.reservation.address) for other in others
        ):
            return ()  # the same reservation, written by somebody else, is as good as ours
        holder = conflict(self.reservation, others, table.leases_of(self.reservation.address), snapshot.clock)
        return (Change(Op.ATTENTION, "reservation", holder, str(self.reservation)),) if holder else changes

    def fix(self, snapshot: Snapshot, /) -> Remedy:
        """Make our entry, or take it away."""
        if not self.absent:
            table = router_table(self.router, snapshot)
            leases = table.leases_of(self.reservation.address)
            holder = conflict(self.reservation, self._others(table), leases, snapshot.clock)
            if holder:
                return Impossible(held_by_other(self.reservation, holder, self.reservation.name, self.source))
        return self._entry.fix(snapshot)

    def _others(self, table: RouterTable) -> list[Reservation]:
        """Return the reservations like ours that are not our own entry."""
        like = table.like(self.reservation)
        return [other for other in like if not is_own(self.router, other, self.reservation)]
