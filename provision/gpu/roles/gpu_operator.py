"""The GPU Operator: its chart, with the driver on the hosts, and the proof that pods get the cards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from provision.contracts.downloads import Download
from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.resource import Resource
from provision.contracts.role import Context, Need, Role
from provision.gpu.gpu_effects import GPU_PODS_LOSE_DEVICE
from provision.gpu.mps import MpsCleared, MpsState
from provision.gpu.operator_values import (
    RESOURCE,
    cards_of,
    gpu_nodes,
    has_operator_toolkit,
    mig_profiles,
    operator_values,
    owns_nfd,
    slots,
    uses_stock_plugin,
)
from provision.gpu.resources.mig import CONFIG, MigConfig
from provision.gpu.resources.runtime import ContainerRuntime
from provision.gpu.resources.stack import Cards, GpuStack
from provision.hosts.names import ssh
from provision.inventory import Inventory, Subject
from provision.inventory.models.cluster import Operator
from provision.k3s.k3s_effects import RESTART_K3S
from provision.k3s.runtimes import NvidiaRuntime
from provision.kube.back_ends import helm_absent, helm_release
from provision.kube.charts import DeclaredChart, chart_download, operator_chart
from provision.kube.distribution import require_k3s
from provision.kube.facts import NODES
from provision.kube.kinds import CRD, NAMESPACE
from provision.kube.names import API, PRIVILEGED, has_cluster, is_member
from provision.kube.node_features import NFD_CRDS, NFD_TRACES
from provision.kube.ownership import FEATURES, home_labels, homes_on, is_ours, left_homes
from provision.kube.queries import ServerVersion, object_query
from provision.kube.resources.foreign import ForeignContents
from provision.kube.resources.node_traces import NodeTraces
from provision.kube.resources.object import KubeAbsent, kube_object

ROLE_NAME = "gpu_operator"
CHART = "gpu-operator"
REPOSITORY = "https://helm.ngc.nvidia.com/nvidia"
CRDS = {"clusterpolicies.nvidia.com": "v1", "nvidiadrivers.nvidia.com": "v1alpha1"}
"""What the chart defines, with the version of each."""
SOURCE = ("gpu", "operator")


def _operator(inventory: Inventory) -> Operator | None:
    return inventory.gpu.operator if inventory.gpu is not None else None


def namespace_of(inventory: Inventory) -> str:
    """Return the operator's namespace."""
    operator = _operator(inventory)
    return (operator.namespace if operator is not None else None) or CHART


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the cluster gets the operator."""
    return subject.kind == "cluster" and _operator(inventory) is not None and has_cluster(inventory)


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask for the distribution, and nodes for the operator's runtime and for what MPS has left."""
    del subject
    home = object_query(NAMESPACE, namespace_of(inventory))
    runtime = (NvidiaRuntime(),) if has_operator_toolkit(inventory) else ()
    mps = () if _shares_by_mps(inventory) else (MpsState(),)
    return {API: (ServerVersion(), home), **dict.fromkeys(member_systems(inventory), (*runtime, *mps))}


def member_systems(inventory: Inventory) -> tuple[str, ...]:
    """Return the nodes of the cluster whose cards pods get."""
    return tuple(ssh(node.name) for node in gpu_nodes(inventory) if is_member(inventory, node))


def toolkit_systems(inventory: Inventory) -> tuple[str, ...]:
    """Return the nodes on which the operator installs the toolkit."""
    return member_systems(inventory) if has_operator_toolkit(inventory) else ()


def _shares_by_mps(inventory: Inventory) -> bool:
    return inventory.sharing is not None and inventory.sharing.mode == "mps"


def resources(context: Context) -> Sequence[Resource]:
    """Return namespace, release, and the proof.

    Raises:
        Permanent: the cluster is of a distribution that nobody has run this on.
        NotYet: the API does not answer yet.
    """
    inventory = context.inventory
    operator = _operator(inventory)
    if operator is None:
        return ()
    require_k3s(context, "gpu.operator")
    namespace, source = namespace_of(inventory), inventory.source(SOURCE)
    # Operands mount host paths: a stricter namespace refuses their pods, and only events say so.
    labels = {**PRIVILEGED, **home_labels(CHART, has_features=owns_nfd(inventory))}
    return (
        kube_object(API, NAMESPACE, namespace, role=ROLE_NAME, labels=labels, source=source),
        helm_release(
            inventory,
            _chart(operator),
            namespace,
            operator_values(inventory),
            ROLE_NAME,
            affected=((API, NODES), *((system, NvidiaRuntime()) for system in toolkit_systems(inventory))),
            source_path=SOURCE,
        ),
        *_runtimes(context),
        *_mig(inventory),
        # Under HAMi the validator fails until HAMi offers cards: the proof comes after it, in its role.
        *((stack(inventory),) if uses_stock_plugin(inventory) else ()),
        *_mps(context),
    )


def _runtimes(context: Context) -> Iterator[Resource]:
    """Yield the restarts of k3s, one node after the other; a node that is silent keeps no other waiting."""
    source = context.inventory.source(("gpu", "toolkit"))
    for system in toolkit_systems(context.inventory):
        if not isinstance(context.answer(system, NvidiaRuntime()), Unknown):
            # Asked before the wait: without the restart nothing after it could become ready.
            yield ContainerRuntime(system, risks=(Effect(RESTART_K3S),), source=source)


def _mps(context: Context) -> Iterator[Resource]:
    """Yield the removal of what MPS has left, once its server has no pod; silent nodes are left out."""
    source = context.inventory.source(("sharing", "mode"))
    for system in () if _shares_by_mps(context.inventory) else member_systems(context.inventory):
        if not isinstance(context.answer(system, MpsState()), Unknown):
            yield MpsCleared(system, source=source)


def _mig(inventory: Inventory) -> Iterator[Resource]:
    """Yield how cards are divided, before the proof that looks at what nodes offer."""
    profiles = mig_profiles(inventory)
    rows = tuple((cards, profiles[cards.node]) for cards in _all_cards(inventory) if cards.node in profiles)
    if rows:
        yield MigConfig(API, rows, source=inventory.source((*SOURCE, "mig")))


def downloads(inventory: Inventory) -> Iterator[Download]:
    """Yield the chart, which `provision pin` pins."""
    operator = _operator(inventory)
    if operator is not None and has_cluster(inventory):
        yield chart_download(inventory, _chart(operator), operator_values(inventory))


def stack(inventory: Inventory) -> GpuStack:
    """Return the proof that the operator has done its work."""
    return GpuStack(API, namespace_of(inventory), _all_cards(inventory), source=inventory.source(SOURCE))


def _all_cards(inventory: Inventory) -> tuple[Cards, ...]:
    """Return the cards of each node; of divided cards it is the MIG manager that says what there is."""
    profiles = mig_profiles(inventory)
    rows = []
    for node in gpu_nodes(inventory):
        count = 0 if profiles.get(node.name, "all-disabled") != "all-disabled" else cards_of(node)
        offered = count * slots(inventory) if uses_stock_plugin(inventory) else 0
        rows.append(Cards(node.name, node.kubernetes_name, node.address, count, offered))
    return tuple(rows)


def _chart(operator: Operator) -> DeclaredChart:
    return operator_chart(CHART, operator, REPOSITORY, SOURCE)


def retired(context: Context) -> Sequence[Resource]:
    """Return what destroy removes: release with policy, CRDs, what is left on nodes, and namespace.

    The namespace goes last, as its label says that all of it is ours.
    """
    inventory, namespace = context.inventory, namespace_of(context.inventory)
    if not is_ours(context, namespace, ROLE_NAME):
        return ()
    return tuple(_gone(inventory, namespace, has_nfd=owns_nfd(inventory)))


def _gone(
    inventory: Inventory, namespace: str, *, has_nfd: bool, risks: tuple[Effect, ...] = ()
) -> Iterator[Resource]:
    """Yield what goes with the operator, after a look at what others would lose with it."""
    definitions = {**CRDS, **(NFD_CRDS if has_nfd else {})}
    yield ForeignContents(API, CHART, namespace, tuple(definitions.items()))
    yield helm_absent(inventory, CHART, namespace, risks)
    for name in definitions:
        yield KubeAbsent(API, CRD, "", name)
    # What HAMi's plugin offers has the same name.
    is_offered = inventory.sharing is not None and inventory.sharing.mode == "hami"
    prefixes = ("nvidia.com/", *(NFD_TRACES if has_nfd else ()))
    yield NodeTraces(
        API, ROLE_NAME, prefixes, kept=(RESOURCE,) if is_offered and risks else (), own=(CONFIG,)
    )
    yield KubeAbsent(API, NAMESPACE, "", namespace)


def unchosen(context: Context) -> Sequence[Resource]:
    """Return what we installed and the inventory no longer declares, or declares in another namespace.

    Node Feature Discovery stays where the network operator is declared: its chart takes it over, and helm
    brings no CRDs with an upgrade.
    """
    inventory = context.inventory
    declared = namespace_of(inventory) if _operator(inventory) is not None else ""
    needs_nfd = bool(declared) or (inventory.rdma is not None and inventory.rdma.operator is not None)
    resources: list[Resource] = []
    for home in left_homes(context, CHART, declared):
        has_nfd = home.labels.get(FEATURES) == "true" and not needs_nfd
        resources += _gone(inventory, home.name, has_nfd=has_nfd, risks=(Effect(GPU_PODS_LOSE_DEVICE),))
    return resources


ROLE = Role(
    name=ROLE_NAME,
    needs=(
        Need("k3s_server", "any", "site"),
        Need("k3s_agent", "any", "site"),
        Need("gpu_driver", "any", "site"),
        # Its plugin must not come back beside that of a mode whose removal waits for consent.
        "gpu_sharing:retire",
    ),
    declared=declared,
    questions=questions,
    optional=lambda inventory, _subject: member_systems(inventory),
    resources=resources,
    retired=retired,
    unchosen=unchosen,
    unchosen_on=homes_on,
)
