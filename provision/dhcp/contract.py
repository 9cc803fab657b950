"""One contract for all routers: list reservations, list leases, and our own entry for a host.

A back end gives queries and resources on its system; how it reaches the router is its own matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from provision.contracts.resource import Resource
from provision.contracts.snapshot import Snapshot
from provision.values.diagnostics import Diagnostic, Source
from provision.values.numbers import is_number


@dataclass(frozen=True, slots=True)
class Reservation:
    """An address that a router gives to one MAC, always.

    Args:
        mac: lower-case with colons.
        address: IPv4 address.
        name: host name.
        place: where the router keeps it (file or section), for people.
        client: client id, where the router knows the host by that instead of a MAC.
        ignored: the router never answers this host.
    """

    mac: str
    address: str
    name: str
    place: str = ""
    client: str = ""
    ignored: bool = False

    def __str__(self) -> str:
        return f"{self.address} for {self.mac} ({self.name or 'no name'})"

    @property
    def holder(self) -> str:
        """Whom it is for, for people."""
        if self.mac or self.client:
            return f"{self.mac or self.client} ({self.name or 'no name'})"
        return f"the host named {self.name}" if self.name else "another host"

    def covers(self, mac: str) -> bool:
        """Whether it is for a MAC; some routers take `*` for any byte."""
        if "*" not in self.mac:
            return self.mac == mac
        own, others = self.mac.split(":"), mac.split(":")
        pairs = zip(own, others, strict=False)
        return len(own) == len(others) and all(left in ("*", right) for left, right in pairs)


@dataclass(frozen=True, slots=True)
class Lease:
    """An address that is given to a MAC now; `expires` in epoch seconds, 0 = never."""

    mac: str
    address: str
    name: str = ""
    expires: int = 0

    def is_over(self, now: float) -> bool:
        """Whether it has expired, by the router's clock in epoch seconds; 0 = unknown, so it has not."""
        return bool(self.expires) and bool(now) and self.expires < now

    @property
    def until(self) -> str:
        """When it ends, for people: in the time zone of this machine."""
        if not self.expires:
            return "for ever"
        try:
            return f"until {datetime.fromtimestamp(self.expires).astimezone():%Y-%m-%d %H:%M}"
        except (OverflowError, OSError, ValueError):
            return "until a time that this machine cannot show"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a router can do.

    Args:
        acts_at_once: a new reservation counts without a reload.
        in_range: a reserved address may be one that the server also gives out freely.
        persists: reservations survive a restart of the server.
        names: an entry has a name of ours; otherwise the MAC alone says whose it is.
    """

    acts_at_once: bool
    in_range: bool
    persists: bool
    names: bool = True


def as_seconds(text: str) -> int:
    """Return a time in epoch seconds, 0 where a router gives none that fits 64 bits."""
    return int(text) if is_number(text) else 0


class Router(Protocol):
    """A router that provision configures; `provision.testing.dhcp_contract` is what each one must pass."""

    @property
    def system(self) -> str:
        """The system that it is spoken to on."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""

    def queries(self) -> tuple[Any, ...]:
        """Return the queries whose answers `reservations` and `leases` read; none of them may be Unknown."""

    def reservations(self, snapshot: Snapshot, /) -> tuple[Reservation, ...]:
        """Return all reservations that the router holds, ours and others."""

    def leases(self, snapshot: Snapshot, /) -> tuple[Lease, ...]:
        """Return all leases."""

    def place(self, name: str) -> str:
        """Return the place of our entry for a host, in the form of `Reservation.place`."""

    def entry(self, reservation: Reservation, *, absent: bool, source: Source | None) -> Resource:
        """Return our entry for a host, or its absence; who else holds the address is not its matter."""


def is_own(router: Router, entry: Reservation, desired: Reservation) -> bool:
    """Whether an entry is ours: by its place, or by its MAC where the router keeps no names."""
    if router.capabilities.names:
        return entry.place == router.place(desired.name)
    return bool(desired.mac) and entry.mac == desired.mac


def fold_mac(text: str) -> str:
    """Return a MAC as it is compared: lower-case, with colons and two digits a byte."""
    parts = re.split(r"[:.-]", text.strip().lower())
    return ":".join(part if part == "*" else part.rjust(2, "0") for part in parts) if any(parts) else ""


class RouterTable:
    """What a router holds, found by address, MAC or name.

    Args:
        reservations: all of them, in the router's order.
        leases: all of them.
    """

    def __init__(self, reservations: Iterable[Reservation], leases: Iterable[Lease]) -> None:
        self.reservations = tuple(reservations)
        self._places: dict[str, list[int]] = {}
        self._patterns: list[int] = []
        """The places of reservations for several MACs."""
        for place, reservation in enumerate(self.reservations):
            if "*" in reservation.mac:
                self._patterns.append(place)
            for word in {reservation.mac, reservation.address, reservation.name} - {""}:
                self._places.setdefault(word, []).append(place)
        self._leases: dict[str, list[Lease]] = {}
        self._held: dict[str, list[Lease]] = {}
        """The leases by MAC."""
        for lease in leases:
            self._leases.setdefault(lease.address, []).append(lease)
            self._held.setdefault(lease.mac, []).append(lease)

    def like(self, desired: Reservation) -> list[Reservation]:
        """Return the reservations that share address, MAC or name with one, in the router's order."""
        words = (desired.mac, desired.address, desired.name)
        places = {place for word in words for place in self._places.get(word, ())}
        places |= {place for place in self._patterns if self.reservations[place].covers(desired.mac)}
        return [self.reservations[place] for place in sorted(places)]

    def leases_of(self, address: str) -> Sequence[Lease]:
        """Return the leases of an address."""
        return self._leases.get(address, ())

    def held_by(self, mac: str) -> Sequence[Lease]:
        """Return the leases of a MAC."""
        return self._held.get(mac, ())


def router_table(router: Router, snapshot: Snapshot) -> RouterTable:
    """Return what a router holds, parsed once for all who read the same answers."""

    def parse() -> RouterTable:
        return RouterTable(router.reservations(snapshot), router.leases(snapshot))

    return snapshot.derived((router_table, router), router.queries(), parse)


def conflict(
    desired: Reservation, reservations: Iterable[Reservation], leases: Iterable[Lease], now: float = 0.0
) -> str:
    """Describe who else holds the address, MAC or name; empty when nobody does.

    Args:
        desired: the reservation to be made.
        reservations: those of others, ours is left out.
        leases: current leases; expired ones do not count when the router's clock is known.
        now: the router's clock in epoch seconds, 0 = unknown.
    """
    for other in reservations:
        where = f" in {other.place}" if other.place else ""
        if other.ignored:
            if other.covers(desired.mac):
                return f"the router ignores {other.mac}{where}"
            continue
        if other.address == desired.address and not (other.mac and other.covers(desired.mac)):
            return f"{desired.address} is reserved for {other.holder}{where}"
        if other.mac == desired.mac and other.address != desired.address:
            return f"{desired.mac} has the reservation {other.address}{where}"
        if other.name and other.name == desired.name and other.mac and not other.covers(desired.mac):
            return f"the name {desired.name} is reserved for {other.mac}{where}"
    for lease in leases:
        if lease.address == desired.address and lease.mac != desired.mac and not lease.is_over(now):
            return f"{desired.address} is leased to {lease.mac} ({lease.name or 'no name'}) {lease.until}"
    return ""


def held_by_other(desired: Reservation, holder: str, subject: str, source: Source | None) -> Diagnostic:
    """Return the problem of an address that somebody else has."""
    return Diagnostic(
        code="IP_LEASED_TO_OTHER",
        summary=f"{desired.address} cannot be reserved for {desired.name}: {holder}",
        subject=subject,
        source=source,
        untouched="The router was left as it is.",
        remedy="Give the node another address, or free this one on the router (an old lease ends by itself).",
    )
