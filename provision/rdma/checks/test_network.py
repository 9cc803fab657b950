"""RDMA of pods: the operator is ready, nodes offer their ports, and networks have their addresses."""

from __future__ import annotations

import json
from ipaddress import IPv4Network

import pytest

from provision.contracts.check import NotDeclared, Site, Trivial
from provision.inventory.models.cluster import Rdma, RdmaNetwork
from provision.kube.checks.reads import get, is_ready, prove_daemon_sets
from provision.kube.names import is_member

POLICY = "/apis/mellanox.com/v1alpha1/nicclusterpolicies/nic-cluster-policy"
NETWORK = "/apis/mellanox.com/v1alpha1/macvlannetworks/{name}"
POOL = "/apis/nv-ipam.nvidia.com/v1alpha1/namespaces/{namespace}/ippools/{name}"
ATTACHMENT = "/apis/k8s.cni.cncf.io/v1/namespaces/{namespace}/network-attachment-definitions/{name}"


@pytest.fixture
def rdma(site: Site) -> Rdma:
    """What is declared of RDMA of pods."""
    declared = site.inventory.rdma
    if declared is None or declared.operator is None:
        raise NotDeclared("no Network Operator is declared")
    return declared


@pytest.fixture
def namespace(rdma: Rdma) -> str:
    """The operator's namespace."""
    own = rdma.operator.namespace if rdma.operator is not None else None
    return own or "nvidia-network-operator"


@pytest.fixture
def networks(rdma: Rdma) -> dict[str, RdmaNetwork]:
    """The declared networks."""
    if not rdma.networks:
        raise NotDeclared("no network is declared")
    return dict(rdma.networks)


def test_nic_policy_is_ready(site: Site, cluster: str, rdma: Rdma) -> None:
    """The Network Operator has reconciled its policy."""
    del cluster, rdma
    status = get(site, POLICY).get("status", {})
    parts = [
        f"{row['name']} {row['state']}"
        for row in status.get("appliedStates", [])
        if row["state"] not in ("ready", "ignore")
    ]
    assert status.get("state") == "ready", (
        f"{status.get('state')}: {', '.join(parts) or status.get('reason')}"
    )


def test_network_operands_run(site: Site, cluster: str, namespace: str) -> None:
    """Every DaemonSet of the Network Operator has a pod on each of its nodes that is up."""
    del cluster
    prove_daemon_sets(site, namespace)


def test_rdma_is_allocatable(site: Site, node: str, rdma: Rdma) -> None:
    """As many pods as declared can ask for each RDMA port of the node."""
    declared = site.inventory.nodes[node]
    wanted = {
        f"rdma/{name}": one.pods_per_node
        for name, one in rdma.resources.items()
        if one.rail in declared.rails
    }
    if not wanted:
        raise NotDeclared("no resource is declared of its rails")
    if not is_member(site.inventory, declared):
        raise NotDeclared("it is not in the cluster")
    address = {"type": "InternalIP", "address": declared.address}
    for item in get(site, "/api/v1/nodes")["items"]:
        named = item["metadata"]["name"] == declared.kubernetes_name
        if named or address in item["status"].get("addresses", []):
            break
    else:
        pytest.skip("unknown: it has not joined the cluster")
    if not is_ready(item):
        pytest.skip(f"unknown: {item['metadata']['name']} is not Ready")
    for name, pods in wanted.items():
        offered = item["status"].get("allocatable", {}).get(name, "none")
        assert offered == str(pods), f"{name}: {offered} are allocatable, {pods} are declared"


def test_rdma_pools(site: Site, cluster: str, namespace: str, networks: dict[str, RdmaNetwork]) -> None:
    """Every network has its declared addresses, and nodes have their share of them."""
    del cluster
    for name, network in networks.items():
        if network.pool is None:
            raise Trivial(f"{name} has no pool")
        body = get(site, POOL.format(namespace=namespace, name=f"{name}-pool"))
        spec, wanted = body["spec"], str(IPv4Network(network.pool.subnet))
        assert spec["subnet"] == wanted, f"{name}: the subnet is {spec['subnet']}, not {wanted}"
        block = spec["perNodeBlockSize"]
        assert block == network.pool.block, f"{name}: {block} addresses a node, not {network.pool.block}"
        assert body.get("status", {}).get("allocations"), f"{name}: no node has addresses of its pool"


def test_rdma_networks(site: Site, cluster: str, networks: dict[str, RdmaNetwork]) -> None:
    """Every declared namespace has its network, which is ready and takes addresses from its pool."""
    del cluster
    if not any(network.namespaces for network in networks.values()):
        raise Trivial("no namespace gets a network")
    for name, network in networks.items():
        for index, namespace in enumerate(network.namespaces):
            own = f"{name}-{namespace}" if index else name
            body = get(site, NETWORK.format(name=own))
            state = body.get("status", {}).get("state")
            assert state == "ready", f"{own}: {state}: {body.get('status', {}).get('reason')}"
            of = json.loads(body["spec"]["ipam"]).get("poolName")
            assert of == f"{name}-pool", f"{own}: addresses come from {of}"
            get(site, ATTACHMENT.format(namespace=namespace, name=own))


def test_rdma_namespaces_admit(site: Site, cluster: str, networks: dict[str, RdmaNetwork]) -> None:
    """Namespaces with a network admit pods that lock memory."""
    del cluster
    spaces = {one for network in networks.values() for one in network.namespaces}
    if not spaces:
        raise Trivial("no namespace gets a network")
    for space in sorted(spaces):
        labels = get(site, f"/api/v1/namespaces/{space}")["metadata"].get("labels", {})
        level = labels.get("pod-security.kubernetes.io/enforce")
        assert level == "privileged", f"{space}: Pod Security enforces {level}"
