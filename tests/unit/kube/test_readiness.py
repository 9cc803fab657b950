"""When an object is ready, and when waiting for it is of no use."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.kube.readiness import Conditions, State, readiness


def of(kind: str, status: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"generation": 2}, "spec": spec, "status": status}


def waiting(reason: str, restarts: int = 0) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": "m"}}
    return {
        "phase": "Pending",
        "containerStatuses": [{"name": "a", "state": state, "restartCount": restarts}],
    }


DAEMONS = {
    "observedGeneration": 2,
    "desiredNumberScheduled": 2,
    "updatedNumberScheduled": 2,
    "numberReady": 2,
}
DEPLOYED = {"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 1}


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (of("DaemonSet", DAEMONS), State.READY),
        (of("DaemonSet", {**DAEMONS, "observedGeneration": 1}), State.WAITING),
        (of("DaemonSet", {**DAEMONS, "updatedNumberScheduled": 1}), State.WAITING),
        (of("DaemonSet", {**DAEMONS, "numberReady": 1}), State.WAITING),
        (of("DaemonSet", {}), State.WAITING),
        (of("Deployment", DEPLOYED), State.READY),
        (of("Deployment", DEPLOYED, replicas=2), State.WAITING),
        (
            of(
                "Deployment",
                {"conditions": [{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}]},
            ),
            State.BROKEN,
        ),
        (of("Job", {"conditions": [{"type": "Complete", "status": "True"}]}), State.READY),
        (of("Job", {"conditions": [{"type": "Failed", "status": "True", "message": "m"}]}), State.BROKEN),
        (of("Job", {}), State.WAITING),
        (of("Pod", {"phase": "Succeeded"}), State.READY),
        (of("Pod", {"phase": "Failed"}), State.BROKEN),
        (of("Pod", waiting("ImagePullBackOff")), State.WAITING),
        (of("Pod", waiting("InvalidImageName")), State.BROKEN),
        (of("Pod", waiting("CrashLoopBackOff", 1)), State.WAITING),
        (of("Pod", waiting("CrashLoopBackOff", 9)), State.BROKEN),
        (of("Node", {"conditions": [{"type": "Ready", "status": "Unknown"}]}), State.WAITING),
        (of("Node", {"conditions": [{"type": "Ready", "status": "True"}]}), State.READY),
        (of("CustomResourceDefinition", {}), State.WAITING),
        (of("HelmChart", {"conditions": [{"type": "Failed", "status": "True"}]}), State.BROKEN),
        (of("Namespace", {"phase": "Terminating"}), State.WAITING),
        (of("ConfigMap", {}), State.READY),
    ],
)
def test_readiness_by_kind(body: dict[str, Any], state: State) -> None:
    assert readiness(body).state is state


def test_what_is_being_deleted_is_not_ready() -> None:
    body = of("ConfigMap", {})
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert readiness(body).state is State.WAITING


def test_a_deployment_says_why_its_pods_are_refused() -> None:
    # kube-controller-manager 1.36.2 in a namespace that enforces `baseline`.
    message = 'pods "d-1" is forbidden: violates PodSecurity "baseline:latest": host namespaces'
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    verdict = readiness(of("Deployment", {"observedGeneration": 2, "conditions": [failure]}))
    assert (verdict.state, verdict.reason) == (State.WAITING, f"0 of 1 pods are ready: {message}")


def test_conditions_of_a_custom_resource_name_what_is_missing() -> None:
    conditions = Conditions((("state", "ready"), ("conditions[Ready].reason", "Reconciled")))
    body = of("ClusterPolicy", {"state": "ready", "conditions": [{"type": "Ready", "reason": "NoGPUNodes"}]})
    verdict = conditions.of(body)
    assert (verdict.state, verdict.reason) == (State.WAITING, "conditions[Ready].reason is NoGPUNodes")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["Ready", "True", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["conditions", "status", "type", "state", "containerStatuses", "phase", "waiting"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@pytest.mark.hypothesis
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["DaemonSet", "Deployment", "Job", "Pod", "Node", "HelmChart", "Namespace"]), JSON)
def test_any_status_is_judged_without_an_error(kind: str, status: Any) -> None:
    assert readiness({"kind": kind, "metadata": {}, "status": status}).state in State
