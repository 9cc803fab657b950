"""Resources of Kubernetes over HTTPS: against the small API, and against a real server if one is named.

PROVISION_TEST_KUBECONFIG names the kubeconfig of a cluster that may be changed: each test makes a namespace
of its own and removes it. The small API must answer as that server does.
"""

from __future__ import annotations

import json
import os
import secrets
import ssl
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import SecretStr

from provision.connections.contracts import KubeEndpoint, KubeReply
from provision.connections.helm import LocalHelm
from provision.connections.kube import HttpsKubeConnection
from provision.connections.kubeconfig import endpoint_of, merged
from provision.contracts.change import Change, Op, Settles
from provision.contracts.driver import Action, Result, Verdict
from provision.contracts.remedy import ApiCall, Blob, Impossible
from provision.contracts.resource import Resource, changes_of, remedy_of
from provision.kube.charts import Chart
from provision.kube.driver import KubeDriver
from provision.kube.kinds import CONFIG_MAP, CRD, DEPLOYMENT, NAMESPACE, KubeKind, object_path
from provision.kube.names import API, selector_of
from provision.kube.resources.cli_release import CliAbsent, CliRelease
from provision.kube.resources.object import KubeAbsent, KubeObject, KubePruned, kube_object
from provision.lab.kube.server import KubeServer
from provision.testing.model_cluster import ModelCluster
from provision.values.cancel import Cancel
from provision.values.errors import ProvisionError
from tests.contract.certificates import Authority

VARIABLE = "PROVISION_TEST_KUBECONFIG"
REAL = pytest.mark.parametrize("endpoint", ["real"], indirect=True)
"""For what the small API does not do."""
CRDS = Path(__file__).parents[3] / "shared" / "crds"
GADGET = KubeKind("provision.example/v1", "Gadget", "gadgets")
WEBHOOK = KubeKind(
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)
CHART = {
    "Chart.yaml": "apiVersion: v2\nname: own\nversion: 1.0.0\n",
    "values.yaml": "level: low\n",
    "templates/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: settings }\n"
    'data: { level: "{{ .Values.level }}" }\n',
}


@dataclass
class Cluster:
    """A cluster, and a namespace of it that belongs to one test."""

    endpoint: KubeEndpoint
    namespace: str

    def driver(self) -> KubeDriver:
        helm = LocalHelm(self.endpoint, lambda one: merged("", one, "c", "c"))
        connection = HttpsKubeConnection(self.endpoint)
        return KubeDriver(API, connection, lambda: HttpsKubeConnection(self.endpoint), helm=helm)

    def send(self, method: str, path: str, body: object = None, kind: str = "json") -> KubeReply:
        types = {"json": "application/json", "merge": "application/merge-patch+json"}
        types["apply"] = "application/apply-patch+yaml"
        return HttpsKubeConnection(self.endpoint).request(method, path, body, content_type=types[kind])

    def changes(self, resource: Resource) -> tuple[Change, ...]:
        return changes_of(resource, self.driver().answer(frozenset(resource.queries()), Cancel()))

    def problem(self, resource: Resource) -> str:
        remedy = remedy_of(resource, self.driver().answer(frozenset(resource.queries()), Cancel()))
        assert isinstance(remedy, Impossible), remedy
        return remedy.diagnostic.code

    def bring(self, resource: Resource, emitted: list[str] | None = None) -> Result:
        driver = self.driver()
        remedy = remedy_of(resource, driver.answer(frozenset(resource.queries()), Cancel()))
        assert isinstance(remedy, ApiCall), remedy
        action = Action(resource.key, str(resource.key), remedy)
        lines = emitted if emitted is not None else []
        return driver.act("run-1", [action], [], lines.append, Cancel())[0]

    def settings(self, name: str = "a", role: str = "r", **data: str) -> KubeObject:
        return kube_object(API, CONFIG_MAP, name, {"data": data}, role=role, namespace=self.namespace)

    def path(self, name: str = "a") -> str:
        return object_path(CONFIG_MAP.api, CONFIG_MAP.plural, self.namespace, name)


@pytest.fixture(scope="module", params=["small", "real"])
def endpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeEndpoint]:
    if request.param == "real":
        file = os.environ.get(VARIABLE)
        if not file:
            pytest.skip(f"{VARIABLE} is not set: no real Kubernetes API")
        yield endpoint_of(Path(file).read_text(), where=file)
        return
    folder = tmp_path_factory.mktemp("kube")
    authority = Authority()
    certificate, key = authority.issue("server", "127.0.0.1")
    own, own_key = authority.issue("admin", "127.0.0.1")
    (folder / "server.pem").write_text(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    context.load_verify_locations(cadata=authority.pem)
    context.verify_mode = ssl.CERT_OPTIONAL
    model = ModelCluster()
    model.add_node("node-1", "10.0.0.1")
    server = KubeServer(model.api, ("127.0.0.1", 0), context)
    server.start()
    yield KubeEndpoint(f"https://127.0.0.1:{server.port}", authority.pem, own, SecretStr(own_key))
    server.stop()


@pytest.fixture
def cluster(endpoint: KubeEndpoint) -> Iterator[Cluster]:
    cluster = Cluster(endpoint, f"provision-test-{secrets.token_hex(4)}")
    namespace = kube_object(API, NAMESPACE, cluster.namespace, role="r")
    assert cluster.bring(namespace).verdict is Verdict.DONE
    yield cluster
    gone = KubeAbsent(API, NAMESPACE, "", cluster.namespace, seconds=60)
    if cluster.changes(gone):
        assert cluster.bring(gone).verdict is Verdict.DONE


def told(changes: tuple[Change, ...]) -> list[str]:
    return [f"{change.op} {change.path}" for change in changes]


def test_an_object_is_made_once_and_every_difference_is_seen(cluster: Cluster) -> None:
    assert told(cluster.changes(cluster.settings(x="1", y="2"))) == ["+ object"]
    assert cluster.bring(cluster.settings(x="1", y="2")).verdict is Verdict.DONE
    assert cluster.changes(cluster.settings(x="1", y="2")) == ()
    assert told(cluster.changes(cluster.settings(x="9"))) == ["~ data.x", "- data.y"]
    assert cluster.bring(cluster.settings(x="9")).verdict is Verdict.DONE
    body = cluster.send("GET", cluster.path()).body
    assert isinstance(body, dict)
    assert body["data"] == {"x": "9"}


def test_a_declared_field_of_another_manager_is_a_conflict_and_others_stay(
    cluster: Cluster,
) -> None:
    cluster.bring(cluster.settings(x="1"))
    patched = f"{cluster.path()}?fieldManager=kubectl-edit"
    assert cluster.send("PATCH", patched, {"data": {"theirs": "2"}}, "merge").is_success
    assert cluster.changes(cluster.settings(x="1")) == ()
    assert cluster.send("PATCH", patched, {"data": {"x": "7"}}, "merge").is_success
    assert "kubectl-edit" in str(cluster.changes(cluster.settings(x="1"))[0].old)
    assert cluster.problem(cluster.settings(x="1")) == "KUBE_CONFLICT"
    forced = replace(cluster.settings(x="1"), force=True)
    assert cluster.bring(forced).verdict is Verdict.DONE
    assert cluster.changes(cluster.settings(x="1")) == ()


def test_a_field_outside_the_schema_is_refused_for_good(cluster: Cluster) -> None:
    _is_refused(cluster, {"date": {}})


@REAL
def test_a_value_of_another_type_is_refused_for_good(cluster: Cluster) -> None:
    _is_refused(cluster, {"data": {"x": {"y": "z"}}})


def _is_refused(cluster: Cluster, manifest: dict[str, Any]) -> None:
    cluster.bring(cluster.settings(x="1"))
    wrong = kube_object(API, CONFIG_MAP, "a", manifest, role="r", namespace=cluster.namespace)
    assert cluster.problem(wrong) == "KUBE_INVALID"
    new = kube_object(API, CONFIG_MAP, "b", manifest, role="r", namespace=cluster.namespace)
    assert cluster.problem(new) == "KUBE_INVALID"


def definition() -> KubeObject:
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {"size": {"type": "integer", "minimum": 1}, "mode": {"type": "string", "default": "x"}},
    }
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Gadget", "plural": "gadgets", "singular": "gadget", "listKind": "GadgetList"}
    body = {
        "spec": {"group": "provision.example", "names": names, "scope": "Namespaced", "versions": [version]}
    }
    return kube_object(API, CRD, "gadgets.provision.example", body, role="r")


@pytest.fixture
def gadgets(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.bring(KubeAbsent(API, CRD, "", "gadgets.provision.example", seconds=60))


@pytest.mark.usefixtures("gadgets")
def test_an_object_follows_its_kind_and_its_defaults_are_no_drift(cluster: Cluster) -> None:
    def gadget(**spec: object) -> KubeObject:
        return kube_object(API, GADGET, "g", {"spec": spec}, role="r", namespace=cluster.namespace)

    assert told(cluster.changes(gadget(size=1))) == ["+ object"]
    assert cluster.bring(definition()).verdict is Verdict.DONE
    assert cluster.bring(gadget(size=1)).verdict is Verdict.DONE
    assert cluster.changes(gadget(size=1)) == ()
    assert cluster.problem(gadget(size=0)) == "KUBE_INVALID"
    assert cluster.problem(gadget(size=1, sise=2)) == "KUBE_INVALID"
    assert cluster.changes(definition()) == ()


@REAL
@pytest.mark.usefixtures("gadgets")
def test_an_object_whose_kind_is_on_its_way_out_waits_for_the_next_one(cluster: Cluster) -> None:
    def gadget(name: str) -> KubeObject:
        fields = {"spec": {"size": 1}}
        return kube_object(API, GADGET, name, fields, role="r", namespace=cluster.namespace)

    path = object_path(GADGET.api, GADGET.plural, cluster.namespace, "held")
    assert cluster.bring(definition()).verdict is Verdict.DONE
    assert cluster.bring(gadget("held")).verdict is Verdict.DONE
    keep = {"metadata": {"finalizers": ["provision.example/keep"]}}
    assert cluster.send("PATCH", path, keep, "merge").is_success
    absent = KubeAbsent(API, CRD, "", "gadgets.provision.example", seconds=2)
    try:
        diagnostic = cluster.bring(absent).diagnostic
        assert diagnostic is not None
        assert diagnostic.evidence[-1] == "Terminating: CustomResource deletion is in progress"
        assert not any("Established" in line for line in diagnostic.evidence)
        emitted: list[str] = []
        assert cluster.bring(replace(gadget("new"), arrival=2), emitted).verdict is Verdict.FAILED
        assert any("waiting: " in line and "is terminating" in line for line in emitted)
    finally:
        cluster.send("PATCH", path, {"metadata": {"finalizers": None}}, "merge")


@REAL
def test_a_workload_whose_pods_are_refused_says_why(cluster: Cluster) -> None:
    strict = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    space = object_path(NAMESPACE.api, NAMESPACE.plural, "", cluster.namespace)
    assert cluster.send("PATCH", space, strict, "merge").is_success
    labels = {"app": "refused"}
    containers = [{"name": "c", "image": "registry.invalid/none:1"}]
    pod = {"metadata": {"labels": labels}, "spec": {"hostNetwork": True, "containers": containers}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
    workload = kube_object(API, DEPLOYMENT, "d", {"spec": spec}, role="r", namespace=cluster.namespace)
    diagnostic = cluster.bring(replace(workload, seconds=5)).diagnostic
    assert diagnostic is not None
    assert 'violates PodSecurity "baseline:latest"' in diagnostic.summary


def test_removal_waits_for_finalizers_and_names_them(cluster: Cluster) -> None:
    cluster.bring(cluster.settings(x="1"))
    body = {"metadata": {"finalizers": ["provision.example/keep"]}}
    assert cluster.send("PATCH", cluster.path(), body, "merge").is_success
    absent = KubeAbsent(API, CONFIG_MAP, cluster.namespace, "a", seconds=0.001)
    diagnostic = cluster.bring(absent).diagnostic
    assert diagnostic is not None
    assert diagnostic.code == "KUBE_NOT_REMOVED"
    assert "finalizer provision.example/keep" in diagnostic.evidence  # a real server adds foregroundDeletion
    assert [change.old for change in cluster.changes(absent)] == ["being deleted"]
    assert cluster.send("PATCH", cluster.path(), {"metadata": {"finalizers": None}}, "merge").is_success
    assert cluster.changes(absent) == ()


def test_what_is_declared_no_more_is_pruned_and_nothing_else(cluster: Cluster) -> None:
    role = f"role-{cluster.namespace[-8:]}"
    for name in ("a", "b"):
        cluster.bring(cluster.settings(name, role))
    cluster.bring(cluster.settings("other", "s"))
    pruned = KubePruned(API, CONFIG_MAP, "", selector_of(role), keep=(f"{cluster.namespace}/a",))
    assert told(cluster.changes(pruned)) == [f"- {cluster.namespace}/b"]
    assert cluster.bring(pruned).verdict is Verdict.DONE
    assert cluster.changes(pruned) == ()
    found = [cluster.send("GET", cluster.path(name)).status for name in ("a", "b", "other")]
    assert found == [200, 404, 200]


def test_a_namespace_goes_with_what_is_in_it(cluster: Cluster) -> None:
    cluster.bring(cluster.settings(x="1"))
    absent = KubeAbsent(API, NAMESPACE, "", cluster.namespace, seconds=60)
    assert cluster.bring(absent).verdict is Verdict.DONE
    assert cluster.changes(absent) == ()
    assert cluster.send("GET", cluster.path()).status == 404


def test_the_lock_is_held_by_one_and_free_afterwards(cluster: Cluster) -> None:
    first = cluster.driver().hold("run-1", "cluster/api", Cancel())
    try:
        assert first.alive
        with pytest.raises(ProvisionError) as caught:
            cluster.driver().hold("run-2", "cluster/api", Cancel())
        assert "run-1" in str(caught.value)
    finally:
        first.release()
    second = cluster.driver().hold("run-2", "cluster/api", Cancel())
    second.release()


@REAL
def test_a_workload_whose_pods_cannot_start_is_waited_for_and_named(cluster: Cluster) -> None:
    labels = {"app": "stuck"}
    pod = {
        "metadata": {"labels": labels},
        "spec": {
            "nodeSelector": {"provision.example/none": "x"},
            "containers": [{"name": "c", "image": "registry.invalid/none:1"}],
        },
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
    workload = kube_object(API, DEPLOYMENT, "d", {"spec": spec}, role="r", namespace=cluster.namespace)
    diagnostic = cluster.bring(replace(workload, seconds=5)).diagnostic
    assert diagnostic is not None
    assert diagnostic.code == "KUBE_NOT_READY"
    change = cluster.changes(workload)[0]
    assert (change.op, change.settles) == (Op.ATTENTION, Settles.WITHIN)


@REAL
def test_a_webhook_without_a_server_is_waited_for(cluster: Cluster) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    hook = {
        "name": "v.provision.example",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": cluster.namespace}},
        "clientConfig": {"service": {"namespace": cluster.namespace, "name": "none", "port": 443}},
    }
    webhook = kube_object(API, WEBHOOK, cluster.namespace, {"webhooks": [hook]}, role="r")
    assert cluster.bring(webhook).verdict is Verdict.DONE
    emitted: list[str] = []
    try:
        result = cluster.bring(replace(cluster.settings(x="1"), arrival=5), emitted)
        assert result.verdict is Verdict.FAILED
        assert any("failed calling webhook" in line for line in emitted)
        assert result.diagnostic is not None
        assert "failed calling webhook" in result.diagnostic.summary
    finally:
        cluster.bring(KubeAbsent(API, WEBHOOK, "", cluster.namespace))


@pytest.mark.parametrize("file", sorted(CRDS.glob("*.yaml")) or [CRDS], ids=lambda file: file.stem)
def test_definitions_of_vendors_are_applied_and_stay_as_they_are(cluster: Cluster, file: Path) -> None:
    if not CRDS.is_dir():
        pytest.skip("../shared is absent")
    body = yaml.load(file.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - a safe loader
    name = body["metadata"]["name"]
    made = {key: value for key, value in body.items() if key == "spec"}
    resource = kube_object(API, CRD, name, made, role="r", force=True)
    try:
        assert cluster.bring(resource).verdict is Verdict.DONE
        assert cluster.changes(resource) == ()
    finally:
        cluster.bring(KubeAbsent(API, CRD, "", name, seconds=60))


@pytest.mark.parametrize("major", [3, 4])
def test_helm_installs_upgrades_and_removes(
    cluster: Cluster, major: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = os.environ.get(f"PROVISION_TEST_HELM{major}")
    if not program:
        pytest.skip(f"PROVISION_TEST_HELM{major} is not set: no helm of that major version")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    target = BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as packed:
        for name, text in CHART.items():
            member = tarfile.TarInfo(f"own/{name}")
            member.size = len(text)
            packed.addfile(member, BytesIO(text.encode()))
    chart = Chart("own", "1.0.0", archive=Blob("1" * 64, target.getvalue()))
    helm = Blob("0" * 64, Path(program).read_bytes())

    def release(level: str) -> CliRelease:
        values = json.dumps({"level": level})
        return CliRelease(API, "own", chart, cluster.namespace, values, helm, seconds=60)

    assert cluster.bring(release("high")).verdict is Verdict.DONE
    assert cluster.changes(release("high")) == ()
    assert told(cluster.changes(release("top"))) == ["~ values.level"]
    assert cluster.bring(release("top")).verdict is Verdict.DONE
    body = cluster.send("GET", cluster.path("settings")).body
    assert isinstance(body, dict)
    assert body["data"] == {"level": "top"}
    assert cluster.bring(CliAbsent(API, "own", cluster.namespace, helm)).verdict is Verdict.DONE
    assert cluster.send("GET", cluster.path("settings")).status == 404
