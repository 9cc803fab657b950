"""Reservations of RouterOS 7 by its REST API: leases that are not dynamic.

Source: MikroTik's documentation, "REST API" and "DHCP", section "Leases".
"""

from __future__ import annotations

from typing import Any

from provision.contracts.remedy import Request
from provision.contracts.snapshot import Snapshot
from provision.dhcp.api_entry import ApiRouter
from provision.dhcp.contract import Lease, Reservation, fold_mac
from provision.dhcp.router_driver import RouterList

PATH = "/rest/ip/dhcp-server/lease"
LEASES = RouterList(
    PATH,
    "",
    (
        ".id",
        "mac-address",
        "address",
        "comment",
        "dynamic",
        "disabled",
        "active-mac-address",
        "active-address",
        "host-name",
    ),
)
SERVERS = RouterList("/rest/ip/dhcp-server", "", ("name", "disabled"))


class RouterOs(ApiRouter):
    """A router with RouterOS."""

    __slots__ = ()
    noun = "RouterOS lease"

    def queries(self) -> tuple[Any, ...]:
        """Ask for all leases, and for the servers."""
        return (LEASES, SERVERS)

    def reservations(self, snapshot: Snapshot, /) -> tuple[Reservation, ...]:
        """Read the leases that are not dynamic; RouterOS has no host name in them.

        One of ours that is off is none. One of others counts: it keeps its MAC.
        """
        return tuple(
            Reservation(
                fold_mac(mac),
                address,
                comment.removeprefix(self.prefix) if comment.startswith(self.prefix) else "",
                f"RouterOS lease {comment or number}{' (disabled)' if disabled == 'true' else ''}",
            )
            for number, mac, address, comment, dynamic, disabled, *_ in snapshot[LEASES]
            if dynamic != "true" and not (disabled == "true" and comment.startswith(self.prefix))
        )

    def leases(self, snapshot: Snapshot, /) -> tuple[Lease, ...]:
        """Read the leases that clients hold now."""
        return tuple(
            Lease(fold_mac(mac), address, name) for *_, mac, address, name in snapshot[LEASES] if address
        )

    def problem(self, snapshot: Snapshot, reservation: Reservation, /) -> str:
        """Return why RouterOS would not serve it: no DHCP server of that name is on, or several are."""
        del reservation
        names = [name for name, disabled in snapshot[SERVERS] if disabled != "true"]
        if self.server:
            return "" if self.server in names else f"its DHCP server {self.server} is off or missing"
        return "" if len(names) == 1 else f"{len(names)} DHCP servers are on (write network.dhcp.server)"

    def requests(
        self, snapshot: Snapshot, reservation: Reservation, /, *, absent: bool
    ) -> tuple[Request, ...]:
        """Return what changes our lease; a dynamic one of the same MAC goes, as a MAC has one lease."""
        own = f"{self.prefix}{reservation.name}"
        ours = [row[0] for row in snapshot[LEASES] if row[3] == own and row[4] != "true"]
        if absent:
            return tuple(Request("DELETE", f"{PATH}/{number}") for number in ours)
        dynamic = [
            row[0] for row in snapshot[LEASES] if row[4] == "true" and fold_mac(row[1]) == reservation.mac
        ]
        servers = [name for name, disabled in snapshot[SERVERS] if disabled != "true"]
        data = {
            "mac-address": reservation.mac.upper(),
            "address": reservation.address,
            "server": self.server or next(iter(servers), "all"),
            "comment": own,
            "disabled": "false",
        }
        kept, spare = ours[:1], [*ours[1:], *dynamic]
        write = Request("PATCH", f"{PATH}/{kept[0]}", data) if kept else Request("PUT", PATH, data)
        return (*(Request("DELETE", f"{PATH}/{number}") for number in spare), write)
