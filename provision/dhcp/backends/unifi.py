"""Reservations of UniFi Network: a fixed address of the client that has the MAC.

Sources: the wiki page "UniFi Controller API" of Ubiquiti's community; Art-of-WiFi/UniFi-API-client,
`edit_client_fixedip`; terraform-provider-unifi#64 and #145: `use_fixedip` and `network_id` are needed.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from provision.contracts.remedy import Request
from provision.contracts.snapshot import Snapshot
from provision.dhcp.api_entry import ApiRouter, join_words, network_of
from provision.dhcp.contract import Lease, Reservation, fold_mac
from provision.dhcp.router_driver import RouterList

_CLIENT = ("_id", "mac", "name", "use_fixedip", "fixed_ip", "note")


class UniFi(ApiRouter):
    """A console with UniFi Network.

    A client is ours if its note has the name of our entry as a word; other words of the note stay.
    """

    __slots__ = ()
    noun = "UniFi client"

    @property
    def site(self) -> str:
        """Name of the site in UniFi Network."""
        return self.server or "default"

    @property
    def _base(self) -> str:
        return f"/api/s/{quote(self.site, safe='')}"

    @property
    def _users(self) -> RouterList:
        return RouterList(f"{self._base}/rest/user", "data", _CLIENT)

    @property
    def _networks(self) -> RouterList:
        return RouterList(f"{self._base}/rest/networkconf", "data", ("_id", "ip_subnet", "dhcpd_enabled"))

    @property
    def _clients(self) -> RouterList:
        return RouterList(f"{self._base}/stat/sta", "data", ("mac", "ip", "hostname"))

    def queries(self) -> tuple[Any, ...]:
        """Ask for the known clients, the networks, and the clients that are connected."""
        return (self._users, self._networks, self._clients)

    def reservations(self, snapshot: Snapshot, /) -> tuple[Reservation, ...]:
        """Read the clients with a fixed address."""
        return tuple(
            Reservation(fold_mac(mac), address, name, f"UniFi client {self._own(note) or name or mac}")
            for _, mac, name, is_fixed, address, note in snapshot[self._users]
            if is_fixed == "true" and address
        )

    def leases(self, snapshot: Snapshot, /) -> tuple[Lease, ...]:
        """Read the addresses of connected clients; UniFi does not say until when."""
        return tuple(Lease(fold_mac(mac), ip, name) for mac, ip, name in snapshot[self._clients] if ip)

    def problem(self, snapshot: Snapshot, reservation: Reservation, /) -> str:
        """Return why UniFi would not serve it: no such network, or its DHCP server is off."""
        networks = {name: (subnet, dhcp) for name, subnet, dhcp in snapshot[self._networks]}
        subnets = [(name, subnet) for name, (subnet, _) in networks.items()]
        name = network_of(reservation.address, subnets)
        if not name:
            return f"no network of the site {self.site} contains the address"
        return "" if networks[name][1] == "true" else "the DHCP server of the network is off"

    def requests(
        self, snapshot: Snapshot, reservation: Reservation, /, *, absent: bool
    ) -> tuple[Request, ...]:
        """Return what frees the client that had it before, and what gives it to the one with the MAC."""
        own = f"{self.prefix}{reservation.name}"
        path = self._users.path
        requests: list[Request] = []
        known: Request | None = None
        for client, mac, _, _, _, note in snapshot[self._users]:
            others = [word for word in note.split() if word != own]
            if not absent and fold_mac(mac) == reservation.mac:
                data = self._fixed(snapshot, reservation, join_words([*others, own]))
                known = Request("PUT", f"{path}/{client}", data)
            elif own in note.split():
                freed = {"use_fixedip": False, "note": join_words(others)}
                requests.append(Request("PUT", f"{path}/{client}", freed))
        if not absent:
            fixed = self._fixed(snapshot, reservation, own)
            requests.append(known or Request("POST", path, {"mac": reservation.mac, **fixed}))
        return tuple(requests)

    def _fixed(self, snapshot: Snapshot, reservation: Reservation, note: str) -> dict[str, object]:
        subnets = [(name, subnet) for name, subnet, _ in snapshot[self._networks]]
        return {
            "name": reservation.name,
            "note": note,
            "use_fixedip": True,
            "fixed_ip": reservation.address,
            "network_id": network_of(reservation.address, subnets),
        }

    def _own(self, note: str) -> str:
        return next((word for word in note.split() if word.startswith(self.prefix)), "")
