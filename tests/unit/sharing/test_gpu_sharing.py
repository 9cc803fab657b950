"""Sharing modes: what each brings, that a switch removes the other one first, and what is refused."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from provision.api.domains import load_inventory
from provision.api.support import unsupported
from provision.connections.contracts import KeyPair
from provision.contracts.change import Settles
from provision.contracts.remedy import ApiCall
from provision.contracts.resource import Resource, remedy_of
from provision.contracts.role import Context
from provision.contracts.rule import Evidence
from provision.engine.generated import GeneratedValues
from provision.gpu.roles import gpu_operator
from provision.inventory import Inventory, Subject
from provision.kube.kinds import DAEMON_SET
from provision.kube.names import API
from provision.kube.releases import Release
from provision.kube.resources.object import KubeAbsent
from provision.kube.values import unknown_paths
from provision.sharing import names
from provision.sharing.fractions import NAMESPACE
from provision.sharing.hami import hami_values
from provision.sharing.kai import kai_values, queue_specs
from provision.sharing.preflight import combination, evidence, foreign
from provision.sharing.resources.stack import HamiStack, KaiStack
from provision.sharing.roles import gpu_sharing
from provision.testing.model_cluster import ModelCluster, set_status
from provision.testing.model_helm import secret_of
from tests.unit.kube.site import ask, bring, changes, problem, read_yaml

CHARTS = Path(__file__).parents[4] / "shared" / "charts"
CRDS = CHARTS.parent / "crds"
SITE = """
version: 1
name: site
cluster: { kubeconfig: /nowhere }
nodes:
  g1: { address: 10.0.0.1, gpu_cards: { count: 2 }, taints: ["gpu=yes:NoSchedule"] }
  c1: { address: 10.0.0.2, kube_name: c1 }
gpu: { toolkit: host, operator: { version: v26.3.3 } }
"""
MODES = {
    "none": "sharing: { mode: none }\n",
    "time_slicing": "sharing: { mode: time_slicing, slots_per_card: 4 }\n",
    "mps": "sharing: { mode: mps, slots_per_card: 4 }\n",
    "hami": "sharing: { mode: hami, version: 2.9.0, slots_per_card: 5 }\n",
    "kai": "sharing: { mode: kai, version: v0.18.6,"
    " queues: { a: { parent: lab }, lab: { gpu: { quota: 2 } } } }\n",
    "kai_fractions": "sharing: { mode: kai_fractions, experimental: true, default_queues: unlimited,"
    " kai: { chart: ./kai.tgz, registry: reg.lab/kai, tag: k1 },"
    " fractioning: { chart: ./fractioning.tgz, registry: reg.lab/frac, tag: f1 } }\n",
}
DRIVER = "driver: { manage: false, minimum: '615' }, gpu_cards:"
SUBJECT = Subject("cluster", "cluster")


def load(folder: Path, mode: str, site: str = SITE) -> Inventory:
    path = folder / "site.yaml"
    if mode == "kai_fractions":
        site = site.replace("gpu_cards:", DRIVER).replace("toolkit: host", "toolkit: operator")
        site = site.replace("v26.3.3", "v26.7.1")
        for name, chart in (("kai", "kai-scheduler"), ("fractioning", "gpu-fractioning")):
            write_chart(folder / f"{name}.tgz", chart)
    path.write_text(site + MODES.get(mode, mode))
    return load_inventory(path, environ={})


def write_chart(path: Path, name: str) -> None:
    """Write the archive of a chart with no templates, once: an archive has the time in it."""
    if path.exists():
        return
    text = f"apiVersion: v2\nname: {name}\nversion: 0.0.0-x\n".encode()
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(f"{name}/Chart.yaml")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))


@pytest.fixture
def cluster() -> ModelCluster:
    cluster = ModelCluster()
    cluster.gpus.memory = 81559
    cluster.gpus.cards["g1"] = 2
    cluster.add_node("g1", "10.0.0.1")
    cluster.add_node("c1", "10.0.0.2")
    return cluster


def context(cluster: ModelCluster, inventory: Inventory) -> Context:
    """Return what the role sees; hosts are silent, which the role of the operator can do without."""
    queries = gpu_sharing.questions(inventory, SUBJECT)[API]
    generated = GeneratedValues(lambda: KeyPair(SecretStr(""), "", ""))
    return Context(inventory, SUBJECT, {API: ask(cluster, *queries)}, generated)


def apply(cluster: ModelCluster, inventory: Inventory) -> None:
    """Bring about what the playbook does for the cluster, in its order."""
    bring(cluster, *gpu_sharing.unchosen(context(cluster, inventory)))
    bring(cluster, *gpu_operator.resources(context(cluster, inventory)))
    if gpu_sharing.declared(inventory, SUBJECT):
        bring(cluster, *gpu_sharing.resources(context(cluster, inventory)))


def left(cluster: ModelCluster, inventory: Inventory) -> list[str]:
    """Return what would still be changed."""
    seen = context(cluster, inventory)
    wanted: list[Resource] = [*gpu_sharing.unchosen(seen), *gpu_operator.resources(seen)]
    wanted += gpu_sharing.resources(seen) if gpu_sharing.declared(inventory, SUBJECT) else ()
    return [str(resource.key) for resource in wanted if changes(cluster, resource)]


@pytest.mark.parametrize("mode", ["hami", "kai", "kai_fractions"])
def test_a_mode_that_is_there_costs_reading_only(cluster: ModelCluster, tmp_path: Path, mode: str) -> None:
    inventory = load(tmp_path, mode)
    apply(cluster, inventory)
    cluster.requests.clear()
    wanted = gpu_sharing.resources(context(cluster, inventory))
    ask(cluster, *{query for resource in wanted for query in resource.queries()})
    assert all(request.method == "GET" for request in cluster.requests)
    assert len(cluster.requests) <= 22


@pytest.mark.parametrize("mode", ["hami", "kai", "kai_fractions"])
def test_leaving_a_mode_needs_consent(cluster: ModelCluster, tmp_path: Path, mode: str) -> None:
    apply(cluster, load(tmp_path, mode))
    going = gpu_sharing.unchosen(context(cluster, load(tmp_path, "none")))
    risks = set()
    for resource in going:
        snapshot = ask(cluster, *resource.queries())
        remedy = remedy_of(resource, snapshot) if changes(cluster, resource) else ApiCall(())
        assert isinstance(remedy, ApiCall)
        risks |= {risk.cls.name for risk in remedy.risks}
    assert risks == {"gpu-pods-lose-device"}


def test_the_stock_plugin_goes_before_hami_comes(cluster: ModelCluster, tmp_path: Path) -> None:
    first, second, *_ = gpu_sharing.resources(context(cluster, load(tmp_path, "hami")))
    assert isinstance(first, KubeAbsent)
    assert isinstance(second, KubeAbsent)
    assert {first.of, second.of} == {DAEMON_SET}
    assert {first.namespace, second.namespace} == {"gpu-operator"}
    assert first.risks


@pytest.mark.parametrize("mode", ["hami", "kai", "kai_fractions"])
def test_destroy_removes_crds_labels_and_namespaces(cluster: ModelCluster, tmp_path: Path, mode: str) -> None:
    inventory = load(tmp_path, mode)
    apply(cluster, inventory)
    bring(cluster, *gpu_sharing.retired(context(cluster, inventory)))
    gone = ("hami-system", "kai-scheduler", "kai-resource-reservation", "gpu-fractioning")
    assert [name for name in gone if cluster.get("Namespace", name)] == []
    crds = cluster.store.listed(cluster.store.kind("CustomResourceDefinition"))
    assert [
        body["metadata"]["name"] for body in crds if "scheduling.run.ai" in body["metadata"]["name"]
    ] == []
    hooks = [
        body["metadata"]["name"]
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        for body in cluster.store.listed(cluster.store.kind(kind))
    ]
    assert hooks == [], "one that is left alters or refuses pods"
    node = cluster.get("Node", "g1")
    assert node is not None
    assert "gpu" not in node["metadata"]["labels"]
    assert [key for key in node["metadata"].get("annotations", {}) if key.startswith("hami.io/")] == []


def test_without_an_operator_hami_takes_its_resource_along(cluster: ModelCluster, tmp_path: Path) -> None:
    cluster.add_node("c2", "10.0.0.9", allocatable={"nvidia.com/gpu": "0", "example.org/x": "1"})
    site = SITE.replace(", operator: { version: v26.3.3 }", "")
    inventory = load(tmp_path, "hami", site)
    for _ in range(2):
        bring(cluster, *gpu_sharing.resources(context(cluster, inventory))[:5])
    bring(cluster, *gpu_sharing.retired(context(cluster, inventory)))
    nodes = cluster.store.listed(cluster.store.kind("Node"))
    amounts = [node["status"][key] for node in nodes for key in ("capacity", "allocatable")]
    assert [held for held in amounts if "nvidia.com/gpu" in held] == []
    assert [held for held in amounts if held.get("example.org/x") == "1"]


def test_what_others_installed_is_not_removed(cluster: ModelCluster, tmp_path: Path) -> None:
    for name in ("hami-system", "kai-scheduler", "gpu-fractioning"):
        cluster.store.seed({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    assert gpu_sharing.unchosen(context(cluster, load(tmp_path, "none"))) == ()


def test_a_label_that_somebody_else_set_stays(cluster: ModelCluster, tmp_path: Path) -> None:
    cluster.add_node("c2", "10.0.0.3", labels={"gpu": "on"})
    inventory = load(tmp_path, "hami")
    apply(cluster, inventory)
    bring(cluster, *gpu_sharing.retired(context(cluster, inventory)))
    node = cluster.get("Node", "c2")
    assert node is not None
    assert node["metadata"]["labels"]["gpu"] == "on"


def test_a_queue_that_is_not_declared_any_more_goes(cluster: ModelCluster, tmp_path: Path) -> None:
    apply(cluster, load(tmp_path, "kai"))
    apply(cluster, load(tmp_path, "sharing: { mode: kai, version: v0.18.6, queues: { lab: {} } }\n"))
    queues = [body["metadata"]["name"] for body in cluster.store.listed(cluster.store.kind("Queue"))]
    assert sorted(queues) == ["default-parent-queue", "default-queue", "lab"]


# ------------------------------------------------------------ values and queues


@pytest.mark.parametrize("chart", ["hami-values.yaml", "hami-2.10.0-values.yaml"])
def test_hamis_chart_knows_every_value(tmp_path: Path, chart: str) -> None:
    if not CHARTS.exists():
        pytest.skip("../shared is absent")
    values = hami_values(load(tmp_path, "hami"), "v1.35.7+k3s1")
    assert list(unknown_paths(values, read_yaml(CHARTS / chart))) == []


def test_kais_chart_knows_every_value(tmp_path: Path) -> None:
    if not CHARTS.exists():
        pytest.skip("../shared is absent")
    sharing = load(tmp_path, "kai").sharing
    assert sharing is not None
    defaults = read_yaml(CHARTS / "kai-scheduler-values.yaml")
    assert list(unknown_paths(kai_values(sharing), defaults)) == []


def test_hami_is_told_of_slots_version_and_taints(tmp_path: Path) -> None:
    values = hami_values(load(tmp_path, "hami"), "v1.35.7+k3s1")
    plugin = values["devicePlugin"]
    assert plugin["deviceSplitCount"] == 5
    assert plugin["runtimeClassName"] == "nvidia"
    assert plugin["nvidiaNodeSelector"] == {"gpu": "on"}, "the label that each GPU node gets"
    assert plugin["gpuOperatorToolkitReady"] == {"enabled": False}, "the toolkit is on the host"
    assert {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"} in plugin["tolerations"]
    assert values["scheduler"]["kubeScheduler"]["image"]["tag"] == "v1.35.7"
    assert {plugin["service"]["type"], values["scheduler"]["service"]["type"]} == {"ClusterIP"}


def test_a_queue_limits_only_what_is_declared(tmp_path: Path) -> None:
    text = (
        "sharing: { mode: kai, version: v1, default_queues: unlimited, queues:"
        " { a: { parent: lab, priority: 7, gpu: { quota: 8, limit: 9, weight: 2 },"
        " preempt_min_runtime: 600, reclaim_min_runtime: 0,"
        " cpu: { quota: 16, limit: -1 }, memory: { quota: 64GiB, weight: 3 } }, lab: {} } }\n"
    )
    sharing = load(tmp_path, text).sharing
    assert sharing is not None
    specs = queue_specs(sharing)
    assert list(specs) == ["lab", "a", "default-parent-queue", "default-queue"], "parents come first"
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    assert specs["lab"] == {"resources": {"gpu": free, "cpu": free, "memory": free}}
    assert specs["a"] == {
        "parentQueue": "lab",
        "priority": 7,
        "preemptMinRuntime": "600s",
        "reclaimMinRuntime": "0s",
        "resources": {
            "gpu": {"quota": 8, "limit": 9, "overQuotaWeight": 2},
            "cpu": {"quota": 16000, "limit": -1, "overQuotaWeight": 1},
            "memory": {"quota": 68720, "limit": -1, "overQuotaWeight": 3},
        },
    }
    if CRDS.exists():
        schema = read_yaml(CRDS / "Queue.yaml")["spec"]["versions"][0]["schema"]
        known = schema["openAPIV3Schema"]["properties"]["spec"]["properties"]
        assert specs["a"].keys() <= known.keys()
        amounts = known["resources"]["properties"]["gpu"]["properties"]
        assert specs["a"]["resources"]["gpu"].keys() == amounts.keys()


# ------------------------------------------------------------ readiness


def test_hami_is_ready_when_each_node_offers_its_slots(cluster: ModelCluster, tmp_path: Path) -> None:
    inventory = load(tmp_path, "hami")
    apply(cluster, inventory)
    (stack,) = [
        each for each in gpu_sharing.resources(context(cluster, inventory)) if isinstance(each, HamiStack)
    ]
    assert changes(cluster, stack) == ()
    (cards,) = stack.cards
    wrong = replace(stack, cards=(replace(cards, offered=20),))
    assert [change.settles for change in changes(cluster, wrong)] == [Settles.WITHIN]
    assert problem(cluster, wrong) == "HAMI_SLOTS_WRONG"
    cluster.controllers.clear()
    kind = cluster.store.kind("Pod")
    cluster.store.delete(kind, ("hami-system", "hami-device-plugin-g1"))
    assert problem(cluster, stack) == "HAMI_PLUGIN_MISSING"


def test_kai_is_ready_when_its_controllers_are(cluster: ModelCluster, tmp_path: Path) -> None:
    inventory = load(tmp_path, "kai")
    apply(cluster, inventory)
    (stack,) = [
        each for each in gpu_sharing.resources(context(cluster, inventory)) if isinstance(each, KaiStack)
    ]
    assert changes(cluster, replace(stack, fractions=True)) == ()
    cluster.controllers.clear()
    node = cluster.get("Node", "g1")
    assert node is not None
    del node["metadata"]["labels"]["nvidia.com/gpu.memory"]
    assert problem(cluster, replace(stack, fractions=True)) == "KAI_MEMORY_LABEL_MISSING"
    binder = cluster.get("Deployment", "binder", "kai-scheduler")
    assert binder is not None
    set_status(
        cluster.store,
        cluster.store.kind("Deployment"),
        binder,
        {"availableReplicas": 0, "readyReplicas": 0, "updatedReplicas": 0},
    )
    assert problem(cluster, stack) == "SHARING_NOT_READY"


# ------------------------------------------------------------ refusals


def seen(cluster: ModelCluster, inventory: Inventory) -> Evidence:
    return Evidence(inventory, {API: ask(cluster, *evidence(inventory)[API])}, ())


def codes(found: Any) -> list[str]:
    return [each.code for each in found]


def release(chart: str) -> Callable[[ModelCluster], object]:
    made = secret_of(Release("theirs", "theirs", chart, "1.0.0", 1, "deployed"), {})
    return lambda cluster: cluster.store.seed(made)


def daemon_set(name: str, namespace: str, **labels: str) -> Callable[[ModelCluster], object]:
    own = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    metadata = {"name": name, "namespace": namespace, "labels": own}
    body = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": {}}
    return lambda cluster: cluster.store.seed(body)


FOREIGN = [
    ("kai", release("hami"), "release theirs/theirs of chart hami 1.0.0"),
    ("none", release("hami"), "chart hami"),
    ("hami", release("kai-scheduler"), "chart kai-scheduler"),
    ("hami", release("nvidia-device-plugin"), "chart nvidia-device-plugin"),
    ("kai", release("kai-resource-isolator"), "chart kai-resource-isolator"),
    ("time_slicing", release("gpu-fractioning"), "chart gpu-fractioning"),
    ("hami", daemon_set("nvidia-device-plugin-daemonset", "kube-system"), "DaemonSet kube-system/nvidia"),
    (
        "mps",
        daemon_set("x", "kube-system", app_kubernetes_io__component="hami-device-plugin"),
        "kube-system/x",
    ),
]


@pytest.mark.parametrize(("mode", "theirs", "words"), FOREIGN, ids=[f"{row[0]}-{row[2]}" for row in FOREIGN])
def test_what_another_one_installed_is_refused_by_name(
    cluster: ModelCluster, tmp_path: Path, mode: str, theirs: Callable[[ModelCluster], object], words: str
) -> None:
    inventory = load(tmp_path, mode)
    assert foreign(seen(cluster, inventory)) == []
    theirs(cluster)
    (finding,) = foreign(seen(cluster, inventory))
    assert codes([finding]) == ["SHARING_FOREIGN_ISOLATOR"]
    assert words in str(finding)


def test_our_own_release_is_not_foreign_before_a_switch(cluster: ModelCluster, tmp_path: Path) -> None:
    for before, after in permutations(("hami", "kai", "kai_fractions"), 2):
        apply(cluster, load(tmp_path, before))
        assert foreign(seen(cluster, load(tmp_path, after))) == []


COMBINATIONS = [
    (SITE.replace("operator: { version: v26.3.3 }", ""), "kai", "SHARING_NEEDS_OPERATOR"),
    (SITE.replace("operator: { version: v26.3.3 }", ""), "mps", "SHARING_NEEDS_OPERATOR"),
    (
        SITE.replace("v26.3.3", "v26.3.3, values: { devicePlugin: { enabled: true } }"),
        "hami",
        "SHARING_TWO_PLUGINS",
    ),
    (
        SITE,
        "sharing: { mode: kai, version: v1, queues: { a: { parent: b }, b: { parent: a } } }\n",
        "SHARING_QUEUE_LOOP",
    ),
]


@pytest.mark.parametrize(
    ("site", "mode", "code"), COMBINATIONS, ids=[f"{row[2]}-{row[1][:6]}" for row in COMBINATIONS]
)
def test_what_excludes_a_mode_is_refused(tmp_path: Path, site: str, mode: str, code: str) -> None:
    assert codes(combination(Evidence(load(tmp_path, mode, site), {}, ()))) == [code]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_served(tmp_path: Path, mode: str) -> None:
    inventory = load(tmp_path, mode)
    assert [each.role for each in unsupported(inventory)] == []
    assert combination(Evidence(inventory, {}, ())) == []


def test_the_names_of_homes_are_those_of_the_modes() -> None:
    assert set(names.HOMES) == set(gpu_sharing.MODES)
    assert {query.name for query in names.HOMES.values()} >= {NAMESPACE}
