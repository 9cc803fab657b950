"""Draining: budgets first, only what must leave leaves, and only what we cordoned is uncordoned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from provision.api.domains import effect_classes, load_inventory
from provision.contracts.driver import Verdict
from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall, Impossible
from provision.kube.hooks import _DRAIN_HOOK, hooks
from provision.kube.kube_effects import DRAIN
from provision.kube.names import API, CORDONED
from provision.kube.resources.drain import NodeDrained, NodeUsable
from provision.lab.kube.app import Request
from provision.lab.kube.store import Write
from provision.testing.model_cluster import ModelCluster, answering
from tests.unit.kube.site import ask, bring, changes, paths, problem

DRAINED = NodeDrained(API, "n", "n")


@pytest.fixture
def cluster() -> ModelCluster:
    cluster = ModelCluster()
    cluster.add_node("n", "10.0.0.1")
    cluster.add_node("m", "10.0.0.2")
    pod(cluster, "web-1", labels={"app": "web"})
    pod(cluster, "daemon", owner="DaemonSet")
    pod(cluster, "ended", phase="Succeeded")
    pod(cluster, "static", annotations={"kubernetes.io/config.mirror": "x"})
    pod(cluster, "elsewhere", node="m")
    return cluster


def pod(cluster: ModelCluster, name: str, owner: str = "ReplicaSet", node: str = "n", **more: Any) -> None:
    owners = [{"kind": owner, "name": "o", "uid": "u", "apiVersion": "apps/v1"}] if owner else []
    metadata = {"name": name, "namespace": "default", "ownerReferences": owners}
    metadata |= {key: value for key, value in more.items() if key not in {"phase", "spec"}}
    status = {"phase": more.get("phase", "Running")}
    spec = {"nodeName": node, "containers": [], **more.get("spec", {})}
    cluster.store.seed(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
    )


def budget(
    cluster: ModelCluster,
    allowed: int,
    name: str = "web",
    selector: Any = None,
    status: Any = None,
    policy: str = "IfHealthyBudget",
) -> None:
    metadata = {"name": name, "namespace": "default"}
    selector = {"matchLabels": {"app": "web"}} if selector is None else selector
    spec = {"selector": selector, "unhealthyPodEvictionPolicy": policy}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}
    cluster.store.seed({**body, "status": {"disruptionsAllowed": allowed, **(status or {})}})


def node(cluster: ModelCluster) -> Any:
    return cluster.get("Node", "n")


def test_a_drain_evicts_what_can_run_elsewhere(cluster: ModelCluster) -> None:
    assert paths(changes(cluster, DRAINED)) == ["~ schedulable", "- pod default/web-1"]
    budget(cluster, 1)
    assert bring(cluster, DRAINED)[0].verdict is Verdict.DONE
    names = {body["metadata"]["name"] for body in cluster.store.listed(cluster.store.kind("Pod"))}
    assert names == {"daemon", "ended", "static", "elsewhere"}
    assert node(cluster)["spec"]["unschedulable"] is True
    assert changes(cluster, DRAINED) == ()


def test_only_a_node_that_pods_must_leave_asks(cluster: ModelCluster) -> None:
    free = NodeDrained(API, "free", "free")
    cluster.add_node("free", "10.0.0.3")
    pod(cluster, "daemon-2", owner="DaemonSet", node="free")
    risks = []
    for resource in (free, DRAINED):
        remedy = resource.fix(ask(cluster, *resource.queries()))
        assert isinstance(remedy, ApiCall)
        risks.append(remedy.risks)
    assert risks == [(), (Effect(DRAIN, "n"),)]


def test_a_budget_is_named_before_anything_is_cordoned(cluster: ModelCluster) -> None:
    budget(cluster, 0)
    assert problem(cluster, DRAINED) == "DRAIN_BLOCKED"
    assert cluster.writes() == []


def expression(operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "app", "operator": operator, "values": list(values)}]}


SELECTORS = [
    ({}, True),
    (expression("In", "web", "db"), True),
    (expression("NotIn", "db"), True),
    (expression("Exists"), True),
    (expression("In", "db"), False),
    (expression("NotIn", "web"), False),
    (expression("DoesNotExist"), False),
    ({"matchLabels": {"app": "web"}, **expression("In", "db")}, False),
]


@pytest.mark.parametrize(("selector", "is_kept"), SELECTORS)
def test_the_pods_of_a_budget_are_those_of_its_whole_selector(
    cluster: ModelCluster, selector: Any, is_kept: bool
) -> None:
    budget(cluster, 0, selector=selector)
    if is_kept:
        assert problem(cluster, DRAINED) == "DRAIN_BLOCKED"
        assert cluster.writes() == []
    else:
        assert bring(cluster, DRAINED)[0].verdict is Verdict.DONE


def test_two_budgets_of_one_pod_are_named_before_anything_is_cordoned(cluster: ModelCluster) -> None:
    for name in ("a", "b"):
        budget(cluster, 1, name)  # kube-apiserver 1.36.2 answers HTTP 500 to the eviction
    remedy = DRAINED.fix(ask(cluster, *DRAINED.queries()))
    assert isinstance(remedy, Impossible)
    assert "default/web-1 has more than one PodDisruptionBudget: default/a, default/b" in (
        remedy.diagnostic.summary
    )
    pods = "/api/v1/namespaces/default/pods"
    body = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web-1"}})
    answer = cluster.api.handle(Request("POST", f"{pods}/web-1/eviction", "application/json", body))
    assert answer.status == 500


HEALTHY = {"currentHealthy": 1, "desiredHealthy": 1}


@pytest.mark.parametrize(
    ("phase", "status", "policy", "leaves"),
    [
        ("Pending", {}, "IfHealthyBudget", True),
        ("Running", HEALTHY, "IfHealthyBudget", True),
        ("Running", {"currentHealthy": 1, "desiredHealthy": 0}, "IfHealthyBudget", False),
        ("Running", {"currentHealthy": 0, "desiredHealthy": 1}, "IfHealthyBudget", False),
        ("Running", {"currentHealthy": 0, "desiredHealthy": 1}, "AlwaysAllow", True),
    ],
)
def test_a_pod_that_is_not_ready_is_kept_only_as_the_api_keeps_it(
    cluster: ModelCluster, phase: str, status: Any, policy: str, leaves: bool
) -> None:
    """As kube-apiserver 1.36.2 answered to the eviction of such pods."""
    cluster.controllers.clear()  # one of them would start the pod
    pod(cluster, "web-1", labels={"app": "web"}, phase=phase)
    budget(cluster, 0, status=status, policy=policy)
    remedy = DRAINED.fix(ask(cluster, *DRAINED.queries()))
    assert isinstance(remedy, ApiCall if leaves else Impossible)


def test_a_refusal_after_the_cordon_does_not_say_that_nothing_was_changed(cluster: ModelCluster) -> None:
    body = {"kind": "Status", "message": "no", "reason": "Forbidden", "code": 403}
    cluster.api.faults.append(answering(403, body, method="POST", path="/eviction", times=1))
    diagnostic = bring(cluster, DRAINED)[0].diagnostic
    assert diagnostic is not None
    assert (diagnostic.code, diagnostic.untouched) == ("KUBE_FORBIDDEN", "")
    assert node(cluster)["spec"]["unschedulable"] is True


def test_a_pod_that_nobody_would_start_again_is_not_evicted(cluster: ModelCluster) -> None:
    pod(cluster, "bare", owner="")
    assert problem(cluster, DRAINED) == "DRAIN_UNMANAGED_PODS"
    assert cluster.writes() == []


def test_a_pod_that_is_being_deleted_is_waited_for(cluster: ModelCluster) -> None:
    """It works until its time is over; the API asks no budget, and its owner no more."""
    for name in ("a", "b"):
        budget(cluster, 0, name, selector={"matchLabels": {"app": "goes"}})
    going: dict[str, Any] = {"deletionTimestamp": "2026-12-01T10:00:00Z", "finalizers": ["example.org/keep"]}
    pod(cluster, "goes", owner="", labels={"app": "goes"}, **going)
    told = {change.path: change.old for change in changes(cluster, DRAINED)}
    assert (told["pod default/goes"], told["pod default/web-1"]) == ("terminating", "running")
    remedy = DRAINED.fix(ask(cluster, *DRAINED.queries()))
    assert isinstance(remedy, ApiCall)
    assert {str(request.data.get("name")) for request in remedy.requests[1:]} == {"goes", "web-1"}


def test_a_pod_whose_containers_have_ended_is_out_of_the_way(cluster: ModelCluster) -> None:
    """The kubelet of Kubernetes 1.36.2 writes `Failed` into a pod that a finalizer holds."""
    pod(cluster, "held", finalizers=["example.org/keep"])
    body = {"metadata": {"name": "held", "deletionTimestamp": "x"}, "status": {"phase": "Failed"}}
    cluster.api.faults.append(answering(200, body, method="GET", path="/pods/held", times=9))
    assert bring(cluster, DRAINED)[0].verdict is Verdict.DONE


def test_a_pod_has_the_time_that_it_asks_for(cluster: ModelCluster) -> None:
    pod(cluster, "slow", spec={"terminationGracePeriodSeconds": 900})
    remedy = DRAINED.fix(ask(cluster, *DRAINED.queries()))
    assert isinstance(remedy, ApiCall)
    seconds = {request.data.get("name"): request.task for request in remedy.requests}
    assert seconds["slow"] > seconds["web-1"] + 800


def test_only_what_we_cordoned_is_uncordoned(cluster: ModelCluster) -> None:
    usable = NodeUsable(API, "n", waits=True)
    bring(cluster, DRAINED)
    assert paths(changes(cluster, usable)) == ["~ schedulable"]
    assert bring(cluster, usable)[0].verdict is Verdict.DONE
    assert changes(cluster, usable) == ()
    assert "unschedulable" not in node(cluster)["spec"]
    assert CORDONED not in node(cluster)["metadata"].get("annotations", {})


def test_what_a_person_has_cordoned_stays_cordoned(cluster: ModelCluster) -> None:
    held = node(cluster)
    made = {**held, "spec": {"unschedulable": True}}
    cluster.store.update(cluster.store.kind("Node"), ("", "n"), made, Write("kubectl-cordon"))
    bring(cluster, DRAINED)
    assert changes(cluster, NodeUsable(API, "n")) == ()
    assert node(cluster)["spec"]["unschedulable"] is True


def test_a_node_that_is_not_in_the_cluster_is_not_drained(cluster: ModelCluster) -> None:
    assert changes(cluster, NodeDrained(API, "other", "other")) == ()


SITE = """
version: 1
name: site
k3s: { version: v1.35.7+k3s1, endpoint: 10.0.0.100 }
nodes:
  s1: { address: 10.0.0.1, k3s: server }
  s2: { address: 10.0.0.2, k3s: server }
  s3: { address: 10.0.0.3, k3s: server }
  a1: { address: 10.0.0.4, k3s: agent }
  other: { address: 10.0.0.5 }
"""


def test_what_takes_nodes_away_and_how_many_may_be_away(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(SITE)
    inventory = load_inventory(path, environ={})
    (hook,) = hooks(inventory)
    assert hook is _DRAIN_HOOK
    classes = effect_classes()
    affected = {
        name: [each.name for each in hook.affected(inventory, "a1", cls)] for name, cls in classes.items()
    }
    assert {name for name, found in affected.items() if found == ["a1"]} == {
        "gpu-pods-lose-device",
        "power-cycle",
        "reboot-guest",
        "reboot-node",
        "reboot-hypervisor",
        "rejoin-k3s",
        "replace",
    }
    assert not hook.affected(inventory, "other", classes["reboot-node"])
    assert hook.works_without(inventory, frozenset({"s1", "a1"}))
    assert not hook.works_without(inventory, frozenset({"s1", "s2"}))
    assert hook.limit(inventory) == 1
