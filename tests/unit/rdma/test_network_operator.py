"""The Network Operator: what it is told, and what must be so before pods get RDMA ports."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from provision.api.domains import load_inventory
from provision.api.support import unsupported
from provision.connections.contracts import KeyPair
from provision.contracts.change import Settles
from provision.contracts.downloads import RepositoryChart
from provision.contracts.role import Context
from provision.contracts.snapshot import Snapshot
from provision.engine.generated import GeneratedValues
from provision.hosts.names import ssh
from provision.inventory import Inventory, Subject
from provision.kube.names import API
from provision.kube.values import unknown_paths
from provision.rdma.network_objects import chart_values
from provision.rdma.queries import Interface, RdmaState, RdmaStatus
from provision.rdma.resources.network import NetworkStack
from provision.rdma.roles import network_operator
from provision.testing.model_cluster import ModelCluster, set_status
from provision.values.errors import Permanent, ProvisionError
from tests.unit.kube.site import ask, bring, changes, problem, read_yaml

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared"
OWN = "nvidia-network-operator"
SITE = """
version: 1
name: site
cluster: { kubeconfig: /nowhere }
nodes:
  n1:
    address: 10.0.0.1
    kube_name: n1
    taints: ["gpu=yes:NoSchedule"]
    rails: { r0: { DEVICE hca: mlx5_8, port: 1 } }
    rail_addresses: { r0: 10.224.7.1/12 }
  n2: { address: 10.0.0.2, kube_name: n2 }
gpu: { operator: { version: v26.3.3 } }
rdma:
  operator: { version: v26.4.0 }
  netns: shared
  resources: { ib: { rail: r0, pods_per_node: 64 } }
  networks:
    roce:
      rail: r0
      resource: ib
      namespaces: [bench, serve]
      pool: { subnet: 10.224.240.0/24, block: 16, exclude: [10.224.240.1, 10.224.240.8-10.224.240.9] }
"""


def load(folder: Path, *changes: tuple[str, str]) -> Inventory:
    text = SITE
    for old, new in (*changes, ("DEVICE", "device: rdma7,")):
        assert old in text or old == "DEVICE", old
        text = text.replace(old, new)
    path = folder / "site.yaml"
    path.write_text(text)
    return load_inventory(path, environ={})


@pytest.fixture
def cluster() -> ModelCluster:
    cluster = ModelCluster()
    cluster.nics.interfaces["n1"] = ("rdma7",)
    cluster.add_node("n1", "10.0.0.1")
    cluster.add_node("n2", "10.0.0.2")
    return cluster


CLUSTER = Subject("cluster", "cluster")


def context(
    cluster: ModelCluster, inventory: Inventory, version: str = "v1.35.7+k3s1", **hosts: RdmaStatus
) -> Context:
    cluster.api.version = version
    answers = {ssh(name): Snapshot(ssh(name), answers={RdmaState(): one}) for name, one in hosts.items()}
    return Context(
        inventory,
        CLUSTER,
        {API: ask(cluster, *network_operator.questions(inventory, CLUSTER)[API]), **answers},
        GeneratedValues(lambda: KeyPair(SecretStr(""), "", "")),
    )


def resources(cluster: ModelCluster, inventory: Inventory, version: str = "v1.35.7+k3s1") -> Any:
    return network_operator.resources(context(cluster, inventory, version))


def brought(cluster: ModelCluster, inventory: Inventory) -> NetworkStack:
    *objects, stack = resources(cluster, inventory)
    bring(cluster, *objects)
    assert isinstance(stack, NetworkStack)
    return stack


def spec(cluster: ModelCluster, kind: str, name: str, namespace: str = "") -> Any:
    body = cluster.get(kind, name, namespace)
    assert body is not None, f"{kind} {name}"
    return body["spec"]


@pytest.mark.parametrize("chart", ["network-operator-26.4.0-values.yaml", "network-operator-values.yaml"])
@pytest.mark.parametrize("own_nfd", [True, False])
def test_every_value_is_one_that_the_chart_knows(tmp_path: Path, chart: str, own_nfd: bool) -> None:
    if not SHARED.exists():
        pytest.skip("../shared is absent")
    edits = [("gpu: { operator: { version: v26.3.3 } }\n", "")] if own_nfd else []
    values = chart_values(load(tmp_path, *edits))
    assert values["nfd"]["enabled"] is own_nfd
    defaults = read_yaml(SHARED / "charts" / chart)
    assert list(unknown_paths(values, defaults)) == []


@pytest.mark.parametrize("release", ["-26.4.0", ""])
def test_objects_are_what_their_definitions_allow(
    cluster: ModelCluster, tmp_path: Path, release: str
) -> None:
    if not SHARED.exists():
        pytest.skip("../shared is absent")
    for name in (f"NicClusterPolicy{release}", f"MacvlanNetwork{release}", "IPPool"):
        cluster.define(read_yaml(SHARED / "crds" / f"{name}.yaml"))
    brought(cluster, load(tmp_path))
    spec(cluster, "NicClusterPolicy", "nic-cluster-policy")
    spec(cluster, "IPPool", "roce-pool", OWN)
    spec(cluster, "MacvlanNetwork", "roce-serve")


def test_the_paths_are_those_of_k3s(tmp_path: Path) -> None:
    operator = chart_values(load(tmp_path))["operator"]
    assert operator["cniBinDirectory"] == "/var/lib/rancher/k3s/data/cni"
    assert operator["cniNetworkDirectory"] == "/var/lib/rancher/k3s/agent/etc/cni/net.d"


def test_the_policy_names_the_interface_and_no_installer(cluster: ModelCluster, tmp_path: Path) -> None:
    brought(cluster, load(tmp_path))
    policy = spec(cluster, "NicClusterPolicy", "nic-cluster-policy")
    (rule,) = json.loads(policy["rdmaSharedDevicePlugin"]["config"])["configList"]
    assert rule == {
        "resourcePrefix": "rdma",
        "resourceName": "ib",
        "rdmaHcaMax": 64,
        "selectors": {"vendors": ["15b3"], "ifNames": ["rdma7"]},
    }
    assert policy["rdmaSharedDevicePlugin"]["version"] == "network-operator-v26.4.0"
    assert policy["secondaryNetwork"].keys() == {"multus"}, "the installer stumbles over links of k3s"
    assert policy["nvIpam"]["enableWebhook"] is False
    assert "ofedDriver" not in policy, "the driver is the host's"
    assert policy["tolerations"] == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]


def test_a_policy_of_others_keeps_its_sections(cluster: ModelCluster, tmp_path: Path) -> None:
    brought(cluster, load(tmp_path))
    held = cluster.get("NicClusterPolicy", "nic-cluster-policy")
    assert held is not None
    cluster.store.delete(cluster.store.kind("NicClusterPolicy"), ("", "nic-cluster-policy"))
    foreign = {**held, "spec": {"nicFeatureDiscovery": {"image": "x"}}}
    cluster.store.seed({**foreign, "metadata": {"name": "nic-cluster-policy"}})
    brought(cluster, load(tmp_path))
    policy = spec(cluster, "NicClusterPolicy", "nic-cluster-policy")
    assert {"nicFeatureDiscovery", "nvIpam"} <= policy.keys()


def test_every_namespace_has_a_network_of_its_own(cluster: ModelCluster, tmp_path: Path) -> None:
    brought(cluster, load(tmp_path))
    for name, namespace in (("roce", "bench"), ("roce-serve", "serve")):
        network = spec(cluster, "MacvlanNetwork", name)
        assert (network["networkNamespace"], network["master"]) == (namespace, "rdma7")
        assert json.loads(network["ipam"]) == {"type": "nv-ipam", "poolName": "roce-pool"}
        assert "mtu" not in network, "pods have that of the interface"
        body = cluster.get("Namespace", namespace)
        assert body is not None
        assert body["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    pool = spec(cluster, "IPPool", "roce-pool", OWN)
    assert (pool["subnet"], pool["perNodeBlockSize"]) == ("10.224.240.0/24", 16)
    assert pool["exclusions"] == [
        {"startIP": "10.224.240.1", "endIP": "10.224.240.1"},
        {"startIP": "10.224.240.8", "endIP": "10.224.240.9"},
    ]


def test_it_is_brought_about_once(cluster: ModelCluster, tmp_path: Path) -> None:
    inventory = load(tmp_path)
    brought(cluster, inventory)
    for resource in resources(cluster, inventory):
        assert changes(cluster, resource) == (), resource.key
    cluster.requests.clear()
    ask(cluster, *{query for resource in resources(cluster, inventory) for query in resource.queries()})
    assert all(request.method == "GET" for request in cluster.requests)
    assert not [request for request in cluster.requests if "/log?" in request.path], "all is well"
    assert len(cluster.requests) <= 16


def test_namespaces_come_before_the_release_and_the_policy_after(
    cluster: ModelCluster, tmp_path: Path
) -> None:
    brought(cluster, load(tmp_path))
    kinds = [write.split("/")[-2] for write in cluster.writes()]
    assert kinds == [
        *["namespaces"] * 3,
        "helmcharts",
        "nicclusterpolicies",
        "ippools",
        *["macvlannetworks"] * 2,
    ]


def test_networks_that_are_declared_no_more_go_before_pools(cluster: ModelCluster, tmp_path: Path) -> None:
    brought(cluster, load(tmp_path))
    cluster.requests.clear()
    brought(cluster, load(tmp_path, (SITE[SITE.index("  networks:") :], "")))
    removed = [write.rpartition("/")[2] for write in cluster.writes() if write.startswith("DELETE")]
    assert removed == ["roce", "roce-serve", "roce-pool"]


def test_destroy_goes_from_networks_to_the_release(cluster: ModelCluster, tmp_path: Path) -> None:
    inventory = load(tmp_path)
    brought(cluster, inventory)
    cluster.requests.clear()
    bring(cluster, *network_operator.retired(context(cluster, inventory)))
    removed = [write.rpartition("/")[2] for write in cluster.writes() if write.startswith("DELETE")]
    first = ["roce", "roce-serve", "roce-pool", "nic-cluster-policy", "network-operator"]
    assert removed[:5] == first
    assert removed[-1] == OWN
    assert cluster.get("Namespace", "bench") is not None, "it may hold what is not ours"
    assert cluster.store.listed(cluster.store.kind("NetworkAttachmentDefinition")) == []


def test_destroy_takes_the_resources_of_ports_off_nodes(cluster: ModelCluster, tmp_path: Path) -> None:
    inventory = load(tmp_path)
    brought(cluster, inventory)
    node = cluster.get("Node", "n1")
    assert node is not None
    assert [key for key in node["status"]["allocatable"] if key.startswith("rdma/")]
    bring(cluster, *network_operator.retired(context(cluster, inventory)))
    node = cluster.get("Node", "n1")
    assert node is not None
    assert [key for key in node["status"]["allocatable"] if key.startswith("rdma/")] == []


def test_a_network_operator_of_somebody_else_is_not_destroyed(cluster: ModelCluster, tmp_path: Path) -> None:
    cluster.store.seed({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN}})
    assert network_operator.retired(context(cluster, load(tmp_path))) == ()


def test_an_interface_that_is_not_declared_is_asked_for(cluster: ModelCluster, tmp_path: Path) -> None:
    inventory = load(tmp_path, ("DEVICE", ""))
    assert ssh("n1") in network_operator.questions(inventory, Subject("cluster", "cluster"))
    status = RdmaStatus(interfaces=(Interface("ens9np0", addresses=("10.224.7.1/12",)),))
    *objects, _ = network_operator.resources(context(cluster, inventory, n1=status))
    bring(cluster, *objects)
    assert spec(cluster, "MacvlanNetwork", "roce")["master"] == "ens9np0"
    with pytest.raises(Permanent, match="RAIL_MISSING"):
        network_operator.resources(context(cluster, inventory, n1=RdmaStatus()))


def test_two_names_of_one_rail_are_refused(cluster: ModelCluster, tmp_path: Path) -> None:
    more = "n2: { address: 10.0.0.2, kube_name: n2, rails: { r0: { device: ens9 } } }"
    inventory = load(tmp_path, ("n2: { address: 10.0.0.2, kube_name: n2 }", more))
    with pytest.raises(Permanent, match="RAIL_NAMES_DIFFER"):
        resources(cluster, inventory)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("v1.35.2-eks-1", "KUBE_DISTRIBUTION_UNSUPPORTED"),
        ("v1.27.16+k3s1", "K3S_CNI_UNFIT"),
        ("v1.31.1+k3s1", "K3S_CNI_UNFIT"),
    ],
)
def test_what_nobody_has_run_is_refused(
    cluster: ModelCluster, tmp_path: Path, version: str, code: str
) -> None:
    with pytest.raises(Permanent, match=code) as caught:
        resources(cluster, load(tmp_path), version)
    assert version in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "role"),
    [
        ("netns: shared", "method: host_device", "network_host_device"),
        ("netns: shared", "method: sriov", "network_sriov"),
        ("operator: { version: v26.4.0 }", "method: macvlan", "network_manual"),
        (SITE[SITE.index("      pool:") :], "", "network_addresses"),
    ],
)
def test_what_is_not_supported_is_said_by_name(tmp_path: Path, old: str, new: str, role: str) -> None:
    assert [one.role for one in unsupported(load(tmp_path, (old, new)))] == [role]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("netns: shared", "netns: exclusive", "cannot share a port"),
        ("    roce:\n", "    roce-serve: { rail: r0 }\n    roce:\n", "both make a network"),
        (
            "v26.3.3 } }\nrdma:\n  operator: { version: v26.4.0 }",
            "v26.3.3, nfd: true } }\nrdma:\n  operator: { version: v26.4.0, nfd: true }",
            "a cluster has one",
        ),
    ],
)
def test_what_excludes_each_other_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(ProvisionError, match=words):
        load(tmp_path, (old, new))


def test_the_chart_is_pinned_in_the_version_of_its_index(tmp_path: Path) -> None:
    (download,) = network_operator.downloads(load(tmp_path))
    assert isinstance(download.origin, RepositoryChart)
    assert (download.origin.chart, download.origin.version) == ("network-operator", "26.4.0")


# ---------------------------------------------------------------- what goes wrong


def status(kind: str, name: str, **fields: Any) -> Callable[[ModelCluster], None]:
    def change(cluster: ModelCluster) -> None:
        namespace = OWN if kind in {"DaemonSet", "IPPool", "Pod"} else ""
        held = cluster.get(kind, name, namespace)
        assert held is not None
        set_status(cluster.store, cluster.store.kind(kind), held, fields)

    return change


def log(text: str, **pod: Any) -> Callable[[ModelCluster], None]:
    def change(cluster: ModelCluster) -> None:
        name = "rdma-shared-dp-ds-n1"
        cluster.api.logs[OWN, name] = f"2023/09/19 17:43:19 {text}\n"
        status("Node", "n1", allocatable={"rdma/ib": "0"})(cluster)
        status("Pod", name, **pod)(cluster)

    return change


def unlabelled(cluster: ModelCluster) -> None:
    status("Node", "n1", allocatable={})(cluster)
    node = cluster.get("Node", "n1")
    assert node is not None
    node["metadata"]["labels"].pop("feature.node.kubernetes.io/pci-15b3.present")


def without(kind: str, name: str, namespace: str = "") -> Callable[[ModelCluster], None]:
    def change(cluster: ModelCluster) -> None:
        cluster.store.delete(cluster.store.kind(kind), (namespace, name))

    return change


_NOT_READY = [{"type": "Ready", "status": "False"}]
EXCLUSIVE = "Exiting.. can not change : incorrect RDMA subsystem network namespace"
EMPTY = "Warning: no devices in device pool, creating empty resource server for ib"
APPLIED = [{"name": "state-multus-cni", "state": "notReady", "message": "image pull"}]
FAILURES = [
    (log(EXCLUSIVE, conditions=_NOT_READY), "RDMA_NETNS_EXCLUSIVE", "exclusive", False),
    (log(EMPTY), "RDMA_INTERFACE_MISSING", "no RDMA port at rdma7", True),
    (log(EMPTY.replace("for ib", "for ib2")), "RDMA_ALLOCATABLE_WRONG", "0 rdma/ib allocatable, 64", True),
    (status("Node", "n1", allocatable={"rdma/ib": "63"}), "RDMA_ALLOCATABLE_WRONG", "63 rdma/ib", True),
    (unlabelled, "RDMA_NIC_UNSEEN", "pci-15b3.present", True),
    (
        status("NicClusterPolicy", "nic-cluster-policy", state="notReady", appliedStates=APPLIED),
        "NIC_POLICY_NOT_READY",
        "state-multus-cni notReady: image pull",
        True,
    ),
    (
        status("DaemonSet", "kube-multus-ds", observedGeneration=0),
        "NIC_OPERANDS_NOT_READY",
        "processed",
        True,
    ),
    (status("DaemonSet", "kube-multus-ds", numberReady=0), "NIC_OPERANDS_NOT_READY", "0 of 1", True),
    (without("DaemonSet", "rdma-shared-dp-ds", OWN), "NIC_OPERANDS_NOT_READY", "not there", True),
    (status("IPPool", "roce-pool", allocations=[]), "RDMA_POOL_NOT_READY", "no addresses for n1", True),
    (
        status("MacvlanNetwork", "roce", state="error", reason="no namespace"),
        "RDMA_NETWORK_NOT_READY",
        "no namespace",
        True,
    ),
    (
        without("NetworkAttachmentDefinition", "roce-serve", "serve"),
        "RDMA_NETWORK_NOT_READY",
        "in serve",
        True,
    ),
]


@pytest.mark.parametrize(
    ("damage", "code", "words", "heals"), FAILURES, ids=[f"{row[1]}-{row[2]}" for row in FAILURES]
)
def test_each_failure_has_its_diagnosis(
    cluster: ModelCluster,
    tmp_path: Path,
    damage: Callable[[ModelCluster], None],
    code: str,
    words: str,
    heals: bool,
) -> None:
    stack = brought(cluster, load(tmp_path))
    assert changes(cluster, stack) == ()
    cluster.controllers.clear()
    healthy, logs = copy.deepcopy(cluster.store._objects), dict(cluster.api.logs)
    damage(cluster)
    found = changes(cluster, stack)
    assert words in " ".join(str(change.old) for change in found)
    assert (found[0].settles is Settles.WITHIN) is heals
    assert problem(cluster, stack) == code
    cluster.store._objects = healthy
    cluster.api.logs.update(logs)
    assert changes(cluster, stack) == (), "once the cause is gone, the next apply converges"


def test_a_crash_loop_is_not_waited_for_and_ends_with_its_cause(
    cluster: ModelCluster, tmp_path: Path
) -> None:
    cluster.nics.exclusive.add("n1")
    stack = brought(cluster, load(tmp_path))
    assert problem(cluster, stack) == "RDMA_NETNS_EXCLUSIVE"
    assert any(change.settles is Settles.NOW for change in changes(cluster, stack))
    cluster.nics.exclusive.clear()
    held = cluster.get("NicClusterPolicy", "nic-cluster-policy")
    assert held is not None
    cluster.nics(cluster.store, "MODIFIED", cluster.store.kind("NicClusterPolicy"), held)
    assert changes(cluster, stack) == ()


def test_a_node_that_is_off_is_not_waited_for(cluster: ModelCluster, tmp_path: Path) -> None:
    stack = brought(cluster, load(tmp_path))
    cluster.controllers.clear()
    status("Node", "n1", conditions=[{"type": "Ready", "status": "Unknown"}])(cluster)
    status("DaemonSet", "kube-multus-ds", numberReady=0)(cluster)
    assert changes(cluster, stack) == ()


def test_the_pair_of_h100_declares_its_networks_as_supported() -> None:
    found = unsupported(load_inventory(ROOT / "inventories" / "h100-pair.yaml", environ={}))
    assert not [one.role for one in found if one.steps == ("network_operator",)]
