"""Rules about GPU fractions over MPS: what they need of versions, of nodes, and of the pods beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule, UnknownYet
from provision.gpu.operator_values import RESOURCE, gpu_nodes
from provision.hosts.names import ssh
from provision.hosts.view import View
from provision.inventory import Inventory
from provision.k3s.runtimes import NvidiaRuntime, RuntimeStatus
from provision.kube.facts import NODES, find_node, node_fact
from provision.kube.kinds import NAMESPACE, POD
from provision.kube.names import API, SUBJECT, has_cluster
from provision.kube.queries import Listing, Live, list_query
from provision.sharing import names
from provision.sharing.fractions import MODE, OPERATOR_MINIMUM
from provision.values.diagnostics import Diagnostic

PODS, NAMESPACES = list_query(POD), list_query(NAMESPACE)
CONTAINER = "main"
"""Name of the container that gets the fraction."""
FRACTION_KEYS = ("gpu-fraction", "gpu-memory")
ENFORCE = "pod-security.kubernetes.io/enforce"
_CONTAINERD_2 = {31: 6, 32: 2}
"""The first patch releases of k3s with containerd 2, by minor version; later ones have it from the start."""


def _applies(evidence: Evidence) -> bool:
    inventory = evidence.inventory
    is_mode = inventory.sharing is not None and inventory.sharing.mode == MODE
    return is_mode and has_cluster(inventory) and evidence.covers(API)


def _refused(
    inventory: Inventory, code: str, summary: str, remedy: str, *rows: str, path: tuple[str, ...]
) -> Diagnostic:
    source = inventory.source(path)
    untouched = "Nothing was changed."
    return Diagnostic(
        code, summary, SUBJECT, evidence=rows, source=source, untouched=untouched, remedy=remedy
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"[0-9]+", version.partition("+")[0])[:3]))


def versions(evidence: Evidence) -> list[Finding]:
    """Refuse an operator or a k3s that is too old for fractions."""
    inventory = evidence.inventory
    if not _applies(evidence):
        return []
    findings: list[Finding] = []
    operator = inventory.gpu.operator if inventory.gpu is not None else None
    if operator is not None and _numbers(operator.version) < _numbers(OPERATOR_MINIMUM):
        summary = f"GPU Operator {operator.version}: fractions need {OPERATOR_MINIMUM} or newer"
        remedy = f"declare `gpu.operator.version: {OPERATOR_MINIMUM}`"
        path = ("gpu", "operator", "version")
        findings.append(_refused(inventory, "FRACTIONS_TOO_OLD", summary, remedy, path=path))
    release = _numbers(inventory.k3s.version) if inventory.k3s is not None else ()
    if release and (release[1] < min(_CONTAINERD_2) or release[2] < _CONTAINERD_2.get(release[1], 0)):
        summary = "fractions need containerd 2, which k3s has since v1.31.6 and v1.32.2"
        remedy = "declare a newer `k3s.version`, and run `provision apply INVENTORY --playbook upgrade-k3s`"
        findings.append(_refused(inventory, "FRACTIONS_TOO_OLD", summary, remedy, path=("k3s", "version")))
    return findings


def interface(evidence: Evidence) -> list[Finding]:
    """Refuse nodes whose containerd runs without the Node Resource Interface."""
    inventory = evidence.inventory
    if not _applies(evidence):
        return []
    without = []
    for node in gpu_nodes(inventory):
        system = ssh(node.name)
        snapshot = evidence.snapshots.get(system)
        status = View(snapshot).answer(NvidiaRuntime()) if snapshot is not None else None
        if (
            evidence.covers(system)
            and isinstance(status, RuntimeStatus)
            and status.runs
            and not status.has_nri
        ):
            without.append(node.name)
    if not without:
        return []
    summary = f"containerd serves no Node Resource Interface on {', '.join(without)}"
    remedy = "remove what turns off `io.containerd.nri.v1.nri` in config-v3.toml.tmpl of k3s's containerd"
    return [_refused(inventory, "FRACTIONS_NO_NRI", summary, remedy, path=("sharing", "mode"))]


def pods(evidence: Evidence) -> list[Finding]:
    """Refuse pods that take whole cards of GPU nodes, and pods with fractions that nothing can enforce."""
    inventory = evidence.inventory
    if not _applies(evidence):
        return []
    view = View(evidence.snapshot(API))
    listing, nodes, namespaces = (view.answer_as(query, Listing) for query in (PODS, NODES, NAMESPACES))
    for answer in (listing, nodes, namespaces):
        if isinstance(answer, Unknown):
            return [UnknownYet(f"pods on GPU nodes: {answer.reason}", SUBJECT)]
    if isinstance(listing, Unknown) or isinstance(nodes, Unknown) or isinstance(namespaces, Unknown):
        return []
    facts = tuple(map(node_fact, nodes.objects))
    cards = {fact.name for node in gpu_nodes(inventory) if (fact := find_node(facts, node)) is not None}
    strict = {live.name: live.labels.get(ENFORCE, "privileged") for live in namespaces.objects}
    rows = [
        f"{pod.metadata.get('namespace')}/{pod.name}: {why}"
        for pod in listing.objects
        if not _has_ended(pod)
        for why in unfit(pod.body, cards, strict)
    ]
    if not rows:
        return []
    summary = f"{len(rows)} pods exclude GPU fractions, or cannot have one"
    remedy = "correct these pods, or delete them with `kubectl delete pod`, then run the command again"
    return [_refused(inventory, "FRACTIONS_POD_UNFIT", summary, remedy, *rows[:20], path=("sharing", "mode"))]


def _has_ended(pod: Live) -> bool:
    return pod.is_terminating or pod.at("status", "phase") in {"Succeeded", "Failed"}


def unfit(body: Mapping[str, Any], gpu_nodes: set[str], strict: Mapping[str, str]) -> Iterator[str]:
    """Yield why a pod does not go together with fractions.

    Args:
        body: the pod.
        gpu_nodes: names of the Nodes with cards.
        strict: the enforced Pod Security level of each namespace.
    """
    metadata, spec = body.get("metadata") or {}, body.get("spec") or {}
    namespace = str(metadata.get("namespace") or "")
    containers = [item for item in spec.get("containers") or () if isinstance(item, Mapping)]
    wants_card = any(RESOURCE in (_limits(item)) for item in containers)
    if not any(key in (metadata.get("annotations") or {}) for key in FRACTION_KEYS):
        if wants_card and spec.get("nodeName") in gpu_nodes and namespace not in names.KAI_NAMESPACES:
            yield f"has whole cards of {spec['nodeName']}"
        return
    if wants_card:
        yield f"asks for {RESOURCE} beside a fraction"
    own = next((item for item in containers if item.get("name") == CONTAINER), None)
    if own is None:
        yield f"has no container {CONTAINER}"
    elif not _is_non_root(spec) and not _is_non_root(own):
        yield "may run as root, which can lift its own limit"
    if strict.get(namespace, "privileged") != "privileged":
        yield f"is in a namespace with the Pod Security level {strict[namespace]}"


def _limits(container: Mapping[str, Any]) -> Mapping[str, Any]:
    resources = container.get("resources")
    limits = resources.get("limits") if isinstance(resources, Mapping) else None
    return limits if isinstance(limits, Mapping) else {}


def _is_non_root(part: Mapping[str, Any]) -> bool:
    context = part.get("securityContext")
    if not isinstance(context, Mapping):
        return False
    user = context.get("runAsUser")
    return context.get("runAsNonRoot") is True or (isinstance(user, int) and user > 0)


def evidence(inventory: Inventory) -> dict[str, tuple[Any, ...]]:
    """Return what these rules ask: all pods and namespaces, and containerd of each GPU node."""
    if inventory.sharing is None or inventory.sharing.mode != MODE or not has_cluster(inventory):
        return {}
    hosts = {ssh(node.name): (NvidiaRuntime(),) for node in gpu_nodes(inventory)}
    return {API: (PODS, NAMESPACES, NODES), **hosts}


RULES = (
    Rule(
        ("FRACTIONS_TOO_OLD",),
        "the GPU Operator, or the containerd of k3s, is too old for GPU fractions",
        "declare `gpu.operator.version: v26.7.1` or newer, and a `k3s.version` with containerd 2",
        versions,
    ),
    Rule(
        ("FRACTIONS_NO_NRI",),
        "containerd of a GPU node serves no Node Resource Interface, by which fractions are enforced",
        "remove what turns off `io.containerd.nri.v1.nri` in config-v3.toml.tmpl of k3s's containerd",
        interface,
    ),
    Rule(
        ("FRACTIONS_POD_UNFIT",),
        "a pod has whole cards beside GPU fractions, or asks for a fraction that nothing can enforce: no"
        " container `main`, `nvidia.com/gpu` beside it, root, or a namespace stricter than privileged",
        "correct the pod, or delete it with `kubectl delete pod`",
        pods,
    ),
)
