"""Rules about the GPU Operator: what its values and the inventory say must agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule, UnknownYet
from provision.gpu.operator_values import has_operator_toolkit, operator_values
from provision.gpu.resources.stack import GPU_CLUSTER
from provision.hosts.view import View
from provision.inventory import Inventory
from provision.kube.names import API, SUBJECT, has_cluster
from provision.kube.queries import Listing, list_query
from provision.values.diagnostics import Diagnostic

GPU_CLUSTERS = list_query(GPU_CLUSTER)
RESTART_MODE = "RUNTIME_RESTART_MODE"


def _refused(inventory: Inventory, code: str, summary: str, remedy: str, *keys: str) -> Diagnostic:
    source = inventory.source(("gpu", *keys))
    return Diagnostic(code, summary, SUBJECT, source=source, untouched="Nothing was changed.", remedy=remedy)


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name)
    return section if isinstance(section, Mapping) else {}


def toolkit(evidence: Evidence) -> list[Finding]:
    """Refuse a toolkit that nobody would install, or whose installation would restart k3s by itself."""
    inventory = evidence.inventory
    gpu = inventory.gpu
    if gpu is None or not has_cluster(inventory) or not evidence.covers(API):
        return []
    if gpu.operator is None:
        if gpu.toolkit != "operator":
            return []
        summary = "`gpu.toolkit: operator` needs the GPU Operator, and `gpu.operator` is not declared"
        remedy = "declare `gpu.operator`, or `gpu.toolkit: host`"
        return [_refused(inventory, "TOOLKIT_NEEDS_OPERATOR", summary, remedy, "toolkit")]
    values = operator_values(inventory)
    section, findings = _section(values, "toolkit"), list[Finding]()
    by_operator = has_operator_toolkit(inventory)
    rows = section.get("env")
    environment = {row.get("name"): row.get("value") for row in rows or () if isinstance(row, Mapping)}
    keys = ("operator", "values", "toolkit")
    if section.get("enabled") is not by_operator:
        summary = (
            f"gpu.operator.values say toolkit.enabled: {section.get('enabled')},"
            f" and gpu.toolkit is {gpu.toolkit or 'not declared'}"
        )
        remedy = "remove `toolkit.enabled` from `gpu.operator.values`: it follows from `gpu.toolkit`"
        findings.append(_refused(inventory, "TOOLKIT_VALUES_CONFLICT", summary, remedy, *keys))
    elif by_operator and environment.get(RESTART_MODE) != "none":
        summary = f"gpu.operator.values replace toolkit.env, and {RESTART_MODE} is no longer none"
        remedy = f"add `{{ name: {RESTART_MODE}, value: none }}` and the paths of k3s to `toolkit.env`"
        findings.append(_refused(inventory, "TOOLKIT_VALUES_CONFLICT", summary, remedy, *keys))
    if _section(values, "cdi").get("nriPluginEnabled"):
        summary = (
            "gpu.operator.values turn on cdi.nriPluginEnabled: the operator then removes RuntimeClass nvidia"
        )
        remedy = "remove `cdi.nriPluginEnabled` from `gpu.operator.values`"
        findings.append(_refused(inventory, "CDI_NRI_CONFLICT", summary, remedy, "operator", "values", "cdi"))
    return findings


def stacks(evidence: Evidence) -> list[Finding]:
    """Refuse a cluster whose cards a GPUCluster offers by DRA: it and ClusterPolicy exclude each other."""
    inventory = evidence.inventory
    if not asked(inventory) or not evidence.covers(API):
        return []
    listing = View(evidence.snapshot(API)).answer_as(GPU_CLUSTERS, Listing)
    if isinstance(listing, Unknown):
        return [UnknownYet(f"whether there is a GPUCluster: {listing.reason}", SUBJECT)]
    if not listing.objects:
        return []
    names = ", ".join(live.name for live in listing.objects)
    summary = f"GPUCluster {names} offers cards by DRA, and the declared operator brings a ClusterPolicy"
    remedy = "remove it first: `kubectl delete gpucluster NAME`, or remove `gpu.operator` from the inventory"
    return [_refused(inventory, "GPU_STACKS_BOTH", summary, remedy, "operator")]


def asked(inventory: Inventory) -> tuple[Any, ...]:
    """Return what these rules ask of the cluster: the other stack, where an operator is declared."""
    is_declared = inventory.gpu is not None and inventory.gpu.operator is not None
    return (GPU_CLUSTERS,) if is_declared and has_cluster(inventory) else ()


RULES = (
    Rule(
        ("GPU_STACKS_BOTH",),
        "a GPUCluster offers the cards by DRA, which excludes the ClusterPolicy of the declared operator",
        "remove it first: `kubectl delete gpucluster NAME`, or remove `gpu.operator` from the inventory",
        stacks,
    ),
    Rule(
        ("TOOLKIT_NEEDS_OPERATOR", "TOOLKIT_VALUES_CONFLICT", "CDI_NRI_CONFLICT"),
        "`gpu.toolkit` and the values of the GPU Operator's chart disagree, or the values remove the"
        " RuntimeClass `nvidia` that pods of other charts name",
        "declare `gpu.operator`, or remove `toolkit` and `cdi.nriPluginEnabled` from `gpu.operator.values`",
        toolkit,
    ),
)
