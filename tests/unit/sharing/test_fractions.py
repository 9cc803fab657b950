"""GPU fractions over MPS: values, the memory cap, readiness, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provision.contracts.change import Settles
from provision.contracts.rule import Evidence
from provision.contracts.snapshot import Snapshot
from provision.k3s.runtimes import NvidiaRuntime, RuntimeStatus
from provision.kube.names import API
from provision.sharing.fractions import (
    DAEMONS,
    NAMESPACE,
    fractioning_values,
    kai_fork_values,
    memory_cap,
)
from provision.sharing.fractions_preflight import evidence, interface, pods, unfit, versions
from provision.sharing.resources.stack import FractionsStack
from provision.sharing.roles import gpu_sharing
from provision.sharing.unsupported import unsupported
from provision.testing.model_cluster import ModelCluster, set_status
from provision.values.diagnostics import Diagnostic
from tests.unit.kube.site import ask, changes, problem
from tests.unit.sharing.test_gpu_sharing import SITE, apply, cluster, context, load

__all__ = ["cluster"]
MODE = "kai_fractions"


@pytest.mark.parametrize(
    ("total", "fraction", "cap"), [(40960, 0.5, 19968), (81559, 0.5, 40267), (24576, 0.25, 5888)]
)
def test_the_cap_leaves_a_part_to_the_driver(total: int, fraction: float, cap: int) -> None:
    assert memory_cap(total, fraction) == cap


def test_both_charts_get_registry_tag_and_the_paths_of_k3s(tmp_path: Path) -> None:
    sharing = load(tmp_path, MODE).sharing
    assert sharing is not None
    kai, fractioning = kai_fork_values(sharing), fractioning_values(sharing)
    assert kai["global"] == {"gpuSharingMode": "NvFractions", "registry": "reg.lab/kai", "tag": "k1"}
    assert kai["binder"]["runtimeClassName"] == fractioning["runtimeClassName"] == "nvidia"
    assert fractioning["images"]["mpsd"] == {"repository": "reg.lab/frac/mpsd", "tag": "f1"}
    assert set(fractioning["images"]) == {"operator", "fractiond", "metricsd", "mpsd"}
    assert fractioning["fractioningAgent"]["criSocketPath"] == "/run/k3s/containerd/containerd.sock"


def test_images_that_are_pushed_to_nodes_are_named_as_unsupported(tmp_path: Path) -> None:
    inventory = load(tmp_path, MODE)
    assert list(unsupported(inventory)) == []
    assert inventory.sharing is not None
    object.__setattr__(inventory.sharing, "images", "import")
    assert [each.role for each in unsupported(inventory)] == ["fraction_images"]


def stack_of(cluster: ModelCluster, folder: Path) -> FractionsStack:
    inventory = load(folder, MODE)
    apply(cluster, inventory)
    wanted = gpu_sharing.resources(context(cluster, inventory))
    (stack,) = [resource for resource in wanted if isinstance(resource, FractionsStack)]
    assert changes(cluster, stack) == ()
    cluster.controllers.clear()
    return stack


DRIVER = {"type": "Ready", "status": "False", "reason": "GPUDriverVersionUnsupported", "message": "580"}
STATES: list[tuple[str, dict[str, Any], str, bool]] = [
    ("MpsdReady", {"type": "MpsdReady", "status": "False", "reason": "Rollout"}, "MpsdReady", True),
    ("old driver", DRIVER, "GPUDriverVersionUnsupported", False),
]


@pytest.mark.parametrize(("name", "condition", "words", "heals"), STATES, ids=[row[0] for row in STATES])
def test_fractions_are_ready_when_their_configuration_is(
    cluster: ModelCluster, tmp_path: Path, name: str, condition: dict[str, Any], words: str, heals: bool
) -> None:
    del name
    stack = stack_of(cluster, tmp_path)
    config = cluster.get("GpuFractioningConfig", "default")
    assert config is not None
    held = {row["type"]: row for row in config["status"]["conditions"]}
    held[condition["type"]] = condition
    config["status"]["conditions"] = list(held.values())
    (change,) = changes(cluster, stack)
    assert words in str(change.old)
    assert (change.settles is Settles.WITHIN) is heals
    assert problem(cluster, stack) == "FRACTIONS_NOT_READY"


@pytest.mark.parametrize("name", DAEMONS)
def test_a_daemon_that_is_not_ready_is_named(cluster: ModelCluster, tmp_path: Path, name: str) -> None:
    stack = stack_of(cluster, tmp_path)
    daemon = cluster.get("DaemonSet", name, NAMESPACE)
    assert daemon is not None
    set_status(cluster.store, cluster.store.kind("DaemonSet"), daemon, {"numberReady": 0})
    assert [change.path for change in changes(cluster, stack)] == [name]


# ------------------------------------------------------------ refusals


def codes(findings: Any) -> list[str]:
    return [finding.code for finding in findings if isinstance(finding, Diagnostic)]


@pytest.mark.parametrize(
    ("operator", "k3s", "refused"),
    [
        ("v26.7.1", "v1.35.7+k3s1", False),
        ("v26.7.0", "v1.35.7+k3s1", True),
        ("v25.10.1", "v1.35.7+k3s1", True),
        ("v27.1.0", "v1.32.2+k3s1", False),
        ("v27.1.0", "v1.32.1+k3s1", True),
        ("v27.1.0", "v1.31.6+k3s1", False),
        ("v27.1.0", "v1.30.14+k3s1", True),
    ],
)
def test_versions_that_are_too_old_are_refused(
    tmp_path: Path, operator: str, k3s: str, refused: bool
) -> None:
    site = SITE.replace("cluster: { kubeconfig: /nowhere }\n", f"k3s: {{ version: {k3s} }}\n")
    site = site.replace("address: 10.0.0.1,", "address: 10.0.0.1, k3s: server,")
    site = site.replace(", kube_name: c1", "").replace("v26.3.3", operator)
    inventory = load(tmp_path, MODE, site)
    assert codes(versions(Evidence(inventory, {}, ()))) == (["FRACTIONS_TOO_OLD"] if refused else [])


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        (RuntimeStatus("x", "x", runs=True, has_nri=False), True),
        (RuntimeStatus("x", "x", runs=True, has_nri=True), False),
        (RuntimeStatus(), False),
    ],
)
def test_a_containerd_without_nri_is_refused(tmp_path: Path, status: RuntimeStatus, refused: bool) -> None:
    snapshot = Snapshot("g1/ssh", answers={NvidiaRuntime(): status})
    found = interface(Evidence(load(tmp_path, MODE), {"g1/ssh": snapshot}, ()))
    assert codes(found) == (["FRACTIONS_NO_NRI"] if refused else [])


def pod(**more: Any) -> dict[str, Any]:
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}} if more.get("card") else {}
    context = {} if more.get("root") else {"securityContext": {"runAsNonRoot": True}}
    container = {"name": more.get("name", "main"), **limits, **context}
    annotations = {"gpu-fraction": "0.5"} if more.get("fraction", True) else {}
    metadata = {"name": "p", "namespace": more.get("namespace", "lab"), "annotations": annotations}
    spec = {"containers": [container], "nodeName": more.get("node", "g1")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


PODS = [
    (pod(), []),
    (pod(root=True), ["may run as root"]),
    (pod(name="worker"), ["no container main"]),
    (pod(card=True), ["beside a fraction"]),
    (pod(namespace="strict"), ["level baseline"]),
    (pod(fraction=False, card=True), ["whole cards of g1"]),
    (pod(fraction=False, card=True, node="c1"), []),
    (pod(fraction=False, card=True, namespace="kai-resource-reservation"), []),
    (pod(fraction=False), []),
    ({"metadata": None, "spec": {"containers": [None]}}, []),
]


@pytest.mark.parametrize(("body", "words"), PODS)
def test_a_pod_that_fractions_exclude_is_refused(body: dict[str, Any], words: list[str]) -> None:
    found = list(unfit(body, {"g1"}, {"strict": "baseline", "lab": "privileged"}))
    assert [word in why for word, why in zip(words, found, strict=True)] == [True] * len(words), found


def test_pods_of_the_cluster_are_looked_at(cluster: ModelCluster, tmp_path: Path) -> None:
    inventory = load(tmp_path, MODE)
    cluster.store.seed(pod(fraction=False, card=True))
    snapshot = ask(cluster, *evidence(inventory)[API])
    (finding,) = pods(Evidence(inventory, {API: snapshot}, ()))
    assert codes([finding]) == ["FRACTIONS_POD_UNFIT"]
    assert "lab/p: has whole cards of g1" in str(finding)
