"""The real program helm, both major versions, against the small Kubernetes API over HTTPS.

`python tests/fetch_helm.py FOLDER` fetches both programs.
"""

from __future__ import annotations

import io
import json
import os
import ssl
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr

from provision.connections.contracts import KubeEndpoint
from provision.connections.download import download_folder
from provision.connections.helm import LocalHelm, check_major
from provision.connections.kube import HttpsKubeConnection
from provision.connections.kubeconfig import merged
from provision.contracts.change import Change
from provision.contracts.driver import Action, Result, Verdict
from provision.contracts.remedy import ApiCall, Blob
from provision.contracts.resource import Resource, changes_of, remedy_of
from provision.kube.charts import Chart
from provision.kube.driver import KubeDriver
from provision.kube.names import API
from provision.kube.releases import HelmReleases, Release
from provision.kube.resources.cli_release import CliAbsent, CliRelease
from provision.lab.kube.kinds import Kind
from provision.lab.kube.server import KubeServer
from provision.lab.kube.store import Object, Store
from provision.testing.model_cluster import ModelCluster, set_status
from provision.values.cancel import Cancel
from tests.contract.certificates import Authority

CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: { name: settings }
data: { level: "{{ .Values.level }}" }
"""
HOOK = """
apiVersion: batch/v1
kind: Job
metadata: { name: helm-check, annotations: { helm.sh/hook: pre-install } }
spec:
  backoffLimit: 0
  template: { spec: { restartPolicy: Never, containers: [{ name: c, image: check }] } }
"""


def chart(version: str, *templates: str) -> Chart:
    files = {"Chart.yaml": f"apiVersion: v2\nname: own\nversion: {version}\n", "values.yaml": "level: low\n"}
    files |= {f"templates/{index}.yaml": text for index, text in enumerate(templates)}
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as packed:
        for name, text in files.items():
            member = tarfile.TarInfo(f"own/{name}")
            member.size = len(text.encode())
            packed.addfile(member, io.BytesIO(text.encode()))
    return Chart("own", version, archive=Blob("1" * 64, target.getvalue()))


@dataclass
class Site:
    """A cluster behind HTTPS, and a program."""

    cluster: ModelCluster
    endpoint: KubeEndpoint
    program: Blob

    def driver(self) -> KubeDriver:
        helm = LocalHelm(self.endpoint, lambda one: merged("", one, "c", "c"))
        return KubeDriver(API, HttpsKubeConnection(self.endpoint), helm=helm)

    def changes(self, resource: Resource) -> tuple[Change, ...]:
        return changes_of(resource, self.driver().answer(frozenset(resource.queries()), Cancel()))

    def bring(self, resource: Resource) -> Result:
        driver = self.driver()
        remedy = remedy_of(resource, driver.answer(frozenset(resource.queries()), Cancel()))
        assert isinstance(remedy, ApiCall), remedy
        action = Action(resource.key, str(resource.key), remedy)
        return driver.act("run-1", [action], [], lambda _line: None, Cancel())[0]

    def release(self, chart: Chart, **values: object) -> CliRelease:
        return CliRelease(API, "own", chart, "space", json.dumps(values), self.program, seconds=60)

    def releases(self) -> tuple[Release, ...]:
        found: tuple[Release, ...] = self.driver().answer(frozenset({HelmReleases()}), Cancel())[
            HelmReleases()
        ]
        return found


@pytest.fixture(params=[3, 4], ids=["helm3", "helm4"])
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    variable = f"PROVISION_TEST_HELM{request.param}"
    program = os.environ.get(variable)
    if not program:
        pytest.skip(f"{variable} is not set: no helm of that major version")
    assert check_major(Path(program), {"HOME": str(tmp_path)}) == request.param
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for proxy in ("HTTP_PROXY", "HTTPS_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    authority = Authority()
    certificate, key = authority.issue("server", "127.0.0.1")
    own, own_key = authority.issue("admin", "127.0.0.1")
    (tmp_path / "server.pem").write_text(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    context.load_verify_locations(cadata=authority.pem)
    context.verify_mode = ssl.CERT_OPTIONAL
    cluster = ModelCluster()
    cluster.api.watch_seconds = 1.0
    server = KubeServer(cluster.api, ("127.0.0.1", 0), context)
    server.start()
    endpoint = KubeEndpoint(f"https://127.0.0.1:{server.port}", authority.pem, own, SecretStr(own_key))
    yield Site(cluster, endpoint, Blob("0" * 64, Path(program).read_bytes()))
    server.stop()


def test_helm_installs_upgrades_and_removes_what_plans_then_find(site: Site) -> None:
    first, second = chart("1.0.0", CONFIG), chart("1.1.0", CONFIG)
    assert site.bring(site.release(first, level="high")).verdict is Verdict.DONE
    assert site.changes(site.release(first, level="high")) == ()
    config = site.cluster.get("ConfigMap", "settings", "space")
    assert config is not None
    assert config["data"] == {"level": "high"}

    found = [(one.path, one.old, one.new) for one in site.changes(site.release(second, level="top"))]
    assert found == [("version", "1.0.0", "1.1.0"), ("values.level", "high", "top")]
    assert site.bring(site.release(second, level="top")).verdict is Verdict.DONE
    assert site.changes(site.release(second, level="top")) == ()
    assert site.releases() == (Release("own", "space", "own", "1.1.0", 2, "deployed"),)

    assert site.bring(CliAbsent(API, "own", "space", site.program)).verdict is Verdict.DONE
    assert site.releases() == ()
    assert site.cluster.get("ConfigMap", "settings", "space") is None
    assert [one.name for one in download_folder().iterdir()] == []  # neither a key nor a program is left


def test_a_failed_hook_of_a_chart_shows_its_log_and_is_tried_again(site: Site) -> None:
    def fails(store: Store, event: str, kind: Kind, body: Object) -> None:
        if kind.name == "Job" and event != "DELETED" and "status" not in body:
            condition = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
            store.seed(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        "name": "helm-check-x",
                        "namespace": "space",
                        "labels": {"job-name": "helm-check"},
                    },
                    "spec": {},
                    "status": {"phase": "Failed"},
                }
            )
            set_status(store, kind, body, {"failed": 1, "conditions": [condition]})

    site.cluster.helm.logs["space", "helm-check-x"] = "the check has failed"
    site.cluster.controllers.append(fails)
    result = site.bring(site.release(chart("1.0.0", CONFIG, HOOK)))
    assert result.diagnostic is not None
    assert result.diagnostic.code == "HELM_FAILED"
    assert "helm-check" in result.diagnostic.summary
    assert result.diagnostic.evidence[-1] == "the check has failed"
    assert [(one.path, one.old) for one in site.changes(site.release(chart("1.0.0", CONFIG, HOOK)))] == [
        ("status", "failed")
    ]
    assert site.bring(site.release(chart("1.0.0", CONFIG))).verdict is Verdict.DONE
    assert site.changes(site.release(chart("1.0.0", CONFIG))) == ()
