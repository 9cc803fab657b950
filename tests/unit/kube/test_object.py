"""Objects of a cluster: applied, compared, waited for, removed, pruned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provision.contracts.change import Op, Settles
from provision.contracts.driver import Verdict
from provision.kube.comparison import differences
from provision.kube.kinds import CONFIG_MAP, DAEMON_SET, NAMESPACE, KubeKind
from provision.kube.names import API, selector_of
from provision.kube.queries import ListQuery, ObjectQuery, list_query, object_query
from provision.kube.resources.object import KubeAbsent, KubeObject, KubePruned, kube_object
from provision.lab.kube.app import Request
from provision.lab.kube.store import Write
from provision.testing.model_cluster import ModelCluster, answering, set_status
from tests.unit.kube.site import ask, bring, changes, paths, problem

POD = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "a", "image": "i:1"}]}}


@pytest.fixture
def cluster() -> ModelCluster:
    cluster = ModelCluster()
    cluster.add_node("node-1", "10.0.0.1")
    return cluster


def settings(**data: str) -> KubeObject:
    return kube_object(API, CONFIG_MAP, "a", {"data": data}, role="r", namespace="default")


def workload(image: str = "i:1") -> KubeObject:
    template = {**POD, "spec": {"containers": [{"name": "a", "image": image}]}}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    return kube_object(API, DAEMON_SET, "d", {"spec": spec}, role="r", namespace="default")


def test_an_object_is_made_once_and_then_as_desired(cluster: ModelCluster) -> None:
    resource = settings(x="1")
    assert paths(changes(cluster, resource)) == ["+ object"]
    assert [result.verdict for result in bring(cluster, resource)] == [Verdict.DONE]
    assert changes(cluster, resource) == ()
    assert bring(cluster, resource) == []


def test_an_unchanged_object_costs_one_list_and_no_dry_run(cluster: ModelCluster) -> None:
    resources = [settings(x="1"), workload()]
    bring(cluster, *resources)
    cluster.requests.clear()
    ask(cluster, *(query for resource in resources for query in resource.queries()))
    assert [request.method for request in cluster.requests] == ["GET", "GET"]


def test_many_objects_of_a_kind_and_namespace_cost_one_list(cluster: ModelCluster) -> None:
    ask(cluster, *(ObjectQuery("v1", "configmaps", "default", f"c-{index}") for index in range(50)))
    assert len(cluster.requests) == 1


def test_a_large_listing_comes_in_pages(cluster: ModelCluster) -> None:
    for index in range(620):
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"c{index}", "namespace": "default"},
        }
        cluster.store.seed(body)
    listing = ask(cluster, list_query(CONFIG_MAP, "default"))[list_query(CONFIG_MAP, "default")]
    assert len(listing.objects) == 620
    assert len(cluster.requests) == 2


def test_a_changed_value_and_a_dropped_key_are_seen(cluster: ModelCluster) -> None:
    bring(cluster, settings(x="1", y="2"))
    assert paths(changes(cluster, settings(x="9"))) == ["~ data.x", "- data.y"]
    bring(cluster, settings(x="9"))
    held = cluster.get("ConfigMap", "a", "default")
    assert held is not None
    assert held["data"] == {"x": "9"}


def test_fields_of_others_are_left_alone(cluster: ModelCluster) -> None:
    bring(cluster, settings(x="1"))
    edit(cluster, {"data": {"x": "1", "theirs": "2"}})
    assert changes(cluster, settings(x="1")) == ()


def edit(cluster: ModelCluster, patch: dict[str, Any]) -> None:
    held = cluster.get("ConfigMap", "a", "default")
    kind = cluster.store.kind("ConfigMap")
    cluster.store.update(kind, ("default", "a"), {**(held or {}), **patch}, Write("kubectl-edit"))


def test_a_field_that_another_manager_owns_is_a_conflict(cluster: ModelCluster) -> None:
    bring(cluster, settings(x="1"))
    edit(cluster, {"data": {"x": "7"}})
    resource = settings(x="1")
    assert "kubectl-edit" in str(changes(cluster, resource)[0].old)
    assert problem(cluster, resource) == "KUBE_CONFLICT"


def test_force_takes_a_field_from_another_manager(cluster: ModelCluster) -> None:
    bring(cluster, settings(x="1"))
    edit(cluster, {"data": {"x": "7"}})
    bring(cluster, replace(settings(x="1"), force=True))
    held = cluster.get("ConfigMap", "a", "default")
    assert held is not None
    assert held["data"] == {"x": "1"}


def test_a_field_outside_the_schema_is_a_lasting_problem(cluster: ModelCluster) -> None:
    # The server answers HTTP 500 to it: trying again would never end.
    resource = kube_object(API, CONFIG_MAP, "a", {"date": {}}, role="r", namespace="default")
    bring(cluster, settings(x="1"))
    assert problem(cluster, resource) == "KUBE_INVALID"


def test_what_needs_a_kind_to_come_is_made_once_it_is_served(cluster: ModelCluster) -> None:
    gadgets = KubeKind("example.io/v1", "Gadget", "gadgets", namespaced=False)
    resource = kube_object(API, gadgets, "g", {"spec": {"size": 1}}, role="r")
    assert paths(changes(cluster, resource)) == ["+ object"]
    calls: list[str] = []

    def define_later(request: Request) -> None:
        calls.append(request.path)
        if len(calls) == 4:
            cluster.define(definition())

    cluster.api.faults.append(define_later)
    assert [result.verdict for result in bring(cluster, resource)] == [Verdict.DONE]
    assert cluster.get("Gadget", "g") is not None


def definition() -> dict[str, Any]:
    spec = {"type": "object", "properties": {"size": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.io"},
        "spec": {
            "group": "example.io",
            "names": {"kind": "Gadget", "plural": "gadgets"},
            "scope": "Cluster",
            "versions": [{"name": "v1", "served": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def test_a_webhook_that_is_not_up_yet_is_waited_for(cluster: ModelCluster) -> None:
    text = 'Internal error occurred: failed calling webhook "v.example.io": connection refused'
    body = {"kind": "Status", "message": text, "reason": "InternalError", "code": 500}
    cluster.api.faults.append(
        answering(500, body, method="PATCH", path="fieldManager=provision&force", times=3)
    )
    emitted: list[str] = []
    resource = settings(x="1")
    assert bring(cluster, resource, emitted=emitted)[0].verdict is Verdict.DONE
    assert any("failed calling webhook" in line for line in emitted)


def test_a_dead_webhook_is_named_where_it_refuses_a_removal(cluster: ModelCluster) -> None:
    # kube-apiserver 1.36.2, to a DELETE.
    text = (
        'Internal error occurred: failed calling webhook "v.example.io": failed to call webhook: Post'
        ' "https://none.default.svc:443/?timeout=1s": service "none" not found'
    )
    bring(cluster, settings(x="1"))
    body = {"kind": "Status", "message": text, "reason": "InternalError", "code": 500}
    cluster.api.faults.append(answering(500, body, method="DELETE", path="/configmaps/a", times=1))
    diagnostic = bring(cluster, KubeAbsent(API, CONFIG_MAP, "default", "a"))[0].diagnostic
    assert diagnostic is not None
    assert diagnostic.code == "KUBE_REFUSED"
    assert "kubectl get validatingwebhookconfigurations" in diagnostic.remedy


def test_a_kind_that_is_on_its_way_out_is_waited_for(cluster: ModelCluster) -> None:
    # kube-apiserver 1.36.2, word by word: no lack of rights.
    text = (
        'gadgets.provision.example "g2" is forbidden: create not allowed while custom resource definition'
        " is terminating"
    )
    body = {"kind": "Status", "message": text, "reason": "Forbidden", "code": 403}
    cluster.api.faults.append(answering(403, body, method="PATCH", path="/configmaps/a", times=3))
    emitted: list[str] = []
    assert bring(cluster, settings(x="1"), emitted=emitted)[0].verdict is Verdict.DONE
    assert any("definition is terminating" in line for line in emitted)


def test_a_lack_of_rights_is_not_waited_for(cluster: ModelCluster) -> None:
    body = {"kind": "Status", "message": 'configmaps "a" is forbidden', "reason": "Forbidden", "code": 403}
    cluster.api.faults.append(answering(403, body, method="PATCH", path="/configmaps/a", times=1))
    assert problem(cluster, settings(x="1")) == "KUBE_FORBIDDEN"


def test_a_workload_that_is_not_ready_yet_is_waited_for(cluster: ModelCluster) -> None:
    bring(cluster, workload())
    held = cluster.get("DaemonSet", "d", "default")
    assert held is not None
    cluster.controllers.clear()
    set_status(cluster.store, cluster.store.kind("DaemonSet"), held, {"numberReady": 0})
    change = changes(cluster, workload())[0]
    assert (change.op, change.settles) == (Op.ATTENTION, Settles.WITHIN)
    assert change.old == "0 of 1 pods are ready"


def test_a_workload_that_is_not_ready_says_what_its_pods_wait_for(cluster: ModelCluster) -> None:
    """A DaemonSet of Kubernetes 1.36.2 only counts: `1 of 2 pods are updated`."""
    bring(cluster, workload())
    cluster.controllers.clear()
    waits = {"reason": "CreateContainerConfigError", "message": 'secret "none" not found'}
    row = {"name": "a", "state": {"waiting": waits}}
    for name, labels in (("d-1", {"app": "a"}), ("other", {"app": "b"})):
        metadata = {"name": name, "namespace": "default", "labels": labels}
        status = {"phase": "Pending", "containerStatuses": [row]}
        cluster.store.seed(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}, "status": status}
        )
    diagnostic = bring(cluster, replace(workload("i:2"), seconds=0.001))[0].diagnostic
    assert diagnostic is not None
    text = 'container a: CreateContainerConfigError secret "none" not found'
    assert [line for line in diagnostic.evidence if "d-1" in line] == [f"pod d-1: {text}"]
    assert not any("other" in line for line in diagnostic.evidence)


def test_old_readiness_does_not_count_for_a_new_generation(cluster: ModelCluster) -> None:
    bring(cluster, workload())
    cluster.controllers.clear()  # the status keeps saying ready, of the generation before
    result = bring(cluster, replace(workload("i:2"), seconds=0.001))[0]
    assert result.verdict is Verdict.FAILED
    assert result.diagnostic is not None
    assert result.diagnostic.code == "KUBE_NOT_READY"
    assert "has not processed the change" in result.diagnostic.summary


def test_an_immutable_field_is_refused_in_the_plan(cluster: ModelCluster) -> None:
    bring(cluster, workload())
    other = workload()
    body = other.body
    body["spec"]["selector"] = {"matchLabels": {"app": "b"}}
    changed = kube_object(API, DAEMON_SET, "d", {"spec": body["spec"]}, role="r", namespace="default")
    assert problem(cluster, changed) == "KUBE_INVALID"


def test_removal_waits_until_finalizers_are_gone(cluster: ModelCluster) -> None:
    bring(cluster, settings(x="1"))
    held = cluster.get("ConfigMap", "a", "default")
    assert held is not None
    edit(cluster, {"metadata": {**held["metadata"], "finalizers": ["example.io/keep"]}})
    absent = KubeAbsent(API, CONFIG_MAP, "default", "a", seconds=0.001)
    result = bring(cluster, absent)[0]
    assert result.diagnostic is not None
    assert result.diagnostic.code == "KUBE_NOT_REMOVED"
    assert result.diagnostic.evidence == ("finalizer example.io/keep",)
    assert [change.old for change in changes(cluster, absent)] == ["being deleted"]


def test_only_conditions_that_keep_an_object_are_named(cluster: ModelCluster) -> None:
    bring(cluster, settings(x="1"))
    held = cluster.get("ConfigMap", "a", "default")
    assert held is not None
    # What kube-apiserver 1.36.2 says of a CRD whose objects have finalizers.
    rows = (
        ("NamesAccepted", "no conflicts found"),
        ("Established", "the initial names have been accepted"),
        ("Terminating", "CustomResource deletion is in progress"),
    )
    conditions = [{"type": kind, "status": "True", "message": text} for kind, text in rows]
    metadata = {**held["metadata"], "finalizers": ["customresourcecleanup.apiextensions.k8s.io"]}
    edit(cluster, {"metadata": metadata, "status": {"conditions": conditions}})
    result = bring(cluster, KubeAbsent(API, CONFIG_MAP, "default", "a", seconds=0.001))[0]
    assert result.diagnostic is not None
    assert result.diagnostic.evidence == (
        "finalizer customresourcecleanup.apiextensions.k8s.io",
        "Terminating: CustomResource deletion is in progress",
    )


def test_a_dead_api_service_is_named_where_a_removal_hangs(cluster: ModelCluster) -> None:
    bring(cluster, kube_object(API, NAMESPACE, "n", role="r"))
    cluster.controllers.clear()
    unavailable = {"type": "Available", "status": "False", "message": "the server is currently unable"}
    cluster.store.seed(
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {"service": {"namespace": "kube-system", "name": "metrics-server"}},
            "status": {"conditions": [unavailable]},
        }
    )
    result = bring(cluster, KubeAbsent(API, NAMESPACE, "", "n", seconds=0.001))[0]
    assert result.diagnostic is not None
    assert "v1beta1.metrics.k8s.io (kube-system/metrics-server)" in "".join(result.diagnostic.evidence)


def test_a_dead_webhook_is_named_where_a_removal_hangs(cluster: ModelCluster) -> None:
    # netbirdio/kubernetes-operator#46, VictoriaMetrics/helm-charts#2726: the operator went first.
    bring(cluster, kube_object(API, NAMESPACE, "n", role="r"))
    cluster.controllers.clear()
    held = cluster.get("Namespace", "n")
    assert held is not None
    message = 'failed calling webhook "v1.example.io": service "operator-webhook" not found'
    condition = {"type": "NamespaceDeletionContentFailure", "status": "True", "message": message}
    cluster.store.seed({**held, "status": {"phase": "Terminating", "conditions": [condition]}})
    result = bring(cluster, KubeAbsent(API, NAMESPACE, "", "n", seconds=0.001))[0]
    assert result.diagnostic is not None
    assert message in "".join(result.diagnostic.evidence)
    assert "kubectl get validatingwebhookconfigurations" in result.diagnostic.remedy
    assert "finalizers were not removed" in result.diagnostic.untouched


def test_a_namespace_goes_with_what_is_in_it(cluster: ModelCluster) -> None:
    bring(cluster, kube_object(API, NAMESPACE, "n", role="r"))
    bring(cluster, kube_object(API, CONFIG_MAP, "c", {"data": {}}, role="r", namespace="n"))
    assert bring(cluster, KubeAbsent(API, NAMESPACE, "", "n"))[0].verdict is Verdict.DONE
    assert cluster.get("Namespace", "n") is None
    assert cluster.get("ConfigMap", "c", "n") is None


def test_what_is_declared_no_more_is_pruned_by_label(cluster: ModelCluster) -> None:
    for name in ("a", "b"):
        bring(cluster, kube_object(API, CONFIG_MAP, name, {}, role="r", namespace="default"))
    bring(cluster, kube_object(API, CONFIG_MAP, "other", {}, role="s", namespace="default"))
    pruned = KubePruned(API, CONFIG_MAP, "", selector_of("r"), keep=("default/a",))
    assert paths(changes(cluster, pruned)) == ["- default/b"]
    bring(cluster, pruned)
    names = [body["metadata"]["name"] for body in cluster.store.listed(cluster.store.kind("ConfigMap"))]
    assert names == ["a", "other"]
    assert changes(cluster, pruned) == ()


def test_a_kind_that_is_not_served_has_no_objects(cluster: ModelCluster) -> None:
    gadgets = KubeKind("example.io/v1", "Gadget", "gadgets")
    query = list_query(gadgets)
    snapshot = ask(cluster, query, object_query(gadgets, "x", "kube-system"))
    assert snapshot[query].is_served is False
    assert snapshot[object_query(gadgets, "x", "kube-system")] is None


def test_what_may_not_be_read_is_unknown_and_not_absent(cluster: ModelCluster) -> None:
    body = {"kind": "Status", "message": 'secrets is forbidden: User "u" cannot list', "reason": "Forbidden"}
    cluster.api.faults.append(answering(403, body, method="GET", path="/secrets"))
    query = ListQuery("v1", "secrets", "default")
    assert query in ask(cluster, query).unknown


def test_what_a_controller_counts_is_no_change() -> None:
    """Kubernetes 1.36.2 answers the dry run of a changed DaemonSet with another count."""
    count = {"deprecated.daemonset.template.generation": "1"}
    live = {"metadata": {"name": "d", "annotations": count}, "spec": {"x": 1}}
    assert [path for path, *_ in differences(live, {"metadata": {"name": "d"}, "spec": {"x": 2}})] == [
        "spec.x"
    ]
    noted = {"metadata": {"name": "d", "annotations": {**count, "lab/owner": "me"}}, "spec": {"x": 1}}
    assert [path for path, *_ in differences(live, noted)] == ["metadata.annotations"]
