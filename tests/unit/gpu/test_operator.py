"""The GPU Operator: its values from the inventory, and what must be so before pods get cards."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import SecretStr

from provision.api.domains import load_inventory
from provision.api.support import unsupported
from provision.connections.contracts import KeyPair
from provision.contracts.change import Settles
from provision.contracts.remedy import Impossible
from provision.contracts.role import Context
from provision.contracts.rule import Evidence
from provision.engine.generated import GeneratedValues
from provision.gpu import operator_preflight, preflight
from provision.gpu.operator_values import operator_values
from provision.gpu.resources.stack import Cards, GpuStack
from provision.gpu.roles import gpu_operator
from provision.inventory import Inventory, Subject
from provision.kube.names import API
from provision.kube.queries import ServerVersion
from provision.kube.values import unknown_paths
from provision.lab.kube.store import Write
from provision.testing.model_cluster import ModelCluster, set_status
from provision.testing.model_gpu_operator import PLUGIN
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent
from tests.unit.kube.site import ask, bring, changes, problem, read_yaml

ROOT = Path(__file__).parents[3]
CHARTS = ROOT.parent / "shared" / "charts"
SITE = """
version: 1
name: site
cluster: { kubeconfig: /nowhere }
nodes:
  g1: { address: 10.0.0.1, gpu_cards: { count: 2 }, taints: ["gpu=yes:NoSchedule"] }
  c1: { address: 10.0.0.2, kube_name: c1 }
gpu: { toolkit: host, operator: { version: v26.3.3 } }
"""


def load(folder: Path, more: str = "") -> Inventory:
    path = folder / "site.yaml"
    path.write_text(SITE + more)
    return load_inventory(path, environ={})


@pytest.fixture
def cluster() -> ModelCluster:
    cluster = ModelCluster()
    cluster.gpus.cards["g1"] = 2
    cluster.add_node("g1", "10.0.0.1")
    cluster.add_node("c1", "10.0.0.2")
    return cluster


def resources(cluster: ModelCluster, inventory: Inventory, version: str = "v1.35.7+k3s1") -> Any:
    cluster.api.version = version
    snapshot = ask(cluster, ServerVersion())
    context = Context(
        inventory,
        Subject("cluster", "cluster"),
        {API: snapshot},
        GeneratedValues(lambda: KeyPair(SecretStr(""), "", "")),
    )
    return gpu_operator.resources(context)


MODES = [
    "",
    "sharing: { mode: time_slicing, slots_per_card: 4 }",
    "sharing: { mode: mps, slots_per_card: 4 }",
    "sharing: { mode: hami, version: 2.9.0 }",
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chart", ["gpu-operator-26.3.3-values.yaml", "gpu-operator-values.yaml"])
def test_every_value_is_one_that_the_chart_knows(tmp_path: Path, chart: str, mode: str) -> None:
    if not CHARTS.exists():
        pytest.skip("../shared is absent")
    defaults = read_yaml(CHARTS / chart)
    values = operator_values(load(tmp_path, mode))
    assert list(unknown_paths(values, defaults)) == []


def test_values_follow_from_the_inventory(tmp_path: Path) -> None:
    values = operator_values(load(tmp_path))
    assert values["driver"] == {"enabled": False}, "the driver is on the host"
    assert values["toolkit"] == {"enabled": False}
    assert values["dcgmExporter"]["serviceMonitor"] == {"enabled": False}, "its CRD may not be there"
    assert values["nfd"] == {"enabled": True}
    assert {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"} in values["daemonsets"]["tolerations"]


@pytest.mark.parametrize(("mode", "plugin"), [(MODES[0], True), (MODES[1], True), (MODES[3], False)])
def test_one_plugin_offers_the_cards(tmp_path: Path, mode: str, plugin: bool) -> None:
    assert operator_values(load(tmp_path, mode))["devicePlugin"]["enabled"] is plugin


def test_own_values_are_laid_over_ours(tmp_path: Path) -> None:
    text = SITE.replace(
        "version: v26.3.3", "version: v26.3.3, values: { driver: { enabled: true }, psa: { enabled: true } }"
    )
    path = tmp_path / "own.yaml"
    path.write_text(text)
    values = operator_values(load_inventory(path, environ={}))
    assert values["driver"] == {"enabled": True}
    assert values["psa"] == {"enabled": True}


def test_the_toolkit_of_the_operator_has_the_paths_of_k3s(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(SITE.replace("toolkit: host", "toolkit: operator"))
    inventory = load_inventory(path, environ={})
    env = {row["name"]: row["value"] for row in operator_values(inventory)["toolkit"]["env"]}
    assert env["CONTAINERD_SOCKET"] == "/run/k3s/containerd/containerd.sock"
    config = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
    assert env["CONTAINERD_CONFIG"] == config, "a template is none: the toolkit cannot read it"
    assert env["RUNTIME_CONFIG_SOURCE"] == f"file={config}", "not from another containerd of the host"
    assert env["RUNTIME_DROP_IN_CONFIG"].endswith("/config-v3.toml.d/99-nvidia.toml")
    assert env["RUNTIME_RESTART_MODE"] == "none"
    assert unsupported(inventory) == ()


@pytest.mark.parametrize("mode", MODES)
def test_the_operator_is_brought_about_once(cluster: ModelCluster, tmp_path: Path, mode: str) -> None:
    inventory = load(tmp_path, mode)
    bring(cluster, *resources(cluster, inventory)[:2])
    for resource in resources(cluster, inventory):
        assert changes(cluster, resource) == (), resource.key
    cluster.requests.clear()
    queries = {query for resource in resources(cluster, inventory) for query in resource.queries()}
    ask(cluster, *queries)
    assert len(cluster.requests) <= 11
    assert all(request.method == "GET" for request in cluster.requests)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("v1.35.2-eks-1", "Amazon EKS (v1.35.2-eks-1)"),
        ("v1.34.1-gke.1293000", "Google GKE (v1.34.1-gke.1293000)"),
        ("v1.35.2+rke2r1", "RKE2 (v1.35.2+rke2r1)"),
        ("v1.35.2+k0s.0", "k0s (v1.35.2+k0s.0)"),
        # kubeadm, Talos, AKS and MicroK8s have versions without a mark.
        ("v1.35.2", "another Kubernetes than k3s (v1.35.2)"),
        ("v1.33.6+0b8c1d2", "another Kubernetes than k3s (v1.33.6+0b8c1d2)"),
    ],
)
def test_another_distribution_is_refused_by_its_name(
    cluster: ModelCluster, tmp_path: Path, version: str, name: str
) -> None:
    cluster.requests.clear()
    with pytest.raises(Permanent, match="KUBE_DISTRIBUTION_UNSUPPORTED") as caught:
        resources(cluster, load(tmp_path), version)
    (problem,) = caught.value.diagnostics
    assert problem.summary == f"the cluster is {name}, and this role was run on k3s only"
    assert problem.untouched
    assert "gpu.operator" in problem.remedy
    assert {request.method for request in cluster.requests} == {"GET"}


def stack(offered: int = 2) -> GpuStack:
    return GpuStack(API, "gpu-operator", (Cards("g1", "g1", "10.0.0.1", 2, offered),))


def labelled(cluster: ModelCluster, **labels: str | None) -> None:
    node = cluster.get("Node", "g1")
    assert node is not None
    held = {**node["metadata"]["labels"], **labels}
    kept = {key: value for key, value in held.items() if value is not None}
    made = {**node, "metadata": {**node["metadata"], "labels": kept}}
    cluster.store.update(cluster.store.kind("Node"), ("", "g1"), made, Write("somebody"))


def status(kind: str, name: str, **fields: Any) -> Callable[[ModelCluster], None]:
    def change(cluster: ModelCluster) -> None:
        namespace = "" if kind in {"Node", "ClusterPolicy"} else "gpu-operator"
        held = cluster.get(kind, name, namespace)
        assert held is not None
        set_status(cluster.store, cluster.store.kind(kind), held, fields)

    return change


def without_plugin(cluster: ModelCluster) -> None:
    kind = cluster.store.kind("Pod")
    for pod in list(cluster.store.listed(kind, "gpu-operator")):
        cluster.store.delete(kind, ("gpu-operator", pod["metadata"]["name"]))


def plugin_pod(cluster: ModelCluster, log: str, **fields: Any) -> None:
    """Change the status of the plugin's pod, and what it prints."""
    name = f"{PLUGIN}-g1"
    held = cluster.get("Pod", name, "gpu-operator")
    assert held is not None
    cluster.api.logs["gpu-operator", name] = log
    cluster.store.seed({**held, "status": {**held["status"], **fields}})


def without_cards(cluster: ModelCluster) -> None:
    """The plugin runs without the runtime's help, is ready, and offers nothing."""
    plugin_pod(
        cluster,
        "I1204 07:31:31.764138       1 main.go:235] Starting NVIDIA Device Plugin\n"
        "E1204 07:31:31.771234       1 factory.go:113] Incompatible strategy detected auto\n"
        "E1204 07:31:31.771240       1 factory.go:115] did you configure the NVIDIA Container Toolkit?\n"
        "I1204 07:31:31.771300       1 main.go:381] No devices found. Waiting indefinitely.\n",
    )
    status("Node", "g1", allocatable={"nvidia.com/gpu": "0"})(cluster)


def crashing(cluster: ModelCluster) -> None:
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}
    plugin_pod(
        cluster,
        'E0101 main.go:132] error starting plugins: unable to load resource managers to manage: "nvml"\n',
        conditions=[{"type": "Ready", "status": "False"}],
        phase="Running",
        containerStatuses=[{"name": "plugin", "restartCount": 9, "state": {"waiting": waiting}}],
    )


def second_stack(cluster: ModelCluster) -> None:
    text = yaml.safe_dump(gpu_cluster())
    definition = yaml.safe_load(text)
    cluster.define(definition)
    cluster.store.seed(
        {"apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster", "metadata": {"name": "dra"}}
    )


def gpu_cluster() -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gpuclusters.nvidia.com"},
        "spec": {
            "group": "nvidia.com",
            "names": {"kind": "GPUCluster", "plural": "gpuclusters"},
            "scope": "Cluster",
            "versions": [{"name": "v1alpha1", "served": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


NO_GPUS = {"type": "Ready", "status": "True", "reason": "NoGPUNodes"}
ERROR = {"type": "Error", "status": "True", "reason": "OperandNotReady", "message": "state-container-toolkit"}
FAILURES = [
    (
        status("ClusterPolicy", "cluster-policy", conditions=[NO_GPUS]),
        "GPU_POLICY_NOT_READY",
        "NoGPUNodes",
        True,
    ),
    (
        status("ClusterPolicy", "cluster-policy", state="notReady", conditions=[ERROR]),
        "GPU_POLICY_NOT_READY",
        "state-container-toolkit",
        True,
    ),
    (
        status("DaemonSet", "nvidia-dcgm-exporter", observedGeneration=0),
        "GPU_OPERANDS_NOT_READY",
        "processed",
        True,
    ),
    (status("DaemonSet", "nvidia-dcgm-exporter", numberReady=0), "GPU_OPERANDS_NOT_READY", "0 of 1", True),
    (
        lambda cluster: labelled(cluster, **{"nvidia.com/gpu.count": None}),
        "GPU_LABELS_MISSING",
        "no label",
        True,
    ),
    (lambda cluster: labelled(cluster, **{"nvidia.com/gpu.count": "1"}), "GPU_COUNT_WRONG", "is 1, 2", True),
    (without_plugin, "GPU_PLUGIN_MISSING", "no ready pod", True),
    (
        status("Node", "g1", allocatable={"nvidia.com/gpu": "1"}),
        "GPU_ALLOCATABLE_WRONG",
        "1 nvidia.com/gpu",
        True,
    ),
    (
        lambda cluster: labelled(
            cluster, **{"nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"}
        ),
        "GPU_OPERANDS_PAUSED",
        "paused-for-driver-upgrade",
        False,
    ),
    (second_stack, "GPU_STACKS_BOTH", "GPUCluster dra", False),
    (without_cards, "GPU_PLUGIN_SEES_NOTHING", "without the node's cards", False),
    (crashing, "GPU_PLUGIN_CRASHES", "CrashLoopBackOff back-off 5m0s", True),
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
    bring(cluster, *resources(cluster, load(tmp_path))[:2])
    assert changes(cluster, stack()) == ()
    cluster.controllers.clear()
    healthy = copy.deepcopy(cluster.store._objects)
    damage(cluster)
    found = changes(cluster, stack())
    assert words in " ".join(str(change.old) for change in found)
    assert any(change.settles is not Settles.WITHIN for change in found) is not heals
    assert problem(cluster, stack()) == code
    cluster.store._objects = healthy
    assert changes(cluster, stack()) == (), "once the cause is gone, the next apply converges"


def test_the_plugins_own_words_are_the_evidence(cluster: ModelCluster, tmp_path: Path) -> None:
    bring(cluster, *resources(cluster, load(tmp_path))[:2])
    cluster.controllers.clear()
    requests = len(cluster.requests)
    assert changes(cluster, stack()) == ()
    assert not any("/log" in request.path for request in cluster.requests[requests:])
    without_cards(cluster)
    one = stack()
    remedy = one.fix(ask(cluster, *one.queries()))
    assert isinstance(remedy, Impossible)
    evidence = " ".join(remedy.diagnostic.evidence)
    assert "No devices found. Waiting indefinitely" in evidence
    assert "delete pod nvidia-device-plugin-daemonset-g1" in remedy.diagnostic.remedy


def refusals(cluster: ModelCluster, inventory: Inventory) -> list[str]:
    snapshot = ask(cluster, *preflight.evidence(inventory)[API])
    found = operator_preflight.stacks(Evidence(inventory, {API: snapshot}, ()))
    return [finding.code for finding in found if isinstance(finding, Diagnostic)]


def test_a_cluster_with_a_gpu_cluster_is_refused_before_anything_changes(
    cluster: ModelCluster, tmp_path: Path
) -> None:
    inventory = load(tmp_path)
    assert refusals(cluster, inventory) == []
    second_stack(cluster)
    assert refusals(cluster, inventory) == ["GPU_STACKS_BOTH"]


@pytest.mark.parametrize(
    "keys",
    ["allocation: dra", "values: { gpuCluster: { deployCR: true } }"],
)
def test_dra_can_be_declared_and_is_not_supported(tmp_path: Path, keys: str) -> None:
    file = tmp_path / "dra.yaml"
    file.write_text(SITE.replace("version: v26.3.3", f"version: v26.3.3, {keys}"))
    (found,) = unsupported(load_inventory(file, environ={}))
    problem = found.problem(load_inventory(file, environ={}))
    assert "DRA (GPUCluster)" in problem.summary
    assert problem.code == "FEATURE_UNSUPPORTED"


def retired(cluster: ModelCluster, inventory: Inventory) -> Any:
    subject = Subject("cluster", "cluster")
    asked = gpu_operator.questions(inventory, subject)[API]
    answers = {API: ask(cluster, *asked)}
    generated = GeneratedValues(lambda: KeyPair(SecretStr(""), "", ""))
    return gpu_operator.retired(Context(inventory, subject, answers, generated))


def traces(cluster: ModelCluster) -> list[str]:
    node = cluster.get("Node", "g1")
    assert node is not None
    rows = [node["metadata"]["labels"], node["status"]["capacity"], node["status"]["allocatable"]]
    return [key for row in rows for key in row if "nvidia.com" in key or "feature.node" in key]


def test_destroy_leaves_nothing_on_nodes_nor_features_of_nodes(cluster: ModelCluster, tmp_path: Path) -> None:
    before = cluster.dump()
    inventory = load(tmp_path)
    bring(cluster, *resources(cluster, inventory)[:2])
    assert traces(cluster)
    assert cluster.get("NodeFeature", "g1", "gpu-operator") is not None
    bring(cluster, *retired(cluster, inventory))
    assert traces(cluster) == [], "amounts of 0 are gone, too"
    left = set(cluster.dump()) - set(before)
    assert [name for name in left if "nfd" in name or "NodeFeature" in name or "Namespace" in name] == []
    assert retired(cluster, inventory) == (), "nothing of ours is there"


def test_destroy_goes_on_where_it_was_killed(cluster: ModelCluster, tmp_path: Path) -> None:
    inventory = load(tmp_path)
    bring(cluster, *resources(cluster, inventory)[:2])
    bring(cluster, *retired(cluster, inventory)[:2])
    assert traces(cluster)
    bring(cluster, *retired(cluster, inventory))
    assert traces(cluster) == []


def test_an_operator_of_somebody_else_is_not_destroyed(cluster: ModelCluster, tmp_path: Path) -> None:
    cluster.store.seed({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-operator"}})
    assert retired(cluster, load(tmp_path)) == ()


def test_a_gpu_node_that_is_off_is_not_waited_for(cluster: ModelCluster, tmp_path: Path) -> None:
    bring(cluster, *resources(cluster, load(tmp_path))[:2])
    cluster.controllers.clear()
    status("Node", "g1", conditions=[{"type": "Ready", "status": "Unknown"}])(cluster)
    status("DaemonSet", "nvidia-dcgm-exporter", numberReady=0)(cluster)
    assert changes(cluster, stack()) == ()


def test_under_hami_the_stock_plugin_offers_nothing(cluster: ModelCluster, tmp_path: Path) -> None:
    bring(cluster, *resources(cluster, load(tmp_path, MODES[3]))[:2])
    assert changes(cluster, stack(offered=0)) == ()
    assert problem(cluster, replace(stack())) == "GPU_PLUGIN_MISSING"


def test_the_homelab_declares_nothing_unsupported() -> None:
    found = unsupported(load_inventory(ROOT / "inventories" / "homelab.yaml", environ={}))
    assert [each.role for each in found] == []
