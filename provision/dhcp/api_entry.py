"""Our reservation on a router with a web API, and what its back ends share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, ip_interface
from typing import Any, ClassVar, Self

from provision.contracts.change import Change
from provision.contracts.remedy import ApiCall, Impossible, Request
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.dhcp.contract import Capabilities, Lease, Reservation, is_own
from provision.dhcp.listing import reservation_changes
from provision.inventory.models.site import Dhcp
from provision.values.diagnostics import Source


@dataclass(frozen=True, slots=True)
class ApiRouter(ABC):
    """A router that is asked and changed by requests to its web API.

    Args:
        system: `router`.
        prefix: how the names of our entries begin (`provision-lab-`).
        server: what `network.dhcp.server` names; empty for nothing.
    """

    noun: ClassVar[str]
    """What an entry is called, before the name that makes it ours."""
    capabilities: ClassVar[Capabilities] = Capabilities(acts_at_once=True, in_range=True, persists=True)

    system: str
    prefix: str
    server: str = ""

    @classmethod
    def declared(cls, system: str, prefix: str, dhcp: Dhcp) -> Self:
        """Return the router that an inventory declares."""
        return cls(system, prefix, dhcp.server or "")

    def place(self, name: str) -> str:
        """Return the place of our entry."""
        return f"{self.noun} {self.prefix}{name}"

    def entry(self, reservation: Reservation, *, absent: bool, source: Source | None) -> ApiEntry:
        """Return our entry for a host."""
        return ApiEntry(self.system, self, reservation, absent, source=source)

    @abstractmethod
    def queries(self) -> tuple[Any, ...]:
        """Return what is asked of it."""

    @abstractmethod
    def reservations(self, snapshot: Snapshot, /) -> tuple[Reservation, ...]:
        """Return its reservations."""

    @abstractmethod
    def leases(self, snapshot: Snapshot, /) -> tuple[Lease, ...]:
        """Return its leases."""

    @abstractmethod
    def problem(self, snapshot: Snapshot, reservation: Reservation, /) -> str:
        """Return why a reservation would have no effect on this router; empty if it would."""

    @abstractmethod
    def requests(
        self, snapshot: Snapshot, reservation: Reservation, /, *, absent: bool
    ) -> tuple[Request, ...]:
        """Return what makes our reservation, or removes it."""


@dataclass(frozen=True, slots=True)
class ApiEntry(KeyedResource):
    """Our reservation on a router, or that there is none.

    Args:
        router: who keeps it.
        reservation: MAC, address, name.
        absent: it must not be there.
    """

    kind: ClassVar[str] = "dhcp-reservation"

    router: ApiRouter
    reservation: Reservation
    absent: bool = False

    def _key_name(self) -> str:
        return self.router.place(self.reservation.name)

    def queries(self) -> tuple[Any, ...]:
        """Ask for what the router holds."""
        return self.router.queries()

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Compare MAC, address and name; two entries of ours are one too many."""
        listed = self.router.reservations(snapshot)
        own = [entry for entry in listed if is_own(self.router, entry, self.reservation)]
        if not self.router.capabilities.names:
            own = [replace(entry, name=self.reservation.name) for entry in own]
        return reservation_changes(own, self.reservation, absent=self.absent)

    def fix(self, snapshot: Snapshot, /) -> ApiCall | Impossible:
        """Return the requests; a router that would not serve the reservation is named instead."""
        problem = "" if self.absent else self.router.problem(snapshot, self.reservation)
        if problem:
            summary = f"the router would not serve a reservation of {self.reservation.address}: {problem}"
            remedy = "Set up DHCP for this network on the router, or declare the back end that serves it."
            return self._refused("DHCP_SERVER_UNUSABLE", summary, remedy=remedy)
        return ApiCall(self.router.requests(snapshot, self.reservation, absent=self.absent))


def network_of(address: str, networks: Iterable[tuple[str, str]]) -> str:
    """Return the id of the smallest network with an address, or empty.

    Args:
        address: IPv4 address.
        networks: id and `address/prefix`; what is neither network nor interface is passed over.
    """
    fitting: list[tuple[int, str]] = []
    for name, text in networks:
        try:
            network = ip_interface(text).network
        except ValueError:
            continue
        if IPv4Address(address) in network:
            fitting.append((network.prefixlen, name))
    return max(fitting, default=(0, ""))[1]


def join_words(words: Sequence[str]) -> str:
    """Return the words of a note."""
    return " ".join(word for word in words if word)
