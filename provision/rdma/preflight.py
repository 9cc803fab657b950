"""Rules about rails, on what nodes answered before anything is changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule, UnknownYet
from provision.hosts import names
from provision.inventory import Inventory
from provision.inventory.models.node import Node
from provision.rdma.facts import RdmaFacts, ResolvedRail
from provision.rdma.queries import ROCE_V2, Port, RdmaState, RdmaStatus
from provision.values.diagnostics import Diagnostic

_UNTOUCHED = "Nothing was changed."


@dataclass(frozen=True, slots=True)
class Host:
    """A node with rails, and what it answered."""

    node: Node
    status: RdmaStatus
    rails: tuple[ResolvedRail, ...]

    def refused(
        self, evidence: Evidence, code: str, summary: str, remedy: str, *rows: str, key: str = "rails"
    ) -> Diagnostic:
        """Return a finding about the node."""
        source = evidence.inventory.source(("nodes", self.node.name, key))
        return Diagnostic(
            code, summary, self.node.name, evidence=rows, source=source, untouched=_UNTOUCHED, remedy=remedy
        )


def _hosts(evidence: Evidence) -> Iterator[Host | UnknownYet]:
    """Yield the nodes with rails that answered, and why others cannot be judged yet."""
    for node in evidence.inventory.nodes.values():
        system = names.ssh(node.name)
        if not node.manage or not evidence.covers(system) or not (node.rails or node.ofed):
            continue
        facts = RdmaFacts(evidence.snapshot(system))
        status, rails = facts.rdma, facts.rails(node)
        if isinstance(status, Unknown) or isinstance(rails, Unknown):
            reason = status if isinstance(status, Unknown) else rails
            if isinstance(reason, Unknown):
                yield UnknownYet(f"RDMA ports of {node.name}: {reason.reason}", node.name)
            continue
        yield Host(node, status, rails)


def missing(evidence: Evidence) -> list[Finding]:
    """Refuse rails whose address, interface or RDMA port is not there, or has another name."""
    findings: list[Finding] = []
    for host in _hosts(evidence):
        if isinstance(host, UnknownYet):
            findings.append(host)
            continue
        for rail in host.rails:
            finding = _absent(evidence, host, rail) or _renamed(evidence, host, rail)
            if finding is not None:
                findings.append(finding)
    return findings


def _absent(evidence: Evidence, host: Host, rail: ResolvedRail) -> Diagnostic | None:
    node, label = host.node, f"rail {rail.name} of {host.node.name}"
    if rail.interface is None or (rail.address is not None and not rail.has_address):
        declared = str(rail.address.with_prefixlen) if rail.address is not None else rail.rail.device or "?"
        has = "no interface has" if rail.interface is None else f"{rail.interface.name} does not have"
        return host.refused(
            evidence,
            "RAIL_MISSING",
            f"{label}: {has} {declared}",
            f"set the address on the node (provision does not), or correct"
            f" `nodes.{node.name}.rail_addresses.{rail.name}`",
            *(f"{one.name}: {', '.join(one.addresses)}" for one in host.status.interfaces if one.addresses),
            key="rail_addresses" if rail.address is not None else "rails",
        )
    if rail.port is None:
        return host.refused(
            evidence,
            "RAIL_NO_RDMA",
            f"{label}: {rail.interface.name} has no RDMA port",
            "install the NIC's RDMA driver on the node (`modprobe mlx5_ib`, or NVIDIA's stack), or name the"
            f" right interface in `nodes.{node.name}.rails.{rail.name}.device`",
            *(f"{port.name} at {port.pci or 'no PCI function'}" for port in host.status.ports),
        )
    return None


def _renamed(evidence: Evidence, host: Host, rail: ResolvedRail) -> Diagnostic | None:
    renamed = rail.renamed
    if not renamed:
        return None
    values = ", ".join(f"{key}: {new}" for key, _, new in renamed)
    return host.refused(
        evidence,
        "RAIL_RENAMED",
        f"rail {rail.name} of {host.node.name} has other names than declared",
        f"declare `nodes.{host.node.name}.rails.{rail.name}: {{ {values} }}`",
        *(f"{key}: declared {old}, present {new}" for key, old, new in renamed),
    )


def unfit(evidence: Evidence) -> list[Finding]:
    """Refuse rails whose port is down, has no usable address entry, another link layer or another MTU."""
    findings: list[Finding] = []
    for host in _hosts(evidence):
        if isinstance(host, UnknownYet):
            continue
        for rail in host.rails:
            if rail.port is not None and rail.interface is not None:
                findings += _unfit(evidence, host, rail, rail.port)
    return findings


def _unfit(evidence: Evidence, host: Host, rail: ResolvedRail, port: Port) -> Iterator[Diagnostic]:
    node, label, inventory = host.node, f"rail {rail.name} of {host.node.name}", evidence.inventory
    if port.state != "ACTIVE":
        state = port.state or "not readable"
        remedy = f"check cable, switch port and transceiver: `ethtool {rail.rail.device or rail.name}`"
        yield host.refused(evidence, "RAIL_DOWN", f"{label}: {port.name} is {state}", remedy)
        return
    is_macvlan = inventory.rdma is not None and inventory.rdma.method == "macvlan"
    if port.link_layer != "Ethernet":
        if is_macvlan:
            # macvlan(8) has no InfiniBand master: the kernel answers EINVAL.
            setting = f"mlxconfig -d {port.pci or 'DEVICE'} set LINK_TYPE_P{port.number}=2"
            layer = port.link_layer or "of an unknown kind"
            summary = f"{label}: {port.name} is {layer}, and macvlan needs Ethernet"
            remedy = f"set the port to Ethernet: `{setting}`"
            yield host.refused(evidence, "RAIL_NOT_ETHERNET", summary, remedy)
        return
    if rail.address is not None and rail.gid is None:
        rows = [f"{gid.index}: {gid.address} {gid.kind} {gid.netdev}".rstrip() for gid in port.gids]
        yield host.refused(
            evidence,
            "RAIL_NO_GID",
            f"{label}: {port.name} has no {ROCE_V2} entry for {rail.address.ip}",
            "a port gets the entry with the address of its interface: look at `show_gids`, or at the port's"
            " firmware if it knows RoCE v1 only",
            *rows[:24],
        )
    mtu = rail.rail.mtu
    if mtu is not None and rail.interface is not None and rail.interface.mtu != mtu:
        yield host.refused(
            evidence,
            "RAIL_MTU",
            f"{label}: {rail.interface.name} has MTU {rail.interface.mtu}, and {mtu} is declared",
            f"set the MTU on the node (provision does not), or declare"
            f" `nodes.{node.name}.rails.{rail.name}.mtu: {rail.interface.mtu}`",
        )


def differing(evidence: Evidence) -> list[Finding]:
    """Refuse a rail of pods whose interfaces have different names: a network names one for all nodes."""
    rdma = evidence.inventory.rdma
    if rdma is None or not rdma.networks:
        return []
    hosts = [host for host in _hosts(evidence) if isinstance(host, Host)]
    findings: list[Finding] = []
    for name in sorted({network.rail for network in rdma.networks.values()}):
        masters = {
            host.node.name: rail.interface.name
            for host in hosts
            for rail in host.rails
            if rail.name == name and rail.interface is not None
        }
        if len(set(masters.values())) > 1:
            source = evidence.inventory.source(("rdma", "networks"))
            findings.append(
                Diagnostic(
                    "RAIL_NAMES_DIFFER",
                    f"interfaces of rail {name} have different names, and a network names one for all nodes",
                    evidence=tuple(f"{node}: {master}" for node, master in sorted(masters.items())),
                    source=source,
                    untouched=_UNTOUCHED,
                    remedy="give them one name by a systemd.link(5) file, or declare a rail and a network for"
                    " each naming class",
                )
            )
    return findings


def exclusive(evidence: Evidence) -> list[Finding]:
    """Refuse ports that pods shall share, while namespaces have them alone and nothing changes that."""
    rdma = evidence.inventory.rdma
    if rdma is None or rdma.operator is None or rdma.netns is not None or not rdma.resources:
        return []
    rails = {resource.rail for resource in rdma.resources.values()}
    return [
        host.refused(
            evidence,
            "RDMA_NETNS_EXCLUSIVE",
            f"namespaces of {host.node.name} have RDMA devices alone, and pods cannot share them",
            "declare `rdma.netns: shared`, which costs a reboot",
        )
        for host in _hosts(evidence)
        if isinstance(host, Host) and host.status.netns == "exclusive" and rails & host.node.rails.keys()
    ]


def too_old(evidence: Evidence) -> list[Finding]:
    """Refuse a NIC driver stack of the node's own that is older than declared, or not there."""
    findings: list[Finding] = []
    for host in _hosts(evidence):
        if isinstance(host, UnknownYet) or host.node.ofed is None or host.node.ofed.minimum is None:
            continue
        minimum, present = host.node.ofed.minimum, host.status.ofed
        if _numbers(present) < _numbers(minimum):
            has = f"{host.node.name} has NIC driver stack {present or 'none'}"
            summary = f"{has}, and at least {minimum} is declared"
            remedy = f"update it on the node, or declare `ofed.minimum: '{present or '0'}'`"
            findings.append(host.refused(evidence, "OFED_TOO_OLD", summary, remedy, key="ofed"))
    return findings


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", version)[:5])


RULES = (
    Rule(
        ("RAIL_MISSING", "RAIL_NO_RDMA", "RAIL_RENAMED"),
        "no interface of the node has a rail's address, it has no RDMA port, or names other than declared",
        "set the address on the node, install the NIC's RDMA driver, or declare the present names",
        missing,
    ),
    Rule(
        ("RAIL_DOWN", "RAIL_NOT_ETHERNET", "RAIL_NO_GID", "RAIL_MTU"),
        "a rail's port is not active, is InfiniBand under macvlan, or has no RoCE v2 entry of its address; or"
        " its interface has another MTU",
        "check the link with `ethtool`; set link type or MTU on the node; declare the present MTU",
        unfit,
    ),
    Rule(
        ("RAIL_NAMES_DIFFER",),
        "the interfaces of one rail have different names on the nodes of a network of pods",
        "give them one name with systemd.link files, or declare a rail and a network for each naming class",
        differing,
    ),
    Rule(
        ("RDMA_NETNS_EXCLUSIVE",),
        "RDMA devices are exclusive to a network namespace, and pods share a port without `rdma.netns`",
        "declare `rdma.netns: shared`",
        exclusive,
    ),
    Rule(
        ("OFED_TOO_OLD",),
        "the node's own NIC driver stack is older than `ofed.minimum`, or missing",
        "update it on the node, or declare a lower `ofed.minimum`",
        too_old,
    ),
)


def evidence(inventory: Inventory) -> dict[str, tuple[Any, ...]]:
    """Return what these rules ask: nodes with rails or a NIC driver stack of their own."""
    return {
        names.ssh(node.name): (RdmaState(),)
        for node in inventory.nodes.values()
        if node.manage and (node.rails or node.ofed is not None)
    }
