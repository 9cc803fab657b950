"""Rules about what else shares cards: two of a kind give the same card away twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule, UnknownYet
from provision.gpu.operator_values import operator_values
from provision.gpu.roles.gpu_operator import namespace_of
from provision.hosts.view import View
from provision.inventory import Inventory
from provision.kube.kinds import DAEMON_SET
from provision.kube.names import API, SUBJECT, has_cluster, labels_of
from provision.kube.queries import Listing, Live, list_query
from provision.kube.releases import HelmReleases, Release
from provision.sharing import card_preflight, fractions_preflight, names
from provision.sharing.kai import looping
from provision.values.diagnostics import Diagnostic

PLUGINS = list_query(DAEMON_SET)
_UNTOUCHED = "Nothing was changed."
_OPERATOR_MODES = ("time_slicing", "mps", "kai", "kai_fractions")
_EXCLUSIVE: Mapping[str, tuple[str, ...]] = {
    "nvidia-device-plugin": ("none", "time_slicing", "mps", "hami", "kai", "kai_fractions"),
    names.HAMI: ("none", "time_slicing", "mps", "kai", "kai_fractions"),
    names.KAI: ("time_slicing", "mps", "hami", "kai_fractions"),
    "kai-resource-isolator": ("time_slicing", "mps", "hami", "kai", "kai_fractions"),
    "gpu-fractioning": ("time_slicing", "mps", "hami", "kai"),
}
"""Charts that divide cards, and the modes that exclude them."""


def _mode(inventory: Inventory) -> str | None:
    """Return the mode that is declared for a cluster; None where nothing is."""
    sharing = inventory.sharing
    return sharing.mode if sharing is not None and has_cluster(inventory) else None


def _refused(
    inventory: Inventory, code: str, summary: str, remedy: str, *rows: str, key: str = "mode"
) -> Diagnostic:
    source = inventory.source(("sharing", key))
    return Diagnostic(
        code, summary, SUBJECT, evidence=rows, source=source, untouched=_UNTOUCHED, remedy=remedy
    )


def combination(evidence: Evidence) -> list[Finding]:
    """Refuse what excludes the mode in the inventory itself."""
    inventory = evidence.inventory
    mode, gpu = _mode(inventory), inventory.gpu
    if mode is None or not evidence.covers(API):
        return []
    findings: list[Finding] = []
    operator = gpu.operator if gpu is not None else None
    if mode in _OPERATOR_MODES and operator is None:
        summary = f"sharing mode {mode} needs the GPU Operator, whose device plugin offers the cards"
        remedy = "declare `gpu.operator`, or `sharing.mode: hami`, which brings a device plugin"
        findings.append(_refused(inventory, "SHARING_NEEDS_OPERATOR", summary, remedy))
    plugin = operator_values(inventory)["devicePlugin"]
    if mode == "hami" and operator is not None and plugin.get("enabled") is not False:
        summary = "gpu.operator.values turn on the operator's device plugin, and HAMi brings its own"
        remedy = "remove `devicePlugin.enabled` from `gpu.operator.values`"
        findings.append(_refused(inventory, "SHARING_TWO_PLUGINS", summary, remedy))
    loop = looping(inventory)
    if loop:
        summary = f"queues are their own ancestors: {', '.join(loop)}"
        remedy = "remove `parent` of one of them in `sharing.queues`"
        findings.append(_refused(inventory, "SHARING_QUEUE_LOOP", summary, remedy, key="queues"))
    return findings


def foreign(evidence: Evidence) -> list[Finding]:
    """Refuse a device plugin, an isolator or a scheduler of cards that we have not installed."""
    inventory = evidence.inventory
    mode = _mode(inventory)
    if mode is None or not evidence.covers(API):
        return []
    snapshot = evidence.snapshot(API)
    view = View(snapshot)
    releases, plugins = view.answer(HelmReleases()), view.answer_as(PLUGINS, Listing)
    homes = {query.name: view.answer(query) for query in names.HOMES.values()}
    for answer in (releases, plugins, *homes.values()):
        if isinstance(answer, Unknown):
            return [UnknownYet(f"what shares cards in the cluster: {answer.reason}", SUBJECT)]
    ours = {name for name, live in homes.items() if isinstance(live, Live) and _is_ours(live)}
    rows = [*_releases(releases, mode, ours)] if isinstance(releases, tuple) else []
    if isinstance(plugins, Listing):
        rows += _plugins(plugins, mode, {*ours, namespace_of(inventory)})
    if not rows:
        return []
    summary = f"something else than sharing mode {mode} divides or offers the cards of this cluster"
    remedy = "remove it first: `helm uninstall NAME -n NAMESPACE`, or `kubectl delete daemonset`"
    return [_refused(inventory, "SHARING_FOREIGN_ISOLATOR", summary, remedy, *rows)]


def _is_ours(live: Live) -> bool:
    return labels_of(names.ROLE_NAME).items() <= live.labels.items()


def _releases(releases: tuple[Release, ...], mode: str, ours: set[str]) -> Iterator[str]:
    for release in releases:
        if mode in _EXCLUSIVE.get(release.chart, ()) and release.namespace not in ours:
            yield f"release {release.namespace}/{release.name} of chart {release.chart} {release.version}"


def _plugins(listing: Listing, mode: str, ours: set[str]) -> Iterator[str]:
    """Yield DaemonSets that offer cards, however they were installed."""
    for live in listing.objects:
        namespace = str(live.metadata.get("namespace") or "")
        is_hami = live.labels.get("app.kubernetes.io/component") == names.HAMI_PLUGIN
        is_stock = live.name.startswith("nvidia-device-plugin") or (
            live.labels.get("app.kubernetes.io/name") == "nvidia-device-plugin"
        )
        if namespace not in ours and (is_stock or (is_hami and mode != "hami")):
            yield f"DaemonSet {namespace}/{live.name}"


def evidence(inventory: Inventory) -> dict[str, tuple[Any, ...]]:
    """Return what these rules ask: DaemonSets and releases of the whole cluster, and what is ours."""
    if _mode(inventory) is None:
        return card_preflight.evidence(inventory)
    asked: dict[str, tuple[Any, ...]] = {API: (PLUGINS, HelmReleases(), *names.HOMES.values())}
    for rules in (fractions_preflight, card_preflight):
        for system, queries in rules.evidence(inventory).items():
            asked[system] = (*asked.get(system, ()), *queries)
    return asked


RULES = (
    Rule(
        ("SHARING_NEEDS_OPERATOR", "SHARING_TWO_PLUGINS", "SHARING_QUEUE_LOOP"),
        "the sharing mode lacks the device plugin that it needs, or would get a second one; or a queue is its"
        " own ancestor",
        "declare `gpu.operator`, remove `devicePlugin.enabled` from its values, or a `parent` of the queues",
        combination,
    ),
    Rule(
        ("SHARING_FOREIGN_ISOLATOR",),
        "the cluster has a device plugin, an isolator or a scheduler of cards that excludes the declared"
        " mode, and is not of this inventory",
        "remove it first: `helm uninstall NAME -n NAMESPACE`, or `kubectl delete daemonset`",
        foreign,
    ),
    *fractions_preflight.RULES,
    *card_preflight.RULES,
)
