"""Rules about charts: what Helm accepts without a word and nobody reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from provision.contracts.rule import Evidence, Finding, Rule
from provision.inventory import Inventory
from provision.inventory.models.cluster import Operator
from provision.inventory.tree import KeyPath
from provision.kube import local_volumes
from provision.kube.chart_archive import defaults_of
from provision.kube.names import API, has_cluster
from provision.values.diagnostics import Diagnostic
from provision.values.suggestions import known_names


def operators(inventory: Inventory) -> Iterator[tuple[str, Operator, KeyPath]]:
    """Yield the operators that are installed from charts: chart, section, keys."""
    if inventory.gpu is not None and inventory.gpu.operator is not None:
        yield "gpu-operator", inventory.gpu.operator, ("gpu", "operator")
    if inventory.rdma is not None and inventory.rdma.operator is not None:
        yield "network-operator", inventory.rdma.operator, ("rdma", "operator")


def archive_of(inventory: Inventory, chart: str, operator: Operator) -> bytes | None:
    """Return a chart's archive where the controller has it: the declared one, or the one that is pinned."""
    from provision.connections.download import cached  # noqa: PLC0415 - late: most runs need none

    if operator.chart is not None:
        try:
            return operator.chart.expanduser().read_bytes()
        except OSError:
            return None  # the role refuses it with its reason
    pin = inventory.lock.charts.get(chart)
    if pin is None or operator.version.removeprefix("v") not in pin.url:
        return None
    return cached(pin.sha256)


def chart_values(evidence: Evidence) -> list[Finding]:
    """Refuse values that the chart does not know."""
    inventory = evidence.inventory
    if not has_cluster(inventory) or not evidence.covers(API):
        return []
    findings: list[Finding] = []
    for chart, operator, path in operators(inventory):
        archive = archive_of(inventory, chart, operator) if operator.values else None
        defaults = defaults_of(archive) if archive is not None else None
        if defaults is None:
            continue
        where = ".".join(map(str, path))
        for unknown in defaults.unknown(operator.values):
            keys = tuple(unknown.split("."))
            source = inventory.source((*path, "values", *keys))
            findings.append(
                Diagnostic(
                    "CHART_VALUE_UNKNOWN",
                    f"{where}.values: {chart} {operator.version} has no value {unknown}",
                    "cluster",
                    source=source,
                    untouched="Nothing was changed.",
                    remedy=f"correct {where}.values. {known_names(keys[-1], _siblings(defaults.tree, keys))}",
                )
            )
    return findings


def _siblings(tree: Mapping[str, Any], keys: Sequence[str]) -> Iterable[str]:
    """Return the keys beside one that is not known."""
    for key in keys[:-1]:
        inner = tree.get(key)
        tree = inner if isinstance(inner, Mapping) else {}
    return tuple(map(str, tree))


RULES = (
    Rule(
        ("CHART_VALUE_UNKNOWN",),
        "`values` of an operator name something that its chart does not have; looked at where the chart's"
        " archive is declared, or was pinned on this machine",
        "correct the path in `gpu.operator.values` or `rdma.operator.values`",
        chart_values,
    ),
    *local_volumes.RULES,
)
