"""Reservations of Proxmox VE's own SDN: entries of its IPAM for a VNet of a simple zone with DHCP.

An entry has MAC, address and VMID, and no place for a name of ours: the VM's MAC says whose it is. Proxmox VE
removes it together with the VM's network device.

Sources: the API schema of pve-manager 9.2 (`/cluster/sdn/vnets/{vnet}/ips` and
`/cluster/sdn/ipams/{ipam}/status`); pve-network, `PVE/API2/Network/SDN/Ips.pm` and `Ipams.pm` (only the IPAM
`pve` is listed), `PVE/Network/SDN/Vnets.pm` (`add_dhcp_mapping`: the MAC is compared as the VM has it, in
capitals; a VM that starts without an entry gets a free address).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from provision.contracts.remedy import Request
from provision.contracts.snapshot import Snapshot
from provision.dhcp.api_entry import ApiRouter, network_of
from provision.dhcp.contract import Capabilities, Lease, Reservation, fold_mac
from provision.dhcp.router_driver import RouterList

BASE = "/api2/json/cluster/sdn"
VNETS = RouterList(f"{BASE}/vnets", "data", ("vnet", "zone"))
ZONES = RouterList(f"{BASE}/zones", "data", ("zone", "type", "dhcp", "ipam"))
ENTRIES = RouterList(f"{BASE}/ipams/pve/status", "data", ("vnet", "mac", "ip", "vmid", "hostname", "gateway"))


class ProxmoxSdn(ApiRouter):
    """A VNet of Proxmox VE, by its name."""

    __slots__ = ()
    noun = "SDN address"
    capabilities = Capabilities(acts_at_once=False, in_range=True, persists=True, names=False)

    @property
    def _path(self) -> str:
        return f"{BASE}/vnets/{quote(self.server, safe='')}"

    @property
    def _subnets(self) -> RouterList:
        return RouterList(f"{self._path}/subnets", "data", ("subnet", "cidr"))

    def queries(self) -> tuple[Any, ...]:
        """Ask for VNets, zones, subnets and entries."""
        return (VNETS, ZONES, ENTRIES, *([self._subnets] if self.server else []))

    def reservations(self, snapshot: Snapshot, /) -> tuple[Reservation, ...]:
        """Read the entries of the VNet; that of its gateway has no MAC."""
        return tuple(
            Reservation(
                fold_mac(mac),
                address,
                "the gateway" if gateway else "",
                f"the VNet {vnet}{f', VM {vmid}' if vmid else ''}{f' ({hostname})' if hostname else ''}",
            )
            for vnet, mac, address, vmid, hostname, gateway in snapshot[ENTRIES]
            if vnet == self.server and ":" not in address
        )

    def leases(self, snapshot: Snapshot, /) -> tuple[Lease, ...]:
        """Return none: Proxmox VE's API does not list them, and its server serves entries alone."""
        del snapshot
        return ()

    def problem(self, snapshot: Snapshot, reservation: Reservation, /) -> str:
        """Return why Proxmox VE would not serve it: no such VNet, or its zone has no DHCP server."""
        if not self.server:
            return "no VNet is named (write network.dhcp.server)"
        zone = self._zone(snapshot)
        if not zone:
            return f"there is no VNet {self.server} that the token may see (it needs SDN.Allocate)"
        for name, kind, dhcp, ipam in snapshot[ZONES]:
            if name == zone and (kind, dhcp, ipam) != ("simple", "dnsmasq", "pve"):
                served = f"the DHCP server {dhcp or 'none'} and the IPAM {ipam or 'none'}"
                return f"its zone {zone} is {kind} with {served}"
        if not network_of(reservation.address, snapshot[self._subnets]):
            return f"no subnet of the VNet {self.server} contains the address"
        return ""

    def requests(
        self, snapshot: Snapshot, reservation: Reservation, /, *, absent: bool
    ) -> tuple[Request, ...]:
        """Return what gives the MAC its address; the VM that has the entry keeps it."""
        mac = reservation.mac.upper()
        own = [(ip, vmid) for _, other, ip, vmid, *_ in self._of_vnet(snapshot) if other.upper() == mac]
        zone = self._zone(snapshot)
        if absent:
            return tuple(
                Request("DELETE", f"{self._path}/ips?{urlencode({'zone': zone, 'ip': ip, 'mac': mac})}")
                for ip, _ in own
            )
        data: dict[str, object] = {"zone": zone, "mac": mac, "ip": reservation.address}
        vmid = next((vmid for _, vmid in own if vmid), "")
        return (
            Request("PUT" if own else "POST", f"{self._path}/ips", data | ({"vmid": vmid} if vmid else {})),
        )

    def _zone(self, snapshot: Snapshot) -> str:
        return next((zone for vnet, zone in snapshot[VNETS] if vnet == self.server), "")

    def _of_vnet(self, snapshot: Snapshot) -> list[tuple[str, ...]]:
        return [row for row in snapshot[ENTRIES] if row[0] == self.server and ":" not in row[2]]
