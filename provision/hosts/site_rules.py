"""Rules about what machines need of each other before anything is changed: peers that answer, space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule
from provision.hosts import names
from provision.hosts.facts import HostFacts
from provision.hosts.operations.basic import quote
from provision.hosts.queries.shell import Shell, ShellResult
from provision.inventory import Inventory
from provision.inventory.models.cluster import SharedStorage
from provision.inventory.models.node import Node
from provision.values.diagnostics import Diagnostic, Severity

_FIELDS = 4
ALL = 16
"""So many nodes try each other all; more would cost a plan too much."""
_NO_ROUTE, _NO_ANSWER = "has no route to", "gets no answer from"


def peers(inventory: Inventory) -> Mapping[str, tuple[Node, ...]]:
    """Return whom each node of the cluster and each one with rails must reach; every pair is tried both ways.

    Of many nodes each tries those at distances 1, 2, 4, 8 and so on: 18 of 1,000, which finds whom nobody
    reaches, and networks that are cut in two.
    """
    has_k3s = inventory.k3s is not None
    nodes = [
        node for node in inventory.nodes.values() if node.manage and (node.rails or (has_k3s and node.k3s))
    ]
    count = len(nodes)
    steps = range(1, count) if count <= ALL else [1 << power for power in range((count // 2).bit_length())]
    return {
        node.name: tuple(
            {
                other.name: other
                for step in steps
                for other in (nodes[(index + step) % count], nodes[index - step])
            }.values()
        )
        for index, node in enumerate(nodes)
        if count > 1
    }


def peers_query(others: tuple[Node, ...]) -> Shell:
    """Return the query for routes to some nodes, and whether they answer; all are tried at once."""
    addresses = " ".join(quote(str(node.address)) for node in others)
    return Shell(
        f'{{ for p in {addresses}; do ( ip -4 route get "$p" >/dev/null 2>&1; r=$?;'
        ' ping -n -q -c 2 -i 0.2 -W 2 "$p" >/dev/null 2>&1; echo "peer $p $r $?" ) & done; wait; } | sort'
    )


def space_query(storage: SharedStorage) -> Shell:
    """Return the query for the free space at a path, if the path is there."""
    return Shell(f"df -kP -- {quote(storage.path)} 2>/dev/null || true")


def unreachable(evidence: Evidence) -> list[Finding]:
    """Refuse nodes that have no route to each other; without an answer, those with rails.

    A node without ip(8) or ping(8) is not judged, and a peer that does not answer us either is no fault of
    the way between them: one dead machine keeps no other from its steps. Between nodes without rails a
    firewall may drop pings and nothing else, so that a missing answer is a warning.
    """
    return list(_unreachable(evidence))


def _unreachable(evidence: Evidence) -> Iterator[Diagnostic]:
    nodes = evidence.inventory.nodes
    for name, others in peers(evidence.inventory).items():
        result = HostFacts(evidence.snapshot(names.ssh(name))).answer_as(peers_query(others), ShellResult)
        if isinstance(result, Unknown):
            continue
        by_address = {str(node.address): node.name for node in others}
        problems: dict[str, list[str]] = {}
        for row in map(str.split, result.stdout.decode("utf-8", "replace").splitlines()):
            if len(row) != _FIELDS or row[1] not in by_address:
                continue
            if isinstance(evidence.snapshot(names.ssh(by_address[row[1]])), Unknown):
                continue
            if problem := {"2": _NO_ROUTE}.get(row[2]) or {"1": _NO_ANSWER}.get(row[3]):
                problems.setdefault(problem, []).append(row[1])
        for problem, addresses in problems.items():
            first = addresses[0]
            has_rails = any(nodes[by_address[address]].rails for address in addresses) and nodes[name].rails
            more = f" and {len(addresses) - 1} more" if len(addresses) > 1 else ""
            yield Diagnostic(
                "PEER_UNREACHABLE",
                f"{name} {problem} {by_address[first]} at {first}{more}",
                name,
                severity=Severity.ERROR if problem == _NO_ROUTE or has_rails else Severity.WARNING,
                evidence=tuple(f"{by_address[address]}: {address}" for address in addresses) if more else (),
                source=evidence.inventory.source(("nodes", name)),
                untouched="Nothing was changed.",
                remedy=f"look at routes and firewalls on {name}: ip route get {first}; ping {first}",
            )


def low_space(evidence: Evidence) -> list[Finding]:
    """Refuse shared storage with less free space than declared, where it is there already."""
    findings: list[Finding] = []
    for name, storage in evidence.inventory.storage.items():
        for node in evidence.inventory.nodes.values():
            if storage.free is None or not node.manage:
                continue
            facts = HostFacts(evidence.snapshot(names.ssh(node.name)))
            fields = facts.output(space_query(storage)).split("\n")[-2:]
            row = next((line.split() for line in fields if line.strip().endswith(storage.path)), [])
            if len(row) < _FIELDS or not row[3].isdecimal() or int(row[3]) // 1024 >= storage.free:
                continue
            findings.append(
                Diagnostic(
                    "STORAGE_SPACE_LOW",
                    f"{storage.path} of {node.name} has {int(row[3]) // 1024} MiB free, not {storage.free}",
                    node.name,
                    source=evidence.inventory.source(("storage", name)),
                    untouched="Nothing was changed.",
                    remedy=f"free some space, or declare less `free`; see: du -xhd 1 {storage.path}",
                )
            )
    return findings


def evidence(inventory: Inventory) -> dict[str, tuple[Any, ...]]:
    """Return what these rules ask, by system."""
    paths = peers(inventory)
    spaces = tuple(space_query(storage) for storage in inventory.storage.values() if storage.free is not None)
    asked: dict[str, tuple[Any, ...]] = {}
    for name, node in inventory.nodes.items():
        if node.manage:
            others = (peers_query(paths[name]),) if name in paths else ()
            asked[names.ssh(name)] = (*others, *spaces)
    return asked


RULES = (
    Rule(
        ("PEER_UNREACHABLE",),
        "a node of the cluster has no route to another node, or gets no answer from it (no answer is a"
        " warning between nodes without rails)",
        "look at routes and firewalls: `ip route get ADDRESS`, `ping ADDRESS`",
        unreachable,
    ),
    Rule(
        ("STORAGE_SPACE_LOW",),
        "a shared storage has less free space than `storage.NAME.free`",
        "free some space, or declare less `free`",
        low_space,
    ),
)
