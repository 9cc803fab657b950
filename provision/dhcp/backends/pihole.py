"""Reservations of Pi-hole 6 by its web API: lines of `dhcp.hosts` in dnsmasq's grammar.

A line of ours has a tag with our name (`set:provision-lab-vm-1`), which dnsmasq takes for nothing else.

Sources: pi-hole/FTL, `src/api/docs/content/specs/config.yaml` and `dhcp.yaml`, `src/api/config.c`
(`api_config_put_delete`: one line is added or removed, FTL restarts unless the query says `restart=false`),
`src/api/dhcp.c`, and `src/config/config.c` (`dhcp.hosts`: the grammar of a line).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from provision.contracts.remedy import Request
from provision.contracts.snapshot import Snapshot
from provision.dhcp.api_entry import ApiRouter, network_of
from provision.dhcp.contract import Capabilities, Lease, Reservation, as_seconds, fold_mac
from provision.dhcp.dnsmasq_files import OPTION, Row
from provision.dhcp.dnsmasq_hosts import parse_reservations
from provision.dhcp.router_driver import TEXT, RouterList

PATH = "/api/config/dhcp/hosts"
HOSTS = RouterList(PATH, "config.dhcp.hosts", (TEXT,))
SERVER = RouterList("/api/config/dhcp", "config.dhcp", ("active", "start", "netmask"))
LEASES = RouterList("/api/dhcp/leases", "leases", ("hwaddr", "ip", "name", "expires"))


class PiHole(ApiRouter):
    """A Pi-hole whose DHCP server is on."""

    __slots__ = ()
    noun = "Pi-hole line"
    capabilities = Capabilities(acts_at_once=False, in_range=True, persists=True)

    def queries(self) -> tuple[Any, ...]:
        """Ask for the server, all reservations and leases."""
        return (SERVER, HOSTS, LEASES)

    def reservations(self, snapshot: Snapshot, /) -> tuple[Reservation, ...]:
        """Read the reservations."""
        return tuple(parse_reservations(self._rows(snapshot)))

    def _rows(self, snapshot: Snapshot) -> Iterator[Row]:
        for (line,) in snapshot[HOSTS]:
            yield Row(OPTION, f"Pi-hole line {self._own(line) or line}", f"dhcp-host={line}")

    def leases(self, snapshot: Snapshot, /) -> tuple[Lease, ...]:
        """Read the leases; a client without a name is called `*`."""
        return tuple(
            Lease(fold_mac(mac), address, "" if name == "*" else name, as_seconds(expires))
            for mac, address, name, expires in snapshot[LEASES]
        )

    def problem(self, snapshot: Snapshot, reservation: Reservation, /) -> str:
        """Return why Pi-hole would not serve it: its DHCP server is off, or serves another network."""
        for active, start, netmask in snapshot[SERVER]:
            if active != "true":
                return "its DHCP server is off"
            if netmask and not network_of(reservation.address, ((start, f"{start}/{netmask}"),)):
                return f"its DHCP server serves the network of {start} with the mask {netmask}"
        return ""

    def requests(
        self, snapshot: Snapshot, reservation: Reservation, /, *, absent: bool
    ) -> tuple[Request, ...]:
        """Return what removes our old lines and adds the new one; FTL restarts with the last of them."""
        own = f"{self.prefix}{reservation.name}"
        line = f"{reservation.mac},set:{own},{reservation.address},{reservation.name}"
        lines = [line for (line,) in snapshot[HOSTS]]
        writes = [("DELETE", old) for old in lines if self._own(old) == own and (absent or old != line)]
        if not absent and line not in lines:
            writes.append(("PUT", line))
        last = len(writes) - 1
        return tuple(
            Request(method, f"{PATH}/{quote(text, safe='')}{'' if index == last else '?restart=false'}")
            for index, (method, text) in enumerate(writes)
        )

    def _own(self, line: str) -> str:
        """Return the name of our entry that a line has, or empty."""
        match = re.search(rf"(?:^|,)\s*set:({re.escape(self.prefix)}[^,\s]+)", line)
        return match[1] if match is not None else ""
