"""The Network Operator: RDMA ports for pods, addresses and networks, and the proof that nodes offer them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from provision.contracts.downloads import Download
from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.resource import Resource
from provision.contracts.role import Context, Need, Questions, Role
from provision.gpu.gpu_effects import GPU_PODS_LOSE_DEVICE
from provision.hosts import names
from provision.hosts.queries.file import FileState
from provision.hosts.resources.file import File
from provision.inventory import Inventory, Subject
from provision.inventory.models.cluster import Operator, Rdma
from provision.k3s.cni_folders import CONFIGURATION
from provision.kube.back_ends import helm_absent, helm_release
from provision.kube.charts import DeclaredChart, chart_download, operator_chart
from provision.kube.distribution import require_k3s
from provision.kube.facts import NODES
from provision.kube.kinds import CRD, NAMESPACE
from provision.kube.names import API, PRIVILEGED, has_cluster, is_member, selector_of
from provision.kube.node_features import NFD_CRDS, NFD_TRACES
from provision.kube.ownership import FEATURES, home_labels, homes_on, is_ours, left_homes
from provision.kube.queries import ServerVersion, object_query
from provision.kube.resources.declared_release import INSTALL_SECONDS
from provision.kube.resources.foreign import ForeignContents
from provision.kube.resources.node_traces import NodeTraces
from provision.kube.resources.object import KubeAbsent, KubeObject, KubePruned, kube_object
from provision.rdma.facts import resolve
from provision.rdma.network_objects import (
    MACVLAN,
    POLICY,
    POLICY_NAME,
    POOL,
    PREFIX,
    SharedResource,
    brings_nfd,
    chart_values,
    chart_version,
    macvlan,
    namespaces_of,
    network_names,
    operator_of,
    policy,
    pool,
    pool_name,
    rail_nodes,
    used_rails,
)
from provision.rdma.queries import RdmaState
from provision.rdma.resources.network import NetworkStack, Offer
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent

ROLE_NAME = "network_operator"
CHART = "network-operator"
OWN_NAMESPACE = "nvidia-network-operator"
REPOSITORY = "https://helm.ngc.nvidia.com/nvidia"
CRDS = {
    **{
        f"{plural}.mellanox.com": "v1alpha1"
        for plural in (
            "macvlannetworks",
            "hostdevicenetworks",
            "ipoibnetworks",
            "nicnodepolicies",
            "nicclusterpolicies",
        )
    },
    "ippools.nv-ipam.nvidia.com": "v1alpha1",
    "cidrpools.nv-ipam.nvidia.com": "v1alpha1",
}
"""What the chart and the operator define, with the version of each."""
SOURCE = ("rdma", "operator")
MULTUS = f"{CONFIGURATION}/00-multus.conf"
_FIXED_CNI_FOLDER = {28: 15, 29: 10, 30: 6, 31: 2}
"""First release of each minor version of k3s whose folder of CNI programs survives an upgrade."""


def namespace_of(inventory: Inventory) -> str:
    """Return the operator's namespace."""
    operator = operator_of(inventory)
    return (operator.namespace if operator is not None else None) or OWN_NAMESPACE


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the cluster gets the operator."""
    return subject.kind == "cluster" and operator_of(inventory) is not None and has_cluster(inventory)


def _asked(inventory: Inventory) -> tuple[str, ...]:
    """Return the nodes whose interface of a rail only they know."""
    rdma = inventory.rdma
    if rdma is None:
        return ()
    nodes = {
        node.name: None
        for rail in used_rails(rdma)
        for node in rail_nodes(inventory, rail)
        if node.rails[rail].device is None
    }
    return tuple(nodes)


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask for the distribution, from which paths follow, and nodes for interfaces that are not declared."""
    del subject
    hosts = {names.ssh(name): (RdmaState(),) for name in _asked(inventory)}
    home = object_query(NAMESPACE, namespace_of(inventory))
    return {API: (ServerVersion(), home), **hosts}


def resources(context: Context) -> Sequence[Resource]:
    """Return namespaces, release, policy, pools and networks, what is declared no more, and the proof.

    Raises:
        Permanent: nobody has run this on the cluster's distribution, or names of interfaces differ.
        NotYet: the API, or a node, does not answer yet.
    """
    inventory = context.inventory
    rdma, operator = inventory.rdma, operator_of(inventory)
    if rdma is None or operator is None:
        return ()
    _check_distribution(context)
    masters = {rail: _masters(context, rail) for rail in used_rails(rdma)}
    namespace, source = namespace_of(inventory), inventory.source(SOURCE)
    # Operands mount host paths, and pods with RDMA lock memory: a stricter namespace refuses both, and only
    # events say so. The labels come before any pod does.
    home = home_labels(CHART, has_features=brings_nfd(inventory))
    spaces = {
        namespace: PRIVILEGED | home,
        **{one: PRIVILEGED for one in namespaces_of(rdma) if one != namespace},
    }
    release = helm_release(
        inventory,
        _chart(operator),
        namespace,
        chart_values(inventory),
        ROLE_NAME,
        affected=((API, NODES),),
        source_path=SOURCE,
    )
    shared = [
        SharedResource(name, one.pods_per_node, tuple(dict.fromkeys(masters[one.rail].values())))
        for name, one in sorted(rdma.resources.items())
        if masters[one.rail]  # without a name, the plugin would take every NIC
    ]
    nic_policy = kube_object(
        API,
        POLICY,
        POLICY_NAME,
        policy(inventory, shared),
        role=ROLE_NAME,
        seconds=0,
        affected=((API, NODES),),
        arrival=INSTALL_SECONDS,
        source=inventory.source(("rdma",)),
    )
    return (
        *(
            kube_object(API, NAMESPACE, one, role=ROLE_NAME, labels=labels, source=source)
            for one, labels in spaces.items()
        ),
        release,
        nic_policy,
        *_networks(context, rdma, namespace, masters),
        _stack(inventory, rdma, namespace, masters),
    )


def _masters(context: Context, rail: str) -> dict[str, str]:
    """Return the interface of a rail by node: as declared (preflight compares it), else as the node says."""
    masters: dict[str, str] = {}
    for node in rail_nodes(context.inventory, rail):
        device = node.rails[rail].device
        if device is None:
            source = context.inventory.source(("nodes", node.name, "rails"))
            what = f"cannot read the RDMA ports of {node.name}"
            status = context.require(names.ssh(node.name), RdmaState(), what, source)
            resolved = resolve(rail, node.rails[rail], node.rail_addresses.get(rail), status)
            if resolved.interface is None:
                raise Permanent(
                    Diagnostic(
                        "RAIL_MISSING",
                        f"rail {rail} of {node.name}: no interface has its address",
                        node.name,
                        source=source,
                        untouched="Nothing was changed in the cluster.",
                        remedy=f"Declare `nodes.{node.name}.rails.{rail}.device`, or set the address on it.",
                    )
                )
            device = resolved.interface.name
        masters[node.name] = device
    return masters


def _networks(
    context: Context, rdma: Rdma, namespace: str, masters: Mapping[str, Mapping[str, str]]
) -> Sequence[Resource]:
    """Return networks and pools, after those that are not declared any more are gone: networks first."""
    pools: list[KubeObject] = []
    networks: list[KubeObject] = []
    kept: list[str] = []
    for name, network in sorted(rdma.networks.items()):
        if network.pool is None or not masters[network.rail]:
            continue
        source = context.inventory.source(("rdma", "networks", name))
        pools.append(
            kube_object(
                API,
                POOL,
                pool_name(name),
                pool(network.pool),
                role=ROLE_NAME,
                namespace=namespace,
                seconds=0,
                arrival=INSTALL_SECONDS,
                source=source,
            )
        )
        master = _one_name(context, network.rail, masters[network.rail])
        for of, inner in network_names(name, network):
            fields = macvlan(network, inner, master, pool_name(name))
            kept.append(of)
            made = kube_object(
                API, MACVLAN, of, fields, role=ROLE_NAME, seconds=0, arrival=INSTALL_SECONDS, source=source
            )
            networks.append(made)
    keep = tuple(f"{namespace}/{one.place[1]}" for one in pools)
    selector = selector_of(ROLE_NAME)
    return (
        KubePruned(API, MACVLAN, "", selector, tuple(kept)),
        KubePruned(API, POOL, "", selector, keep),
        *pools,
        *networks,
    )


def _one_name(context: Context, rail: str, masters: Mapping[str, str]) -> str:
    unique = sorted(set(masters.values()))
    if len(unique) == 1:
        return unique[0]
    raise Permanent(
        Diagnostic(
            "RAIL_NAMES_DIFFER",
            f"interfaces of rail {rail} have {len(unique)} names, and a network names one for all nodes",
            context.subject.name,
            evidence=tuple(f"{node}: {master}" for node, master in sorted(masters.items())),
            source=context.inventory.source(("rdma", "networks")),
            untouched="Nothing was changed in the cluster.",
            remedy="Give them one name by a systemd.link(5) file, or declare a rail and a network for each"
            " naming class.",
        )
    )


def _stack(
    inventory: Inventory, rdma: Rdma, namespace: str, masters: Mapping[str, Mapping[str, str]]
) -> NetworkStack:
    nodes = {node.name: node for rail in masters for node in rail_nodes(inventory, rail)}
    offers = []
    for node in nodes.values():
        own = {name: one for name, one in sorted(rdma.resources.items()) if one.rail in node.rails}
        interfaces = tuple(dict.fromkeys(masters[one.rail][node.name] for one in own.values()))
        amounts = tuple((name, one.pods_per_node) for name, one in own.items())
        offers.append(Offer(node.name, node.kubernetes_name, node.address, amounts, interfaces))
    with_pool = {
        name: one for name, one in sorted(rdma.networks.items()) if one.pool is not None and masters[one.rail]
    }
    return NetworkStack(
        API,
        namespace,
        tuple(offers),
        tuple(pool_name(name) for name in with_pool),
        tuple(pair for name, one in with_pool.items() for pair in network_names(name, one)),
        source=inventory.source(SOURCE),
    )


def downloads(inventory: Inventory) -> Iterator[Download]:
    """Yield the chart, which `provision pin` pins."""
    operator = operator_of(inventory)
    if operator is not None and has_cluster(inventory):
        declared = inventory.rdma.resources if inventory.rdma is not None else {}
        # Which interfaces they have is only known on the nodes, and no matter for images.
        parts = [SharedResource(name, 1, ()) for name in declared]
        download = chart_download(inventory, _chart(operator), chart_values(inventory))
        yield replace(download, objects=(policy(inventory, parts),))


def _chart(operator: Operator) -> DeclaredChart:
    return operator_chart(CHART, operator, REPOSITORY, SOURCE, chart_version(operator))


def _check_distribution(context: Context) -> None:
    version = require_k3s(context, "rdma.operator")
    match = re.match(r"v1\.([0-9]+)\.([0-9]+)", version)
    minor, patch = (int(match[1]), int(match[2])) if match else (0, 0)
    if minor < min(_FIXED_CNI_FOLDER) or patch < _FIXED_CNI_FOLDER.get(minor, 0):
        raise Permanent(
            Diagnostic(
                "K3S_CNI_UNFIT",
                f"k3s {version} loses the CNI programs of others with each upgrade",
                context.subject.name,
                untouched="Nothing was changed in the cluster.",
                remedy="Leave it out with `--step`, or declare a newer `k3s.version`.",
            )
        )


def retired(context: Context) -> Sequence[Resource]:
    """Return what destroy removes, each before what serves it; namespaces of workloads stay.

    The operator's own namespace goes last, as its label says that all of it is ours.
    """
    inventory, namespace = context.inventory, namespace_of(context.inventory)
    if not is_ours(context, namespace, ROLE_NAME):
        return ()
    return tuple(_gone(inventory, namespace, has_nfd=brings_nfd(inventory)))


def _gone(
    inventory: Inventory, namespace: str, *, has_nfd: bool, risks: tuple[Effect, ...] = ()
) -> Iterator[Resource]:
    """Yield what goes with the operator: while it lives, it takes networks, Multus and its file away."""
    selector = selector_of(ROLE_NAME)
    definitions = {**CRDS, **(NFD_CRDS if has_nfd else {})}
    yield ForeignContents(API, CHART, namespace, tuple(definitions.items()))
    yield KubePruned(API, MACVLAN, "", selector, (), risks=risks)
    yield KubePruned(API, POOL, "", selector, ())
    yield KubeAbsent(API, POLICY, "", POLICY_NAME, risks=risks)
    yield helm_absent(inventory, CHART, namespace, risks)
    for name in definitions:
        yield KubeAbsent(API, CRD, "", name)
    prefixes = (f"{PREFIX}/", "network.nvidia.com/", *(NFD_TRACES if has_nfd else ()))
    yield NodeTraces(API, ROLE_NAME, prefixes)
    yield KubeAbsent(API, NAMESPACE, "", namespace)


def unchosen(context: Context) -> Sequence[Resource]:
    """Return what we installed and the inventory no longer declares, or declares in another namespace.

    Namespaces of workloads stay. So does Node Feature Discovery where the GPU Operator is declared: its chart
    takes it over, and helm brings no CRDs with an upgrade.
    """
    inventory = context.inventory
    declared = namespace_of(inventory) if operator_of(inventory) is not None else ""
    needs_nfd = bool(declared) or (inventory.gpu is not None and inventory.gpu.operator is not None)
    resources: list[Resource] = []
    for home in left_homes(context, CHART, declared):
        has_nfd = home.labels.get(FEATURES) == "true" and not needs_nfd
        resources += _gone(inventory, home.name, has_nfd=has_nfd, risks=(Effect(GPU_PODS_LOSE_DEVICE),))
        if not declared:
            resources[-1:-1] = _multus_gone(context)
    return resources


def _multus_gone(context: Context) -> Iterator[Resource]:
    """Yield that the file is gone by which containerd calls Multus: one that is left fails every later pod.

    Multus takes it away as it ends (Mellanox/network-operator#75), unless it is killed.
    """
    for system in _members(context.inventory):
        if not isinstance(context.answer(system, FileState(MULTUS)), Unknown):
            yield File(system, MULTUS, absent=True)


def _members(inventory: Inventory) -> tuple[str, ...]:
    nodes = (node for node in inventory.nodes.values() if node.manage and is_member(inventory, node))
    return tuple(names.ssh(node.name) for node in nodes)


def unchosen_on(inventory: Inventory) -> Mapping[Subject, Questions]:
    """Return the cluster, and ask its nodes for Multus where the operator is not declared."""
    hosts = _members(inventory) if operator_of(inventory) is None else ()
    asked = {system: (FileState(MULTUS),) for system in hosts}
    return {subject: {**own, **asked} for subject, own in homes_on(inventory).items()}


ROLE = Role(
    name=ROLE_NAME,
    needs=(
        Need("k3s_server", "any", "site"),
        Need("k3s_agent", "any", "site"),
        Need("rdma_host", "any", "site"),
        Need("gpu_operator", "any", "site"),
    ),
    declared=declared,
    questions=questions,
    resources=resources,
    retired=retired,
    unchosen=unchosen,
    unchosen_on=unchosen_on,
    unchosen_optional=lambda inventory, _subject: _members(inventory),
)
