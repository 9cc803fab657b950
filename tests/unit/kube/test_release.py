"""Releases: installed once, found by their chart, with the log of a failed Job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from provision.contracts.change import Settles
from provision.contracts.driver import Verdict
from provision.kube.charts import Chart
from provision.kube.names import API
from provision.kube.queries import Live
from provision.kube.releases import HelmReleases, Release, packed, releases_of
from provision.kube.resources.release import HelmAbsent, HelmRelease
from provision.kube.values import laid_over, unknown_paths
from provision.testing.model_cluster import ModelCluster
from provision.testing.model_helm import secret_of
from tests.unit.kube.site import ask, bring, changes, paths, problem, read_yaml

CHART = Chart("operator", "v1.0.0", "https://charts.example.org")
SHARED = Path(__file__).parents[4] / "shared"


def release(**values: object) -> HelmRelease:
    return HelmRelease(API, "operator", CHART, "op", json.dumps(values), "r")


@pytest.fixture
def cluster() -> ModelCluster:
    return ModelCluster()


def test_a_release_is_installed_once_and_then_as_desired(cluster: ModelCluster) -> None:
    assert paths(changes(cluster, release(a=1))) == ["+ release"]
    assert bring(cluster, release(a=1))[0].verdict is Verdict.DONE
    assert changes(cluster, release(a=1)) == ()
    found = ask(cluster, HelmReleases())[HelmReleases()]
    assert found == (Release("operator", "op", "operator", "v1.0.0", 1, "deployed"),)


def test_changed_values_are_shown_by_their_paths(cluster: ModelCluster) -> None:
    bring(cluster, release(driver={"enabled": True}))
    found = changes(cluster, release(driver={"enabled": False}))
    assert [(change.path, change.old, change.new) for change in found] == [
        ("values.driver.enabled", True, False)
    ]
    bring(cluster, release(driver={"enabled": False}))
    assert changes(cluster, release(driver={"enabled": False})) == ()


def test_another_version_is_not_deployed_until_its_release_is(cluster: ModelCluster) -> None:
    bring(cluster, release())
    newer = replace(release(), chart=replace(CHART, version="v2.0.0"))
    cluster.controllers.remove(cluster.helm)
    bring(cluster, newer)
    change = changes(cluster, newer)[0]
    assert (change.old, change.new, change.settles) == ("v1.0.0 deployed", "v2.0.0 deployed", Settles.WITHIN)


def test_a_failed_job_ends_the_wait_with_its_log(cluster: ModelCluster) -> None:
    cluster.helm.failing["operator"] = "Error: INSTALLATION FAILED: no matches for kind"
    bring(cluster, release())
    change = changes(cluster, release())[0]
    assert change.settles is Settles.NOW
    assert problem(cluster, release()) == "HELM_FAILED"
    snapshot = ask(cluster, *release().queries())
    remedy = release().fix(snapshot)
    assert "INSTALLATION FAILED" in str(remedy)


def test_the_same_chart_under_another_name_is_refused(cluster: ModelCluster) -> None:
    other = Release("operator-1702439910", "tools", "operator", "v0.9.0", 3, "deployed")
    cluster.store.seed(secret_of(other, {}))
    assert problem(cluster, release()) == "HELM_RELEASE_EXISTS"
    assert cluster.writes() == []


def test_a_release_that_helm_installed_under_our_name_is_taken_over(cluster: ModelCluster) -> None:
    cluster.store.seed(secret_of(Release("operator", "op", "operator", "v0.9.0", 1, "deployed"), {}))
    assert bring(cluster, release())[0].verdict is Verdict.DONE
    assert changes(cluster, release()) == ()


def test_removal_uninstalls_the_release(cluster: ModelCluster) -> None:
    bring(cluster, release())
    assert bring(cluster, HelmAbsent(API, "operator"))[0].verdict is Verdict.DONE
    assert ask(cluster, HelmReleases())[HelmReleases()] == ()
    assert changes(cluster, HelmAbsent(API, "operator")) == ()


def test_an_operator_release_is_never_reinstalled_by_the_controller() -> None:
    assert release().manifest["spec"]["failurePolicy"] == "abort"


def test_the_helm_chart_fits_the_schema_of_its_crd(cluster: ModelCluster) -> None:
    path = SHARED / "crds" / "HelmChart.yaml"
    if not path.exists():
        pytest.skip("../shared is absent")
    cluster.define(read_yaml(path))
    assert bring(cluster, release(a={"b": 1}))[0].verdict is Verdict.DONE
    misspelt = release()
    body = {**misspelt.manifest, "spec": {**misspelt.manifest["spec"], "valueContent": ""}}
    assert any("valueContent" in text for text in _refused(cluster, body))


def _refused(cluster: ModelCluster, body: dict[str, object]) -> list[str]:
    path = "/apis/helm.cattle.io/v1/namespaces/kube-system/helmcharts/operator?fieldManager=p"
    reply = cluster.connect().request("PATCH", path, body, content_type="application/apply-patch+yaml")
    return [str(reply.body)]


@pytest.mark.parametrize(
    "text", ["", "bm90IGJhc2U2NA==", "%%%", packed(Release("", "", "", "", 1, ""), {})[:-9]]
)
def test_a_secret_that_is_no_release_is_left_out(text: str) -> None:
    body = {"metadata": {"name": "x"}, "data": {"release": text}}
    assert releases_of([Live.of(body)]) == ()


def test_values_are_laid_over_as_helm_does() -> None:
    assert laid_over({"a": {"b": 1, "c": [1]}}, {"a": {"c": [2]}, "d": None}) == {
        "a": {"b": 1, "c": [2]},
        "d": None,
    }


def test_a_misspelt_value_is_named_by_its_path() -> None:
    defaults = {"driver": {"enabled": True, "env": []}, "labels": {}}
    values = {"driver": {"enbled": False, "env": [1]}, "labels": {"any": "thing"}, "drivers": {}}
    assert list(unknown_paths(values, defaults)) == ["driver.enbled", "drivers"]
