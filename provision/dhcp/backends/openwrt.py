"""Reservations of OpenWrt over SSH: a named section of /etc/config/dhcp for each host, by uci."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from provision.contracts.snapshot import Snapshot
from provision.dhcp.contract import Capabilities, Lease, Reservation
from provision.dhcp.listing import ListedEntry, UciState
from provision.dhcp.operations import UciEdit
from provision.inventory.models.site import Dhcp
from provision.values.diagnostics import Source

STATE = UciState()


@dataclass(frozen=True, slots=True)
class OpenWrt:
    """A router with OpenWrt.

    Args:
        system: `router`.
        prefix: how the names of our sections begin, before they are made valid (`provision-lab-`).
    """

    system: str
    prefix: str

    @classmethod
    def declared(cls, system: str, prefix: str, dhcp: Dhcp) -> OpenWrt:
        """Return the router that an inventory declares."""
        del dhcp
        return cls(system, prefix)

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        return Capabilities(acts_at_once=False, in_range=True, persists=True)

    def queries(self) -> tuple[Any, ...]:
        """Ask for all reservations and leases."""
        return (STATE,)

    def _section(self, name: str) -> str:
        # uci(1) allows letters, digits and underscores; host names have no capitals, so two names stay two
        return re.sub(r"[^A-Za-z0-9-]", lambda match: f"X{ord(match[0]):02X}", self.prefix + name).replace(
            "-", "_"
        )

    def place(self, name: str) -> str:
        """Return the section of our entry."""
        return f"dhcp.{self._section(name)}"

    def reservations(self, snapshot: Snapshot, /) -> tuple[Reservation, ...]:
        """Read the reservations."""
        return tuple(row for row in snapshot[STATE] if isinstance(row, Reservation))

    def leases(self, snapshot: Snapshot, /) -> tuple[Lease, ...]:
        """Read the leases."""
        return tuple(row for row in snapshot[STATE] if isinstance(row, Lease))

    def entry(self, reservation: Reservation, *, absent: bool, source: Source | None) -> ListedEntry:
        """Return our section for a host."""
        mac = "" if absent else reservation.mac
        edit = UciEdit(self._section(reservation.name), mac, reservation.address, reservation.name)
        place = self.place(reservation.name)
        return ListedEntry(self.system, STATE, place, reservation, edit, absent, source=source)
