"""Pods of checks: bounded, read by their logs, gone afterwards; nobody is evicted, and failures end early."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import pytest

from provision.contracts.check import NotRun, Site
from provision.contracts.query import ApiReply
from provision.kube.checks import pods, trial_space
from provision.kube.checks.pods import PodGroup, run_pods
from provision.testing.model_cluster import ModelCluster, answering
from provision.testing.model_pods import Run, ended, unschedulable, waiting
from provision.values.cancel import Interrupted

T = TypeVar("T")
IMAGE = "registry.example/tool@sha256:" + "a" * 64


@dataclass
class Bench:
    """Trials on a model cluster; waiting takes no time."""

    cluster: ModelCluster
    run: str = "20261201-101112-abcdef"
    waited: float = 0.0
    interrupted: bool = False
    removals: dict[str, Callable[[], None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.driver = self.cluster.driver()

    def send(self, system: str, method: str, path: str, body: Mapping[str, object] | None = None) -> ApiReply:
        assert system == "cluster/api"
        return self.driver.send(method, path, body)

    def pause(self, seconds: float, *, final: bool = False) -> None:
        self.waited += seconds
        if self.interrupted and not final:
            raise Interrupted

    def once(self, name: str, make: Callable[[], T]) -> T:
        del name
        return make()

    def at_end(self, name: str, remove: Callable[[], None]) -> None:
        self.removals.setdefault(name, remove)

    def end(self) -> None:
        for remove in self.removals.values():
            remove()


class _Site:
    def is_away(self, system: str) -> bool:
        del system
        return False


SITE = cast(Site, _Site())


@pytest.fixture
def cluster() -> ModelCluster:
    cluster = ModelCluster()
    cluster.add_node("a", "198.18.0.11")
    return cluster


@pytest.fixture
def bench(cluster: ModelCluster) -> Bench:
    return Bench(cluster)


def group(**more: Any) -> PodGroup:
    return PodGroup(**{"name": "one", "image": IMAGE, "script": "true", "node": "a", **more})


def test_logs_of_all_pods_are_the_result_and_nothing_remains(cluster: ModelCluster, bench: Bench) -> None:
    before = cluster.dump()
    cluster.pods.behaviours.append(lambda pod: Run(f"I am {pod['metadata']['name']}\n", 0))
    ends = run_pods(SITE, bench, "look", [group(count=2), group(name="two")], seconds=60)
    assert [(end.group, end.node, end.code, end.log) for end in ends] == [
        ("one", "a", 0, "I am look-one-0\n"),
        ("one", "a", 0, "I am look-one-1\n"),
        ("two", "a", 0, "I am look-two-0\n"),
    ]
    assert not cluster.store.listed(cluster.store.kind("Pod")), "they are gone before the next trial begins"
    bench.end()
    assert cluster.dump() == before


def test_what_is_made_is_bounded_labelled_and_preempts_nobody(cluster: ModelCluster, bench: Bench) -> None:
    run_pods(SITE, bench, "look", [group(resources={"nvidia.com/gpu": "1"})], seconds=60)
    sent = {
        request.path: json.loads(request.body) for request in cluster.requests if request.method == "POST"
    }
    space, priority = sent["/api/v1/namespaces"], sent["/apis/scheduling.k8s.io/v1/priorityclasses"]
    name = space["metadata"]["name"]
    job = sent[f"/apis/batch/v1/namespaces/{name}/jobs"]
    assert name == "provision-verify-20261201-101112-abcdef"
    assert (priority["value"], priority["preemptionPolicy"]) == (-1000, "Never")
    assert job["spec"]["template"]["spec"]["priorityClassName"] == priority["metadata"]["name"]
    spec = job["spec"]
    assert (spec["activeDeadlineSeconds"], spec["backoffLimit"], spec["ttlSecondsAfterFinished"]) == (
        60,
        0,
        60,
    )
    assert spec["template"]["spec"]["automountServiceAccountToken"] is False
    for body in (space, priority, job):
        assert body["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "provision"
        assert body["metadata"]["labels"]["provision/run"] == bench.run


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (
            unschedulable("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."),
            "stays Pending: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        ),
        # As kube-apiserver 1.36.2 leaves a pod whose scheduler is not there: no condition at all.
        (Run(status={"phase": "Pending"}), "stays Pending: no scheduler kai-scheduler takes it"),
        (
            waiting("CrashLoopBackOff", "back-off 10s restarting failed container"),
            "CrashLoopBackOff: back-off",
        ),
        (waiting("CreateContainerError", "failed to inject CDI devices"), "failed to inject CDI devices"),
        (
            ended("UnexpectedAdmissionError", "Allocate failed due to no healthy devices"),
            "no healthy devices",
        ),
    ],
)
def test_a_pod_that_cannot_run_fails_early_with_the_reason(
    cluster: ModelCluster, bench: Bench, run: Run, text: str
) -> None:
    cluster.pods.behaviours.append(lambda _pod: run)
    with pytest.raises(AssertionError, match=text):
        run_pods(SITE, bench, "look", [group(scheduler="kai-scheduler")], seconds=3600)
    assert bench.waited <= pods.PATIENCE + 1
    assert not cluster.store.listed(cluster.store.kind("Job"))


def terminated(reason: str, code: int, message: str = "") -> Run:
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return Run(status={"phase": "Failed", "containerStatuses": [{"name": "main", "state": state}]})


@pytest.mark.parametrize(
    ("reason", "code", "message", "text"),
    [
        (
            "StartError",
            128,
            'unable to start container process: exec: "/bin/sh": stat /bin/sh: no such file or directory',
            'look-one-0: StartError: unable to start container process: exec: "/bin/sh"',
        ),
        ("OOMKilled", 137, "", "look-one-0: OOMKilled"),
    ],
)
def test_a_container_that_did_not_end_by_itself_says_why(
    cluster: ModelCluster, bench: Bench, reason: str, code: int, message: str, text: str
) -> None:
    """As the kubelet of Kubernetes 1.36.2 writes it: the log is empty then, or stops anywhere."""
    cluster.pods.behaviours.append(lambda _pod: terminated(reason, code, message))
    with pytest.raises(AssertionError, match=text):
        run_pods(SITE, bench, "look", [group()], seconds=60)


LATE = [
    {
        "type": "FailureTarget",
        "status": "True",
        "reason": "DeadlineExceeded",
        "message": "Job was active longer than specified deadline",
    }
]
"""What Kubernetes 1.36.2 writes into a Job before it removes its pods."""


@pytest.mark.parametrize(
    ("conditions", "kind", "text"),
    [
        (
            LATE,
            AssertionError,
            "look-one-0 did not end in time: Job was active longer than specified deadline",
        ),
        ([], NotRun, "look-one-0 went before the end: somebody has removed or evicted"),
    ],
)
def test_pods_that_went_are_no_controller_that_made_none(
    cluster: ModelCluster, bench: Bench, conditions: Any, kind: type[Exception], text: str
) -> None:
    cluster.pods.behaviours.append(lambda _pod: Run("busy", None))
    wait = bench.pause

    def pause(seconds: float, *, final: bool = False) -> None:
        wait(seconds, final=final)
        pods_kind, jobs = cluster.store.kind("Pod"), cluster.store.kind("Job")
        if bench.waited == 3:
            for pod in cluster.store.listed(pods_kind):
                cluster.store.delete(pods_kind, (pod["metadata"]["namespace"], pod["metadata"]["name"]))
            for job in cluster.store.listed(jobs):
                cluster.store.seed({**job, "status": {"conditions": conditions}})

    bench.pause = pause  # type: ignore[method-assign]  # the controller of Jobs, or a person, between two looks
    with pytest.raises(kind, match=text):
        run_pods(SITE, bench, "look", [group()], seconds=60)
    assert bench.waited < pods.PATIENCE / 2


def test_the_end_of_a_long_log_is_read(cluster: ModelCluster, bench: Bench) -> None:
    noise = "".join(f"line {number} {'x' * 50}\n" for number in range(9000))
    cluster.pods.behaviours.append(lambda _pod: Run(f"begin 1\n{noise}result 7\n{pods.DONE}\n", None))
    (end,) = run_pods(SITE, bench, "look", [group(holds=True)], seconds=60)
    assert [*pods.lines_after(end.log, "begin"), *pods.lines_after(end.log, "result")] == ["1", "7"]
    assert bench.waited == 0


@pytest.mark.parametrize("size", [5, 12, 18, 30])
def test_the_two_parts_of_a_log_overlap_nowhere(size: int) -> None:
    log = "".join(f"{number}\n" for number in range(20))
    tail = "".join(f"{number}\n" for number in range(5, 20))
    whole = trial_space.joined(log[:size], tail).splitlines()
    assert whole == sorted(set(whole), key=int)
    assert whole[-15:] == tail.splitlines()


REFUSED = 'Get "https://10.0.0.1:10250/containerLogs/x/y/z": dial tcp 10.0.0.1:10250: connection refused'
"""As kube-apiserver 1.36.2 answers, with HTTP 500, for a node whose kubelet is not there."""


def test_a_log_that_cannot_be_read_is_no_empty_log(cluster: ModelCluster, bench: Bench) -> None:
    status = {"kind": "Status", "status": "Failure", "message": REFUSED, "code": 500}
    cluster.api.faults.append(answering(500, status, method="GET", path="/log"))
    with pytest.raises(pytest.skip.Exception, match=r"unknown: GET .* 500 .*connection refused"):
        run_pods(SITE, bench, "look", [group()], seconds=60)


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"])
def test_an_image_that_cannot_be_pulled_proves_nothing(
    cluster: ModelCluster, bench: Bench, reason: str
) -> None:
    run = waiting(reason, f'failed to pull image "{IMAGE}": not found')
    cluster.pods.behaviours.append(lambda _pod: run)
    with pytest.raises(pytest.skip.Exception, match=rf"unknown: look-one-0: {reason}: failed to pull"):
        run_pods(SITE, bench, "look", [group()], seconds=3600)
    assert bench.waited == 0.0


def test_the_reason_why_no_pod_was_made_is_that_of_the_job_controller(
    cluster: ModelCluster, bench: Bench
) -> None:
    cluster.pods.refusal = 'Error creating: pods "x" is forbidden: RuntimeClass "nvidia" not found'
    with pytest.raises(AssertionError, match='RuntimeClass "nvidia" not found'):
        run_pods(SITE, bench, "look", [group(runtime_class="nvidia")], seconds=3600)
    assert bench.waited <= pods.PATIENCE


def test_without_a_controller_of_jobs_nobody_waits_for_pods(cluster: ModelCluster, bench: Bench) -> None:
    cluster.controllers.remove(cluster.pods)
    with pytest.raises(AssertionError, match="the controller of Jobs has made no pod within 20 s"):
        run_pods(SITE, bench, "look", [group()], seconds=3600)
    assert bench.waited <= pods.PATIENCE + 1


def test_pods_that_had_to_leave_their_node_are_not_run(cluster: ModelCluster, bench: Bench) -> None:
    cluster.pods.behaviours.append(lambda _pod: ended("Preempted", "preempted by kube-system/other"))
    with pytest.raises(NotRun, match="preempted by kube-system/other"):
        run_pods(SITE, bench, "look", [group()], seconds=60)


def test_pods_that_do_not_end_have_a_deadline(cluster: ModelCluster, bench: Bench) -> None:
    cluster.pods.behaviours.append(lambda _pod: Run("busy", None))
    with pytest.raises(AssertionError, match="did not end within 9 s: look-one-0 is Running"):
        run_pods(SITE, bench, "look", [group()], seconds=9)
    assert not cluster.store.listed(cluster.store.kind("Pod"))


SANDBOX = (
    (
        'Failed to create pod sandbox: plugin type="multus" name="multus-cni-network" failed (add):'
        ' error adding container to network "roce": failed to find plugin "macvlan" in path [/opt/cni/bin]'
    ),
    (
        'Failed to create pod sandbox: plugin type="multus" failed (add): Multus: [x/look-one-0]: error'
        " getting pod: Unauthorized"
    ),
)
"""Quoted from k3s#9224 and multus-cni#852."""


@pytest.mark.parametrize("message", SANDBOX)
def test_a_pod_whose_network_fails_says_why(cluster: ModelCluster, bench: Bench, message: str) -> None:
    def run(pod: Mapping[str, Any]) -> Run:
        metadata = {"name": "e.1", "namespace": pod["metadata"]["namespace"]}
        about = {"kind": "Pod", "name": pod["metadata"]["name"]}
        event = {"type": "Warning", "reason": "FailedCreatePodSandBox", "message": message}
        body = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about}
        cluster.store.seed({**body, **event})
        return waiting("ContainerCreating")

    cluster.pods.behaviours.append(run)
    with pytest.raises(AssertionError) as caught:
        run_pods(SITE, bench, "look", [group()], seconds=30)
    assert f"look-one-0 is Pending: FailedCreatePodSandBox: {message}" in str(caught.value)


def test_pods_that_hold_are_read_together_before_they_go(cluster: ModelCluster, bench: Bench) -> None:
    cluster.pods.behaviours.append(lambda _pod: Run(f"uuid GPU-1\n{pods.DONE}\n", None))
    present: list[int] = []

    def count(ends: tuple[pods.PodEnd, ...]) -> None:
        present.append(len(cluster.store.listed(cluster.store.kind("Pod"))))
        assert [list(pods.lines_after(end.log, "uuid")) for end in ends] == [["GPU-1"]] * 3

    ends = run_pods(SITE, bench, "look", [group(count=3, holds=True)], seconds=60, meanwhile=count)
    assert ([end.code for end in ends], present) == ([None, None, None], [3])


def test_a_failed_pod_ends_its_group_and_no_other(cluster: ModelCluster, bench: Bench) -> None:
    def run(pod: dict[str, Any]) -> Run:
        return Run("", 1) if pod["metadata"]["name"].endswith("one-0") else Run("busy", None)

    cluster.pods.behaviours.append(run)
    wait = bench.pause

    def pause(seconds: float, *, final: bool = False) -> None:
        wait(seconds, final=final)
        kind = cluster.store.kind("Pod")
        for pod in cluster.store.listed(kind):  # as the controller of Jobs does; the second Job ends later
            place = (pod["metadata"]["namespace"], pod["metadata"]["name"])
            if place[1].endswith("one-1"):
                cluster.store.delete(kind, place)
            elif place[1].endswith("two-0") and bench.waited >= 3:
                cluster.store.seed({**pod, "status": {"phase": "Succeeded", "containerStatuses": []}})

    bench.pause = pause  # type: ignore[method-assign]  # a controller that acts between two looks
    ends = run_pods(SITE, bench, "look", [group(count=2), group(name="two")], seconds=60)
    assert [(end.name, end.code) for end in ends] == [("look-one-0", 1), ("look-two-0", 1)]
    assert bench.waited < 10


def test_an_interrupted_check_leaves_nothing(cluster: ModelCluster, bench: Bench) -> None:
    before = cluster.dump()
    cluster.pods.behaviours.append(lambda _pod: Run("busy", None))
    bench.interrupted = True
    with pytest.raises(Interrupted):
        run_pods(SITE, bench, "look", [group()], seconds=60)
    bench.end()
    assert cluster.dump() == before


def test_a_later_run_sweeps_what_a_killed_one_left_and_no_other(cluster: ModelCluster, bench: Bench) -> None:
    before = cluster.dump()
    cluster.pods.behaviours.append(lambda _pod: Run("busy", None))
    dead = Bench(cluster, run="dead")
    with pytest.raises(AssertionError):
        run_pods(SITE, dead, "look", [group()], seconds=1)
    held = cluster.get("Namespace", "provision-verify-dead")
    assert held is not None
    process = next(number for number in range(4_000_000, 5_000_000) if not os.path.exists(f"/proc/{number}"))  # noqa: PTH110 - a number of many
    annotations = {"provision/process": f"{socket.gethostname()}/{process}"}
    cluster.store.seed({**held, "metadata": {**held["metadata"], "annotations": annotations}})
    living = Bench(cluster, run="living")
    cluster.pods.behaviours.clear()
    run_pods(SITE, living, "look", [group()], seconds=60)
    run_pods(SITE, bench, "look", [group()], seconds=60)
    names = {body["metadata"]["name"] for body in cluster.store.listed(cluster.store.kind("Namespace"))}
    assert "provision-verify-dead" not in names
    assert {"provision-verify-living", f"provision-verify-{bench.run}"} <= names
    living.end()
    bench.end()
    assert cluster.dump() == before


def test_what_does_not_go_is_an_error(
    cluster: ModelCluster, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_space, "GOING", 5.0)
    run_pods(SITE, bench, "look", [group()], seconds=60)
    held = cluster.get("Namespace", f"provision-verify-{bench.run}")
    assert held is not None
    text = "Discovery failed for some groups, 1 failing: metrics.k8s.io/v1beta1"
    condition = {"type": "NamespaceDeletionDiscoveryFailure", "status": "True", "message": text}
    metadata = {**held["metadata"], "finalizers": ["example.org/never"]}
    cluster.store.seed({**held, "metadata": metadata, "status": {"conditions": [condition]}})
    cluster.controllers.clear()
    with pytest.raises(AssertionError, match=r"1 failing: metrics\.k8s\.io/v1beta1: not gone after 5 s"):
        bench.end()


def test_without_the_right_to_make_a_namespace_nothing_is_run(cluster: ModelCluster, bench: Bench) -> None:
    refusal = {"kind": "Status", "message": 'User "x" cannot create resource "priorityclasses"', "code": 403}
    cluster.api.faults.append(answering(403, refusal, method="POST", path="priorityclasses"))
    with pytest.raises(NotRun, match='not allowed: User "x" cannot create'):
        run_pods(SITE, bench, "look", [group()], seconds=60)


@pytest.mark.parametrize(("count", "seconds"), [(65, 60), (1, 3601), (1, 0)])
def test_more_than_the_bounds_is_not_run(bench: Bench, count: int, seconds: int) -> None:
    with pytest.raises(NotRun, match="are more than"):
        run_pods(SITE, bench, "look", [group(count=count)], seconds=seconds)
    assert bench.driver.round_trips == 0


def test_what_others_hold_on_a_node_is_counted() -> None:
    def pod(name: str, node: str, phase: str, amount: str) -> dict[str, Any]:
        limits = {"limits": {"nvidia.com/gpu": amount}}
        spec = {"nodeName": node, "containers": [{"resources": limits}, {}]}
        return {"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": {"phase": phase}}

    rows = [pod("x", "a", "Running", "2"), pod("y", "b", "Running", "1"), pod("z", "a", "Succeeded", "4")]
    assert pods.uses(rows, "a", "nvidia.com/gpu") == {"ns/x": 2}
