"""How pods share cards: HAMi or KAI Scheduler, exactly one of them, and what was chosen before is removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from provision.contracts.downloads import Download
from provision.contracts.effect import Effect
from provision.contracts.resource import Resource
from provision.contracts.role import Context, Need, Questions, Role
from provision.gpu.gpu_effects import GPU_PODS_LOSE_DEVICE
from provision.gpu.operator_values import RESOURCE, cards_of, gpu_nodes
from provision.gpu.resources.stack import Cards
from provision.gpu.roles.gpu_operator import namespace_of, stack
from provision.inventory import Inventory, Subject
from provision.inventory.models.cluster import Sharing
from provision.kube.back_ends import helm_absent, helm_release
from provision.kube.charts import DeclaredChart, chart_download
from provision.kube.distribution import require_k3s
from provision.kube.facts import NODES
from provision.kube.kinds import CRD, DAEMON_SET, NAMESPACE, RUNTIME_CLASS
from provision.kube.names import API, PRIVILEGED, has_cluster, labels_of, selector_of
from provision.kube.ownership import HOMES, homes_on
from provision.kube.queries import Listing, Live, ServerVersion, object_query
from provision.kube.resources.node_traces import NodeTraces
from provision.kube.resources.object import KubeAbsent, KubePruned, kube_object
from provision.sharing import fractions, names
from provision.sharing.hami import hami_values, slots
from provision.sharing.kai import kai_values, queue_specs
from provision.sharing.names import ROLE_NAME
from provision.sharing.resources.mark import NodeMark
from provision.sharing.resources.stack import FractionsStack, HamiStack, KaiStack

SOURCE = ("sharing",)
STOCK_PLUGINS = ("nvidia-device-plugin-daemonset", "nvidia-device-plugin-mps-control-daemon")
"""DaemonSets by which the GPU Operator offers cards."""
_COST = (Effect(GPU_PODS_LOSE_DEVICE),)
RUNTIME = object_query(RUNTIME_CLASS, "nvidia")
FRACTION_TRACES = ("gpu-fractioning.kai.scheduler/", "gpu-fractioning.nvidia.com/")
MODES = ("hami", "kai", fractions.MODE)
"""Modes of this role; `time_slicing` and `mps` are values of the GPU Operator."""


def _mode(inventory: Inventory) -> str:
    return inventory.sharing.mode if inventory.sharing is not None else "none"


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the cluster gets a mode of this role."""
    return subject.kind == "cluster" and _mode(inventory) in MODES and has_cluster(inventory)


def questions(inventory: Inventory, subject: Subject) -> Questions:
    """Ask for the distribution, for what is ours, and for the runtime that HAMi's plugin names."""
    del subject
    runtime = (RUNTIME,) if _mode(inventory) == "hami" else ()
    return {API: (ServerVersion(), HOMES, *runtime)}


def resources(context: Context) -> Sequence[Resource]:
    """Return what the mode needs, its chart, and the proof.

    Raises:
        Permanent: the cluster is of a distribution that nobody has run this on.
        NotYet: the API does not answer yet.
    """
    sharing = context.inventory.sharing
    if sharing is None or sharing.mode not in MODES:
        return ()
    version = require_k3s(context, "sharing")
    if sharing.mode == "hami":
        return tuple(_hami(context, sharing, version))
    if sharing.mode == fractions.MODE:
        return (*_fractions(context.inventory, sharing), *_queues(context.inventory, sharing))
    return (*_kai(context.inventory, sharing), *_queues(context.inventory, sharing))


def _hami(context: Context, sharing: Sharing, version: str) -> Iterator[Resource]:
    inventory = context.inventory
    source = inventory.source(SOURCE)
    nodes = gpu_nodes(inventory)
    has_operator = inventory.gpu is not None and inventory.gpu.operator is not None
    if has_operator:
        # The operator deletes its plugin some time after its values have changed: never both.
        for name in STOCK_PLUGINS:
            yield KubeAbsent(API, DAEMON_SET, namespace_of(inventory), name, risks=_COST, source=source)
    marks = tuple((node.kubernetes_name, node.address) for node in nodes)
    yield NodeMark(API, *names.HAMI_LABEL, marks, source=source)
    yield kube_object(API, NAMESPACE, names.HAMI_NAMESPACE, role=ROLE_NAME, labels=PRIVILEGED, source=source)
    runtime: Live | None = context.require(API, RUNTIME, may_be_absent=True)
    if not has_operator and (runtime is None or _is_ours(runtime)):
        # A GPU Operator that went has taken that of k3s along, which makes it again only when it starts.
        fields = {"handler": RUNTIME.name}
        yield kube_object(API, RUNTIME_CLASS, RUNTIME.name, fields, role=ROLE_NAME, source=source)
    values = hami_values(inventory, version)
    yield _release(_chart(sharing, names.HAMI), names.HAMI_NAMESPACE, values, inventory)
    yield HamiStack(API, _cards(inventory, slots(inventory)), source=source)
    if has_operator:
        yield stack(inventory)  # its validator fails until HAMi offers cards


def _kai_home(inventory: Inventory, sharing: Sharing) -> Resource:
    labels = {names.MODE_LABEL: sharing.mode}
    source = inventory.source(SOURCE)
    return kube_object(API, NAMESPACE, names.KAI_NAMESPACE, role=ROLE_NAME, labels=labels, source=source)


def _fractions(inventory: Inventory, sharing: Sharing) -> Iterator[Resource]:
    """Yield KAI's fork, what enforces its fractions, and the proof of both: each waits for the other."""
    source = inventory.source(SOURCE)
    kai, fractioning = fractions.charts(sharing)
    yield _kai_home(inventory, sharing)
    yield _release(kai, names.KAI_NAMESPACE, fractions.kai_fork_values(sharing), inventory)
    # The daemons share the host's IPC and its paths.
    yield kube_object(API, NAMESPACE, fractions.NAMESPACE, role=ROLE_NAME, labels=PRIVILEGED, source=source)
    yield _release(fractioning, fractions.NAMESPACE, fractions.fractioning_values(sharing), inventory)
    yield FractionsStack(API, _cards(inventory, 1), fractions=True, source=source)


def _kai(inventory: Inventory, sharing: Sharing) -> Iterator[Resource]:
    source = inventory.source(SOURCE)
    yield _kai_home(inventory, sharing)
    yield _release(_chart(sharing, names.KAI), names.KAI_NAMESPACE, kai_values(sharing), inventory)
    yield KaiStack(API, _cards(inventory, 1), fractions=bool(sharing.fractions), source=source)


def _queues(inventory: Inventory, sharing: Sharing) -> Iterator[Resource]:
    specs = queue_specs(sharing)
    for name, spec in specs.items():
        path = (*SOURCE, "queues", name) if name in sharing.queues else (*SOURCE, "default_queues")
        yield kube_object(
            API,
            names.QUEUE,
            name,
            {"spec": spec},
            role=ROLE_NAME,
            force=name in {names.DEFAULT_PARENT, names.DEFAULT_QUEUE},  # the chart has made them
            source=inventory.source(path),
        )
    yield _queues_gone(sorted({*specs, names.DEFAULT_PARENT, names.DEFAULT_QUEUE}))


def _chart(sharing: Sharing, name: str) -> DeclaredChart:
    repository = {names.HAMI: names.HAMI_REPOSITORY, names.KAI: names.KAI_REPOSITORY}[name]
    return DeclaredChart(name, sharing.version or "", repository, (*SOURCE, "version"), has_file_key=False)


def downloads(inventory: Inventory) -> Iterator[Download]:
    """Yield the chart of the mode, which `provision pin` pins."""
    sharing = inventory.sharing
    if sharing is None or sharing.mode not in MODES or not has_cluster(inventory):
        return
    if sharing.mode == fractions.MODE:
        kai, fractioning = fractions.charts(sharing)
        yield chart_download(inventory, kai, fractions.kai_fork_values(sharing))
        yield chart_download(inventory, fractioning, fractions.fractioning_values(sharing))
    elif sharing.mode == "hami":
        version = inventory.k3s.version if inventory.k3s is not None else ""
        yield chart_download(inventory, _chart(sharing, names.HAMI), hami_values(inventory, version))
    else:
        yield chart_download(inventory, _chart(sharing, names.KAI), kai_values(sharing))


def _release(
    chart: DeclaredChart, namespace: str, values: Mapping[str, Any], inventory: Inventory
) -> Resource:
    return helm_release(
        inventory, chart, namespace, values, ROLE_NAME, affected=((API, NODES),), source_path=SOURCE
    )


def _cards(inventory: Inventory, times: int) -> tuple[Cards, ...]:
    return tuple(
        Cards(node.name, node.kubernetes_name, node.address, cards_of(node), cards_of(node) * times)
        for node in gpu_nodes(inventory)
    )


# ------------------------------------------------------------ what goes


def _is_ours(live: Live) -> bool:
    return labels_of(ROLE_NAME).items() <= live.labels.items()


def _queues_gone(kept: Iterable[str] = ()) -> Resource:
    """Return that our queues are not there, but for some: a queue with children is not deleted."""
    return KubePruned(API, names.QUEUE, "", selector_of(ROLE_NAME), tuple(kept), parent="parentQueue")


def _hami_traces(inventory: Inventory) -> tuple[str, ...]:
    """Return whose keys HAMi leaves on nodes; the GPU Operator's plugin goes on with the same resource."""
    has_operator = inventory.gpu is not None and inventory.gpu.operator is not None
    return ("hami.io/",) if has_operator else ("hami.io/", RESOURCE)


def _gone(context: Context, kept: str, risks: tuple[Effect, ...]) -> Iterator[Resource]:
    """Yield what all modes but one have brought, if it was us: the namespace with our label goes last."""
    listing: Listing = context.require(API, HOMES, "cannot see which sharing mode is installed")
    ours = {live.name: live.labels for live in listing.objects if _is_ours(live)}
    for mode, query in names.HOMES.items():
        labels = ours.get(query.name)
        if labels is None or mode == kept != "kai":
            continue
        if mode == "kai" and labels.get(names.MODE_LABEL, "kai") == kept:
            continue
        removal = {"hami": _hami_gone, "kai": _kai_gone, fractions.MODE: _fractions_gone}[mode]
        yield from removal(context, risks)


def _fractions_gone(context: Context, risks: tuple[Effect, ...]) -> Iterator[Resource]:
    # While its operator lives: the configuration has a finalizer that cleans the nodes.
    yield KubeAbsent(API, fractions.CONFIG, "", "default", risks=risks)
    for name in fractions.DAEMONS:
        yield KubeAbsent(API, DAEMON_SET, fractions.NAMESPACE, name)
    yield helm_absent(context.inventory, fractions.CHART, fractions.NAMESPACE, risks)
    yield KubeAbsent(API, CRD, "", fractions.CONFIG_CRD)
    yield NodeTraces(API, fractions.MODE, FRACTION_TRACES)
    yield KubeAbsent(API, NAMESPACE, "", fractions.NAMESPACE)


def _hami_gone(context: Context, risks: tuple[Effect, ...]) -> Iterator[Resource]:
    yield helm_absent(context.inventory, names.HAMI, names.HAMI_NAMESPACE, risks)
    # A webhook that is left alters or blocks pods; the plugin's pods end after its release.
    yield KubeAbsent(API, names.WEBHOOK, "", names.HAMI_WEBHOOK)
    yield KubeAbsent(API, DAEMON_SET, names.HAMI_NAMESPACE, names.HAMI_PLUGIN)
    yield NodeMark(API, *names.HAMI_LABEL)
    yield NodeTraces(API, names.HAMI, _hami_traces(context.inventory))
    yield KubeAbsent(API, NAMESPACE, "", names.HAMI_NAMESPACE)


def _kai_gone(context: Context, risks: tuple[Effect, ...]) -> Iterator[Resource]:
    yield _queues_gone()
    yield helm_absent(context.inventory, names.KAI, names.KAI_NAMESPACE, risks)
    for kind, name in names.KAI_WEBHOOKS:
        yield KubeAbsent(API, kind, "", name)
    for namespace in names.KAI_NAMESPACES:
        yield KubeAbsent(API, NAMESPACE, "", namespace)
    for name in names.KAI_CRDS:
        yield KubeAbsent(API, CRD, "", name)
    yield KubeAbsent(API, NAMESPACE, "", names.KAI_NAMESPACE)


def unchosen(context: Context) -> Sequence[Resource]:
    """Return what a mode that is not declared any more has brought."""
    return tuple(_gone(context, _mode(context.inventory), _COST))


def retired(context: Context) -> Sequence[Resource]:
    """Return what destroy removes: queues and release, then CRDs, labels and namespaces."""
    return tuple(_gone(context, "", ()))


ROLE = Role(
    name=ROLE_NAME,
    needs=(
        Need("k3s_server", "any", "site"),
        Need("k3s_agent", "any", "site"),
        Need("gpu_operator"),
    ),
    declared=declared,
    questions=questions,
    resources=resources,
    retired=retired,
    unchosen=unchosen,
    unchosen_on=homes_on,
)
