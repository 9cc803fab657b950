"""Rails of a node, resolved from an address to an interface, a port and a GID each time.

Names and indexes change with driver, slot and kernel; inventory and network agree on the address of a rail.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Interface, ip_interface

from provision.contracts.query import Unknown
from provision.hosts.facts import HostFacts
from provision.inventory.models.node import Node, Rail
from provision.rdma.queries import ROCE_V2, Gid, Interface, Port, RdmaState, RdmaStatus


@dataclass(frozen=True, slots=True)
class ResolvedRail:
    """What a rail is on its node.

    Args:
        name: in the inventory.
        rail: as declared.
        address: as declared; None for a rail without one.
        interface: the one that has the address, else the one of the declared name.
        port: the RDMA port of that interface.
        gid: the RoCE v2 entry of the address.
    """

    name: str
    rail: Rail
    address: IPv4Interface | None
    interface: Interface | None
    port: Port | None
    gid: Gid | None

    @property
    def has_address(self) -> bool:
        """Whether the interface has the declared address and prefix length."""
        return (
            self.address is not None
            and self.interface is not None
            and self.address.with_prefixlen in self.interface.addresses
        )

    @property
    def renamed(self) -> tuple[tuple[str, str, str], ...]:
        """Key, declared and present name, for every name that another one took the place of."""
        if self.interface is None:
            return ()
        pairs = [("device", self.rail.device or "", self.interface.name)]
        if self.port is not None:
            pairs.append(("hca", self.rail.hca or "", self.port.device))
            pairs.append(("port", str(self.rail.port) if self.rail.hca else "", str(self.port.number)))
        return tuple((key, old, new) for key, old, new in pairs if old and old != new)


class RdmaFacts(HostFacts):
    """The facts of a node with rails."""

    __slots__ = ()

    @property
    def rdma(self) -> RdmaStatus | Unknown:
        """Ports, interfaces and the mode of namespaces: RdmaState."""
        return self.answer_as(RdmaState(), RdmaStatus)

    def rails(self, node: Node) -> tuple[ResolvedRail, ...] | Unknown:
        """Return every rail of a node, resolved: RdmaState."""
        status = self.rdma
        if isinstance(status, Unknown):
            return status
        return tuple(
            resolve(name, rail, node.rail_addresses.get(name), status) for name, rail in node.rails.items()
        )


def resolve(name: str, rail: Rail, address: str | None, status: RdmaStatus) -> ResolvedRail:
    """Return what a rail is on a host that said `status`."""
    declared = IPv4Interface(address) if address is not None else None
    interface = _interface(rail, declared, status)
    port = _port(interface, status) if interface is not None else _named_port(rail, status)
    gid = None
    if port is not None and interface is not None and declared is not None:
        gid = next(
            (
                entry
                for entry in port.gids
                if entry.kind == ROCE_V2
                and entry.address == declared.ip
                and entry.netdev in ("", interface.name)
            ),
            None,
        )
    return ResolvedRail(name, rail, declared, interface, port, gid)


def _interface(rail: Rail, address: IPv4Interface | None, status: RdmaStatus) -> Interface | None:
    if address is not None:
        for interface in status.interfaces:
            if any(_ip(text) == str(address.ip) for text in interface.addresses):
                return interface
    return next((one for one in status.interfaces if one.name == rail.device), None)


def _ip(text: str) -> str:
    try:
        return str(ip_interface(text).ip)
    except ValueError:
        return ""


def _port(interface: Interface, status: RdmaStatus) -> Port | None:
    """Return the port of an interface: by the kernel's table, else by PCI function and port on it."""
    for port in status.ports:
        if any(gid.netdev == interface.name for gid in port.gids):
            return port
    same = [port for port in status.ports if port.pci and port.pci == interface.pci]
    # On a device with several ports, dev_port counts from 0 and the RDMA port from 1.
    exact = [port for port in same if port.number == interface.port + 1]
    if exact:
        return exact[0]
    return same[0] if len(same) == 1 else None


def _named_port(rail: Rail, status: RdmaStatus) -> Port | None:
    return next((one for one in status.ports if (one.device, one.number) == (rail.hca, rail.port)), None)
