"""Reservations of OPNsense by its web API, for its DHCP server Kea.

Sources: OPNsense's documentation, "Kea" below "Core API"; opnsense/core, `Kea/Api/Dhcpv4Controller.php`,
`Kea/KeaDhcpv4.xml`, and `Base/ApiMutableModelControllerBase.php`: a `set` with a UUID that is not there yet
makes the entry. So each of our entries has the UUID that follows from its name.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid5

from provision.contracts.remedy import Request
from provision.contracts.snapshot import Snapshot
from provision.dhcp.api_entry import ApiRouter, network_of
from provision.dhcp.contract import Capabilities, Lease, Reservation, as_seconds, fold_mac
from provision.dhcp.router_driver import RouterList

_ALL = "?current=1&rowCount=-1"
GENERAL = RouterList("/api/kea/dhcpv4/get", "dhcpv4.general", ("enabled", "manual_config"))
SUBNETS = RouterList(f"/api/kea/dhcpv4/searchSubnet{_ALL}", "rows", ("uuid", "subnet"))
RESERVATIONS = RouterList(
    f"/api/kea/dhcpv4/searchReservation{_ALL}",
    "rows",
    ("uuid", "hw_address", "ip_address", "hostname", "description"),
)
LEASES = RouterList(f"/api/kea/leases4/search{_ALL}", "rows", ("hwaddr", "address", "hostname", "expire"))

NAMES = UUID("6e2ad1f6-5f0b-4a53-9d0e-0c5f3c1d7a11")
"""The name space of our UUIDs."""
NOT_APPLIED = " (not applied yet)"
"""Ends the description of an entry until the server has read it: the next run continues a killed one."""


class OpnSense(ApiRouter):
    """A router with OPNsense."""

    __slots__ = ()
    noun = "Kea reservation"
    capabilities = Capabilities(acts_at_once=False, in_range=True, persists=True)

    def queries(self) -> tuple[Any, ...]:
        """Ask for the server, its networks, and all reservations and leases."""
        return (GENERAL, SUBNETS, RESERVATIONS, LEASES)

    def _uuid(self, name: str) -> str:
        return str(uuid5(NAMES, f"{self.prefix}{name}"))

    def place(self, name: str) -> str:
        """Return the place of our entry."""
        return f"Kea reservation {self._uuid(name)}"

    def reservations(self, snapshot: Snapshot, /) -> tuple[Reservation, ...]:
        """Read the reservations."""
        return tuple(
            Reservation(
                fold_mac(mac),
                address,
                f"{name}{NOT_APPLIED}" if description.endswith(NOT_APPLIED) else name,
                f"Kea reservation {uuid}",
            )
            for uuid, mac, address, name, description in snapshot[RESERVATIONS]
        )

    def leases(self, snapshot: Snapshot, /) -> tuple[Lease, ...]:
        """Read the leases."""
        return tuple(
            Lease(fold_mac(mac), address, name, as_seconds(expire))
            for mac, address, name, expire in snapshot[LEASES]
        )

    def problem(self, snapshot: Snapshot, reservation: Reservation, /) -> str:
        """Return why Kea would not serve it: it is off, written by hand, or has no such network."""
        for enabled, manual in snapshot[GENERAL]:
            if enabled != "1":
                return "its Kea DHCPv4 server is off"
            if manual == "1":
                return "the configuration of its Kea server is written by hand"
        if not network_of(reservation.address, snapshot[SUBNETS]):
            return "no subnet of its Kea server contains the address"
        return ""

    def requests(
        self, snapshot: Snapshot, reservation: Reservation, /, *, absent: bool
    ) -> tuple[Request, ...]:
        """Return the write, the reload, and the note that the server has read it."""
        uuid = self._uuid(reservation.name)
        reload = Request("POST", "/api/kea/service/reconfigure")
        if absent:
            return (Request("POST", f"/api/kea/dhcpv4/delReservation/{uuid}"), reload)
        own = f"{self.prefix}{reservation.name}"
        entry = {
            "subnet": network_of(reservation.address, snapshot[SUBNETS]),
            "ip_address": reservation.address,
            "hw_address": reservation.mac,
            "hostname": reservation.name,
            "description": f"{own}{NOT_APPLIED}",
        }
        path = f"/api/kea/dhcpv4/setReservation/{uuid}"
        applied = Request("POST", path, {"reservation": {"description": own}})
        return (Request("POST", path, {"reservation": entry}), reload, applied)
