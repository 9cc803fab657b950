"""Releases by the program helm: found by their chart, upgraded by what differs; logs of failed Jobs."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace

import pytest

from provision.contracts.driver import Verdict
from provision.contracts.remedy import Blob
from provision.kube.charts import Chart
from provision.kube.names import API
from provision.kube.releases import HIDDEN, HelmReleases, Release
from provision.kube.resources.cli_release import CliAbsent, CliRelease
from provision.kube.resources.release import HelmRelease
from provision.testing.model_cluster import ModelCluster
from provision.testing.model_helm import secret_of
from tests.unit.kube.site import ask, bring, changes, paths, problem

PROGRAM = Blob("0" * 64, b"helm")


def archive(version: str = "v1.0.0", name: str = "operator") -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as packed:
        data = f"apiVersion: v2\nname: {name}\nversion: {version}\n".encode()
        member = tarfile.TarInfo(f"{name}/Chart.yaml")
        member.size = len(data)
        packed.addfile(member, io.BytesIO(data))
    return target.getvalue()


def release(version: str = "v1.0.0", **values: object) -> CliRelease:
    chart = Chart("operator", version, archive=Blob("1" * 64, archive(version)))
    return CliRelease(API, "operator", chart, "op", json.dumps(values), PROGRAM)


def seeded(
    cluster: ModelCluster, status: str, revision: int = 1, version: str = "v1.0.0", **values: object
) -> None:
    one = Release("operator", "op", "operator", version, revision, status)
    cluster.store.seed(secret_of(one, values))


@pytest.fixture
def cluster() -> ModelCluster:
    return ModelCluster()


def test_helm_installs_once_and_the_next_plan_is_empty(cluster: ModelCluster) -> None:
    assert paths(changes(cluster, release(a=1))) == ["+ release"]
    assert bring(cluster, release(a=1))[0].verdict is Verdict.DONE
    assert changes(cluster, release(a=1)) == ()
    assert [task.verb for task in cluster.program.tasks] == ["upgrade"]
    assert cluster.get("HelmChart", "operator", "kube-system") is None


def test_another_version_and_other_values_are_one_upgrade(cluster: ModelCluster) -> None:
    bring(cluster, release(driver={"enabled": True}))
    newer = release("v2.0.0", driver={"enabled": False})
    found = [(change.path, change.old, change.new) for change in changes(cluster, newer)]
    assert found == [("version", "v1.0.0", "v2.0.0"), ("values.driver.enabled", True, False)]
    bring(cluster, newer)
    assert changes(cluster, newer) == ()
    assert len(cluster.program.tasks) == 2


def test_a_value_that_is_not_declared_is_reset_and_not_shown(cluster: ModelCluster) -> None:
    seeded(cluster, "deployed", password="hunter2")
    change = changes(cluster, release())[0]
    assert (change.path, change.old, change.new) == ("values.password", HIDDEN, None)
    assert "hunter2" not in repr(changes(cluster, release()))


def test_all_questions_about_releases_cost_one_list_of_secrets(cluster: ModelCluster) -> None:
    before = len(cluster.requests)
    ask(cluster, *release().queries())
    assert [request.path.partition("?")[0] for request in cluster.requests[before:]] == [
        "/apis/helm.cattle.io/v1/namespaces/kube-system/helmcharts",
        "/api/v1/secrets",
    ]


def test_the_chart_under_another_name_is_found_before_helm_runs(cluster: ModelCluster) -> None:
    other = Release("operator-1702439910", "tools", "operator", "v0.9.0", 3, "deployed")
    cluster.store.seed(secret_of(other, {}))
    assert problem(cluster, release()) == "HELM_RELEASE_EXISTS"
    assert cluster.program.tasks == []


def test_a_release_of_the_helm_controller_is_not_taken(cluster: ModelCluster) -> None:
    chart = Chart("operator", "v1.0.0", "https://charts.example.org")
    bring(cluster, HelmRelease(API, "operator", chart, "op", "{}", "r"))
    assert problem(cluster, release()) == "HELM_BACKEND_MIXED"


@pytest.mark.parametrize(
    ("status", "revision", "command"),
    [
        ("pending-install", 1, "helm uninstall operator -n op"),
        ("pending-upgrade", 4, "helm rollback operator -n op"),
        ("pending-rollback", 5, "helm rollback operator -n op"),
    ],
)
def test_a_helm_that_works_or_was_killed_is_named(
    cluster: ModelCluster, status: str, revision: int, command: str
) -> None:
    seeded(cluster, status, revision)
    assert problem(cluster, release()) == "HELM_PENDING"
    assert command in str(release().fix(ask(cluster, *release().queries())))


@pytest.mark.parametrize("status", ["failed", "uninstalled", "superseded", "unknown", "uninstalling"])
def test_a_release_in_another_state_is_deployed_again(cluster: ModelCluster, status: str) -> None:
    seeded(cluster, status)
    assert [(one.path, one.old, one.new) for one in changes(cluster, release())] == [
        ("status", status, "deployed")
    ]
    bring(cluster, release())
    assert changes(cluster, release()) == ()


def test_a_failed_hook_shows_the_log_of_its_job(cluster: ModelCluster) -> None:
    cluster.helm.failing["operator"] = "failed pre-install: job helm-crds failed"
    condition = {"type": "Failed", "status": "True", "message": "BackoffLimitExceeded"}
    for kind, body in {
        "Job": {"apiVersion": "batch/v1", "spec": {}, "status": {"conditions": [condition]}},
        "Pod": {"apiVersion": "v1", "spec": {}, "status": {"phase": "Failed"}},
    }.items():
        metadata = {"name": "helm-crds", "namespace": "op", "labels": {"job-name": "helm-crds"}}
        cluster.store.seed({**body, "kind": kind, "metadata": metadata})
    cluster.helm.logs["op", "helm-crds"] = "no matches for kind\nexit"
    result = bring(cluster, release())[0]
    assert result.diagnostic is not None
    assert result.diagnostic.code == "HELM_FAILED"
    assert "failed pre-install" in result.diagnostic.summary
    assert result.diagnostic.evidence[-3:] == ("log of job helm-crds:", "no matches for kind", "exit")
    assert [change.path for change in changes(cluster, release())] == ["status"]


def test_removal_runs_helm_where_a_release_is_there(cluster: ModelCluster) -> None:
    gone = CliAbsent(API, "operator", "op", PROGRAM)
    assert changes(cluster, gone) == ()
    bring(cluster, release())
    bring(cluster, gone)
    assert ask(cluster, HelmReleases())[HelmReleases()] == ()
    assert changes(cluster, gone) == ()


def test_a_chart_that_helm_cannot_read_is_a_failed_action(cluster: ModelCluster) -> None:
    broken = replace(release(), chart=Chart("operator", "v1.0.0", archive=Blob("2" * 64, b"nothing")))
    result = bring(cluster, broken)[0]
    assert result.diagnostic is not None
    assert "Chart.yaml" in result.diagnostic.summary
