"""Rules about which machine answered: one machine a node, with its own address and its own name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provision.contracts.rule import Evidence, Finding, Rule
from provision.hosts import names
from provision.hosts.facts import HostFacts
from provision.hosts.queries.identity import MachineIdentity
from provision.inventory.models.node import Node
from provision.values.diagnostics import Diagnostic

_UNTOUCHED = "Nothing was changed."
_MARKS = {
    "machine_id": ("machine-id", "rm /etc/machine-id; systemd-machine-id-setup"),
    "product_uuid": ("product UUID", "declare one of them only, or give the board a UUID of its own"),
    "host_key": ("SSH host key", "rm /etc/ssh/ssh_host_*; ssh-keygen -A"),
}
"""What tells machines apart, in words, and how a clone gets its own."""


def _answered(evidence: Evidence) -> Iterator[tuple[Node, MachineIdentity]]:
    for node in evidence.inventory.nodes.values():
        identity = HostFacts(evidence.snapshot(names.ssh(node.name))).identity
        if isinstance(identity, MachineIdentity):
            yield node, identity


def duplicate(evidence: Evidence) -> list[Finding]:
    """Refuse two nodes that are one machine, or a machine and its clone."""
    nodes = list(_answered(evidence))
    findings: list[Finding] = []
    for mark, (words, remedy) in _MARKS.items():
        for value, several in _several(
            (str(getattr(identity, mark)), node) for node, identity in nodes
        ).items():
            findings.append(_diagnostic(evidence, several, f"the {words} {value[:64]}", remedy))
    macs = _several((mac, node) for node, identity in nodes for mac in identity.macs)
    for mac, several in macs.items():
        findings.append(
            _diagnostic(evidence, several, f"the MAC address {mac}", "give one of them another MAC")
        )
    return findings


def _several(pairs: Iterator[tuple[str, Node]]) -> Mapping[str, list[Node]]:
    """Return the values that more than one node has; empty values are none."""
    owners: dict[str, list[Node]] = {}
    for value, node in pairs:
        if value:
            owners.setdefault(value, []).append(node)
    return {value: nodes for value, nodes in owners.items() if len(nodes) > 1}


def _diagnostic(evidence: Evidence, nodes: list[Node], what: str, remedy: str) -> Diagnostic:
    first = nodes[0]
    return Diagnostic(
        "IDENTITY_DUPLICATE",
        f"{', '.join(node.name for node in nodes)} have {what}: they are one machine, or clones",
        first.name,
        evidence=tuple(f"{node.name}: {node.address}" for node in nodes),
        source=evidence.inventory.source(("nodes", first.name)),
        untouched=_UNTOUCHED,
        remedy=f"declare each machine once; for a clone, on the clone: {remedy}",
    )


def foreign_address(evidence: Evidence) -> list[Finding]:
    """Refuse a cluster node that answers at an address which is not its own: a virtual IP, or NAT."""
    findings: list[Finding] = []
    for node, identity in _answered(evidence):
        known = identity.addresses
        if node.k3s is None or node.connection == "local" or not known or node.address in known:
            continue
        findings.append(
            Diagnostic(
                "NODE_ADDRESS_FOREIGN",
                f"the machine that answers at {node.address} of {node.name} does not have that address",
                node.name,
                evidence=(f"it calls itself {identity.hostname}", *known),
                source=evidence.inventory.source(("nodes", node.name, "address")),
                untouched=_UNTOUCHED,
                remedy="declare the address of its own interface: ip -4 addr",
            )
        )
    return findings


def renamed(evidence: Evidence) -> list[Finding]:
    """Refuse another name of a node that has joined a cluster: a new name is a new Node."""
    findings: list[Finding] = []
    for node, identity in _answered(evidence):
        desired = node.kubernetes_name
        if node.k3s is None or not identity.node_name or identity.node_name == desired.lower():
            continue
        findings.append(
            Diagnostic(
                "NODE_NAME_CHANGE",
                f"{node.name} has joined its cluster as {identity.node_name}, and {desired} is declared",
                node.name,
                source=evidence.inventory.source(("nodes", node.name)),
                untouched=_UNTOUCHED,
                remedy=f"declare `kube_name: {identity.node_name}`, or replace the node: `provision rebuild`",
            )
        )
    return findings


RULES = (
    Rule(
        ("IDENTITY_DUPLICATE",),
        "two nodes have one machine-id, product UUID, host key or MAC address",
        "declare each machine once, or give the clone an identity of its own: `systemd-machine-id-setup`",
        duplicate,
    ),
    Rule(
        ("NODE_ADDRESS_FOREIGN",),
        "the machine that answers at a cluster node's address does not have that address",
        "declare the address of its own interface: `ip -4 addr`",
        foreign_address,
    ),
    Rule(
        ("NODE_NAME_CHANGE",),
        "a node has joined its cluster under another name than declared",
        "declare that name as `kube_name`, or run `provision rebuild INVENTORY NODE`",
        renamed,
    ),
)
