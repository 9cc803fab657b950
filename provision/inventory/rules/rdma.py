"""RDMA networks: rails, resources, and address pools against hosts and routes."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from provision.inventory.models.cluster import IpPool, Rdma, RdmaNetwork
from provision.inventory.models.inventory import Inventory
from provision.inventory.rules.findings import Findings
from provision.inventory.scalars import address_of
from provision.inventory.tree import KeyPath

_Span = tuple[IPv4Address, IPv4Address]


def check(inventory: Inventory, findings: Findings) -> None:
    """Find problems of RDMA."""
    _own_interfaces(inventory, findings)
    rdma = inventory.rdma
    if rdma is None:
        return
    rails = {rail for node in inventory.nodes.values() for rail in node.rails}
    for kind, items in (("resources", rdma.resources), ("networks", rdma.networks)):
        for name, item in items.items():
            if item.rail not in rails:
                where = ("rdma", kind, name, "rail")
                findings.add("INVENTORY_REFERENCE", f"no node has the rail {item.rail!r}", where)
    _modes(inventory, rdma, findings)
    taken: list[tuple[str, IPv4Network]] = _routes(inventory)
    for name, network in rdma.networks.items():
        path = ("rdma", "networks", name)
        if network.resource is not None:
            findings.reference("resource", network.resource, ("rdma", "resources"), (*path, "resource"))
        if network.pool is not None and network.rail in rails:
            _pool(inventory, network, network.pool, (*path, "pool"), taken, findings)
            taken.append((f"the pool of {name}", IPv4Network(network.pool.subnet)))


def _modes(inventory: Inventory, rdma: Rdma, findings: Findings) -> None:
    """Find what excludes each other in one cluster."""
    if rdma.resources and (rdma.method, rdma.netns) == ("macvlan", "exclusive"):
        summary = "pods cannot share a port of which each namespace has the devices alone"
        remedy = "declare `netns: shared`"
        findings.add("INVENTORY_CONFLICT", summary, ("rdma", "netns"), remedy=remedy)
    other = inventory.gpu.operator if inventory.gpu is not None else None
    if other is not None and other.nfd and rdma.operator is not None and rdma.operator.nfd:
        summary = "two operators bring Node Feature Discovery, and a cluster has one"
        findings.add(
            "INVENTORY_CONFLICT", summary, ("rdma", "operator", "nfd"), remedy="remove one `nfd: true`"
        )
    makers: dict[str, str] = {}
    for name, network in rdma.networks.items():
        for made in (name, *(f"{name}-{namespace}" for namespace in network.namespaces[1:])):
            if makers.setdefault(made, name) != name:
                summary = f"networks {makers[made]} and {name} both make a network {made}"
                findings.add("INVENTORY_CONFLICT", summary, ("rdma", "networks", name))


def _own_interfaces(inventory: Inventory, findings: Findings) -> None:
    for name, node in inventory.nodes.items():
        inner = node.interfaces.node if node.interfaces is not None else None
        for rail, port in node.rails.items():
            if inner is not None and port.device == inner:
                summary = f"{inner} is a rail ({rail}): the node's own traffic must not use it"
                findings.add("INVENTORY_CONFLICT", summary, ("nodes", name, "interfaces", "node"))


def _routes(inventory: Inventory) -> list[tuple[str, IPv4Network]]:
    collected = []
    if inventory.network is not None:
        collected.append(("the site's network", IPv4Network(inventory.network.cidr)))
    if inventory.k3s is not None:
        collected.append(("the pod network", IPv4Network(inventory.k3s.pod_cidr)))
        collected.append(("the service network", IPv4Network(inventory.k3s.service_cidr)))
    return collected


def _pool(
    inventory: Inventory,
    network: RdmaNetwork,
    pool: IpPool,
    path: KeyPath,
    taken: list[tuple[str, IPv4Network]],
    findings: Findings,
) -> None:
    subnet = IPv4Network(pool.subnet)
    excluded = _excluded(pool, path, findings)
    users = 0
    for name, node in inventory.nodes.items():
        for rail, text in node.rail_addresses.items():
            interface = IPv4Interface(text)
            if rail == network.rail:
                users += 1
                if not subnet.subnet_of(interface.network):
                    summary = (
                        f"the pool {subnet} is not inside {name}'s network {interface.network} of rail {rail}"
                    )
                    findings.add("INVENTORY_POOL", summary, (*path, "subnet"))
            elif subnet.overlaps(interface.network):
                summary = f"the pool {subnet} overlaps rail {rail}'s network {interface.network} of {name}"
                findings.add("INVENTORY_POOL", summary, (*path, "subnet"))
            _free(
                interface.ip,
                f"{name}'s address {interface.ip} of rail {rail}",
                subnet,
                excluded,
                path,
                findings,
            )
    gateway = [] if pool.gateway is None else [("the pool's gateway", pool.gateway)]
    for what, address in gateway:
        _free(address_of(address), f"{what} {address}", subnet, excluded, path, findings)
    for what, cidr in taken:
        if subnet.overlaps(cidr):
            findings.add("INVENTORY_POOL", f"the pool {subnet} overlaps {what} {cidr}", (*path, "subnet"))
    have = subnet.num_addresses - sum(int(high) - int(low) + 1 for low, high in excluded)
    if pool.block * users > have:
        summary = f"{users} nodes with {pool.block} addresses each need more than the {have} of {subnet}"
        findings.add("INVENTORY_POOL", summary, (*path, "block"))


def _free(
    address: IPv4Address,
    what: str,
    subnet: IPv4Network,
    excluded: list[_Span],
    path: KeyPath,
    findings: Findings,
) -> None:
    if address in subnet and not any(low <= address <= high for low, high in excluded):
        remedy = "choose another subnet, or exclude the address"
        findings.add("INVENTORY_POOL", f"the pool {subnet} contains {what}", (*path, "subnet"), remedy=remedy)


def _excluded(pool: IpPool, path: KeyPath, findings: Findings) -> list[_Span]:
    collected: list[_Span] = []
    subnet = IPv4Network(pool.subnet)
    for index, text in enumerate(pool.exclude):
        low_text, dash, high_text = text.partition("-")
        try:
            low = address_of(low_text.strip())
            high = address_of(high_text.strip()) if dash else low
        except ValueError as error:
            findings.add("INVENTORY_VALUE", str(error), (*path, "exclude", index))
            continue
        if low > high or low not in subnet or high not in subnet:
            findings.add("INVENTORY_POOL", f"{text} is not inside {subnet}", (*path, "exclude", index))
            continue
        collected.append((low, high))
    return collected
