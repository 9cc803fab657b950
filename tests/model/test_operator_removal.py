"""Operators that leave the inventory: both alone and together, killed at every write, and those of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from provision.api import Options
from provision.api.domains import load_inventory
from provision.connections.contracts import KeyPair
from provision.contracts.remedy import ApiCall, Impossible
from provision.contracts.resource import Resource, remedy_of
from provision.contracts.role import Context, Role
from provision.engine.generated import GeneratedValues
from provision.gpu.roles import gpu_operator
from provision.inventory import Inventory, Subject
from provision.kube.names import API, labels_of
from provision.kube.ownership import HOMES
from provision.kube.releases import Release
from provision.rdma.roles import network_operator
from provision.rdma.roles.network_operator import MULTUS
from provision.sharing.roles import gpu_sharing
from provision.testing.model_cluster import ModelCluster
from provision.testing.model_definitions import OWNED, definition, of_release
from provision.testing.model_gpu_operator import NFD_CRD
from provision.testing.model_host import ModelFile
from tests.model.test_sharing_playbook import SwitchedSite
from tests.unit.kube.site import ask, bring, changes

SUBJECT = Subject("cluster", "cluster")
SITE = """
version: 1
name: site
cluster: { kubeconfig: /nowhere }
nodes:
  n1:
    address: 10.0.0.1
    kube_name: n1
    gpu_cards: { count: 2 }
    rails: { r0: { device: rdma7, hca: mlx5_8, port: 1 } }
    rail_addresses: { r0: 10.224.7.1/12 }
"""
GPU = "gpu: { toolkit: host, operator: { version: v26.3.3 } }\n"
KAI = "sharing: { mode: kai, version: v0.18.6, queues: { a: { parent: lab }, lab: {} } }\n"
HAMI = "sharing: { mode: hami, version: 2.9.0, slots_per_card: 5 }\n"
RDMA = """
rdma:
  operator: { version: v26.4.0 }
  netns: shared
  resources: { ib: { rail: r0, pods_per_node: 64 } }
  networks:
    roce: { rail: r0, resource: ib, namespaces: [bench], pool: { subnet: 10.224.240.0/24, block: 16 } }
"""
ORDER: tuple[Role, ...] = (gpu_operator.ROLE, network_operator.ROLE, gpu_sharing.ROLE)


def load(folder: Path, *sections: str) -> Inventory:
    path = folder / "site.yaml"
    path.write_text(SITE + "".join(sections))
    return load_inventory(path, environ={})


def new_cluster() -> ModelCluster:
    cluster = ModelCluster()
    cluster.gpus.cards, cluster.gpus.memory = {"n1": 2}, 81559
    cluster.nics.interfaces["n1"] = ("rdma7",)
    cluster.add_node("n1", "10.0.0.1")
    return cluster


def context(cluster: ModelCluster, inventory: Inventory, role: Role) -> Context:
    asked = set(role.questions(inventory, SUBJECT)[API]) if role.declared(inventory, SUBJECT) else set()
    generated = GeneratedValues(lambda: KeyPair(SecretStr(""), "", ""))
    return Context(inventory, SUBJECT, {API: ask(cluster, HOMES, *asked)}, generated)


def going(cluster: ModelCluster, inventory: Inventory) -> list[Resource]:
    """Return what the retire steps remove, in their order."""
    resources: list[Resource] = []
    for role in reversed(ORDER):
        assert role.unchosen is not None
        resources += role.unchosen(context(cluster, inventory, role))
    return resources


def apply(cluster: ModelCluster, inventory: Inventory) -> None:
    bring(cluster, *going(cluster, inventory))
    for role in ORDER:
        if role.declared(inventory, SUBJECT):
            bring(cluster, *role.resources(context(cluster, inventory, role)))


def left(cluster: ModelCluster, inventory: Inventory) -> list[str]:
    wanted = going(cluster, inventory)
    for role in ORDER:
        if role.declared(inventory, SUBJECT):
            wanted += role.resources(context(cluster, inventory, role))
    return [str(resource.key) for resource in wanted if changes(cluster, resource)]


def names_of(cluster: ModelCluster, kind: str) -> set[str]:
    return {body["metadata"]["name"] for body in cluster.store.listed(cluster.store.kind(kind))}


def traces(cluster: ModelCluster) -> set[str]:
    """Return what operators have written on the node."""
    node = cluster.get("Node", "n1")
    assert node is not None
    rows = (node["metadata"]["labels"], node["status"]["capacity"], node["status"]["allocatable"])
    prefixes = ("nvidia.com/", "rdma/", "feature.node.", "network.nvidia.com/")
    return {key for row in rows for key in row if key.startswith(prefixes)}


def written(folder: Path, *before: str, after: tuple[str, ...] = ()) -> int:
    """Return how many writes a removal has."""
    cluster = new_cluster()
    apply(cluster, load(folder, *before))
    cluster.requests.clear()
    apply(cluster, load(folder, *after))
    return 2 * len(cluster.writes())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((GPU,), ()),
        ((RDMA,), ()),
        ((GPU, RDMA), ()),
        ((GPU, RDMA, KAI), ()),
        ((GPU, HAMI), ()),
        ((GPU, RDMA), (GPU,)),
        ((GPU, RDMA), (RDMA,)),
        ((GPU, HAMI), (HAMI,)),
    ],
)
def test_what_left_the_inventory_goes_and_comes_back(
    tmp_path: Path, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    cluster, fresh = new_cluster(), new_cluster()
    for one in (before, after, before, after):
        inventory = load(tmp_path, *one)
        apply(cluster, inventory)
        assert left(cluster, inventory) == []
    apply(fresh, load(tmp_path, *after))
    spaces = names_of(fresh, "Namespace") | {"bench"} & names_of(cluster, "Namespace")
    assert names_of(cluster, "Namespace") == spaces, "only the namespace of workloads stays"
    assert names_of(cluster, "HelmChart") == names_of(fresh, "HelmChart")
    more = traces(cluster) - traces(fresh)
    assert {key for key in more if not key.startswith("feature.node.")} == set(), "NFD goes on to say these"
    if not after:
        assert traces(cluster) == set()
        crds = {
            name for name in names_of(cluster, "CustomResourceDefinition") if "helm.cattle.io" not in name
        }
        assert crds <= {"network-attachment-definitions.k8s.cni.cncf.io"}


def test_the_label_that_divides_cards_goes_with_the_operator(tmp_path: Path) -> None:
    cluster = new_cluster()
    profiles = "v26.3.3, mig: { strategy: mixed, profiles: { n1: all-1g.10gb } }"
    apply(cluster, load(tmp_path, GPU.replace("v26.3.3", profiles)))
    assert "nvidia.com/mig.config" in traces(cluster)
    apply(cluster, load(tmp_path))
    assert traces(cluster) == set(), "a later operator would divide the cards again"


def test_node_features_stay_for_the_operator_that_takes_them_over(tmp_path: Path) -> None:
    cluster = new_cluster()
    apply(cluster, load(tmp_path, GPU, RDMA))
    apply(cluster, load(tmp_path, RDMA))
    assert "nodefeatures.nfd.k8s-sigs.io" in names_of(cluster, "CustomResourceDefinition")
    apply(cluster, load(tmp_path))
    assert "nodefeatures.nfd.k8s-sigs.io" not in names_of(cluster, "CustomResourceDefinition")


def test_node_features_of_somebody_else_stay(tmp_path: Path) -> None:
    cluster = new_cluster()
    cluster.define(NFD_CRD)
    foreign = GPU.replace("v26.3.3", "v26.3.3, nfd: false")
    apply(cluster, load(tmp_path, foreign))
    apply(cluster, load(tmp_path))
    assert "nodefeatures.nfd.k8s-sigs.io" in names_of(cluster, "CustomResourceDefinition")


def test_under_hami_its_cards_stay_on_offer(tmp_path: Path) -> None:
    cluster = new_cluster()
    apply(cluster, load(tmp_path, GPU, HAMI))
    seen: list[object] = []

    def look(_text: str) -> None:
        node = cluster.get("Node", "n1")
        seen.append(node and node["status"]["allocatable"].get("nvidia.com/gpu"))

    cluster.on_write = look
    apply(cluster, load(tmp_path, HAMI))
    assert set(seen) == {"10"}
    assert cluster.get("RuntimeClass", "nvidia") is not None, "its plugin's pods name it"


class StopError(Exception):
    """The controller was killed."""


def killing(boundary: int) -> Callable[[str], None]:
    writes = 0

    def kill(_text: str) -> None:
        nonlocal writes
        writes += 1
        if writes == boundary:
            raise StopError

    return kill


@pytest.mark.parametrize(
    ("before", "after"),
    [((GPU, RDMA, KAI), ()), ((GPU, RDMA), (RDMA,)), ((GPU, RDMA), (GPU,))],
)
def test_a_removal_that_is_killed_at_any_write_goes_on(
    tmp_path: Path, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    for boundary in range(1, written(tmp_path, *before, after=after) + 1, 3):
        cluster = new_cluster()
        apply(cluster, load(tmp_path, *before))
        cluster.on_write = killing(boundary)
        inventory = load(tmp_path, *after)
        with pytest.raises(StopError):
            apply(cluster, inventory)
        cluster.on_write = None
        apply(cluster, inventory)
        assert left(cluster, inventory) == [], boundary
        own = {"gpu-operator": GPU, "nvidia-network-operator": RDMA, "kai-scheduler": KAI}
        kept = {name for name, section in own.items() if section in after}
        assert names_of(cluster, "Namespace") & own.keys() == kept, boundary


@pytest.mark.parametrize("namespace", ["gpu-operator", "nvidia-network-operator"])
def test_an_operator_of_somebody_else_is_never_removed(tmp_path: Path, namespace: str) -> None:
    cluster = new_cluster()
    chart = namespace.removeprefix("nvidia-")
    release = Release(chart, namespace, chart, "v1", 1, "deployed")
    cluster.helm.bring(cluster.store, release, {"nfd": {"enabled": True}})
    before = cluster.dump()
    apply(cluster, load(tmp_path))
    assert cluster.dump() == before
    assert cluster.writes() == []


RULE = {
    "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
    "kind": "NodeFeatureRule",
    "metadata": {"name": "fabric"},
    "spec": {"rules": []},
}
NICS = {
    "apiVersion": "mellanox.com/v1alpha1",
    "kind": "MacvlanNetwork",
    "metadata": {"name": "storage"},
    "spec": {"networkNamespace": "bench"},
}


def pod_in(namespace: str, **metadata: object) -> dict[str, object]:
    place = {"name": "of-a-colleague", "namespace": namespace, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": place, "spec": {"containers": []}}


@pytest.mark.parametrize(
    ("section", "body", "name"),
    [
        (GPU, pod_in("gpu-operator"), "pods/of-a-colleague in gpu-operator"),
        (GPU, RULE, "nodefeaturerules.nfd.k8s-sigs.io/fabric"),
        (RDMA, pod_in("nvidia-network-operator"), "pods/of-a-colleague in nvidia-network-operator"),
        (RDMA, NICS, "macvlannetworks.mellanox.com/storage"),
    ],
)
def test_what_others_would_lose_keeps_the_operator(
    tmp_path: Path, section: str, body: dict[str, object], name: str
) -> None:
    cluster = new_cluster()
    apply(cluster, load(tmp_path, section))
    if body is RULE:
        cluster.define(definition("nfd.k8s-sigs.io", "v1alpha1", "NodeFeatureRule", "nodefeaturerules"))
    cluster.store.seed(body)
    none = load(tmp_path)
    first, *others = going(cluster, none)
    remedy = remedy_of(first, ask(cluster, *first.queries()))
    assert isinstance(remedy, Impossible)
    assert (remedy.diagnostic.code, remedy.diagnostic.evidence) == ("OPERATOR_HAS_FOREIGN", (name,))
    assert others, "nothing of the operator goes before it"
    kind = cluster.store.kind(str(body["kind"]))
    place = body["metadata"]
    assert isinstance(place, dict)
    cluster.store.delete(kind, (place.get("namespace", ""), place["name"]))
    apply(cluster, none)
    assert left(cluster, none) == []


@pytest.mark.parametrize(
    ("metadata", "is_foreign"),
    [
        ({"annotations": {"helm.sh/hook": "post-delete"}}, False),
        (of_release("gpu-operator", "gpu-operator"), False),
        (of_release("of-others", "gpu-operator"), True),
        (OWNED, False),
        ({"labels": labels_of("gpu_operator")}, False),
        ({"labels": {"app.kubernetes.io/managed-by": "Helm"}}, True),
    ],
)
def test_only_what_nobody_of_the_operator_made_is_foreign(
    tmp_path: Path, metadata: dict[str, object], is_foreign: bool
) -> None:
    cluster = new_cluster()
    apply(cluster, load(tmp_path, GPU))
    cluster.store.seed(pod_in("gpu-operator", **metadata))
    first, *_ = going(cluster, load(tmp_path))
    seen = [change.path for change in changes(cluster, first)]
    assert seen == ["pods/of-a-colleague in gpu-operator"] * is_foreign


def test_a_node_feature_of_another_namespace_is_foreign(tmp_path: Path) -> None:
    cluster = new_cluster()
    apply(cluster, load(tmp_path, GPU))
    metadata = {"name": "probe", "namespace": "colleague"}
    body = {"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature", "metadata": metadata}
    cluster.store.seed(body)
    first, *_ = going(cluster, load(tmp_path))
    seen = [change.path for change in changes(cluster, first)]
    assert seen == ["nodefeatures.nfd.k8s-sigs.io/probe in colleague"], "those of operands are not"


def test_a_removal_needs_consent(tmp_path: Path) -> None:
    cluster = new_cluster()
    apply(cluster, load(tmp_path, GPU, RDMA))
    for name in ("rdma", "gpu"):
        kept = (GPU,) if name == "rdma" else ()
        first, *_ = (one for one in going(cluster, load(tmp_path, *kept)) if changes(cluster, one))
        remedy = remedy_of(first, ask(cluster, *first.queries()))
        assert isinstance(remedy, ApiCall)
        assert [risk.cls.name for risk in remedy.risks] == ["gpu-pods-lose-device"], name
        apply(cluster, load(tmp_path, *kept))


def test_another_namespace_of_the_operator_moves_it(tmp_path: Path) -> None:
    cluster = new_cluster()
    apply(cluster, load(tmp_path, GPU))
    moved = load(tmp_path, GPU.replace("v26.3.3", "v26.3.3, namespace: cards"))
    apply(cluster, moved)
    assert left(cluster, moved) == []
    assert names_of(cluster, "Namespace") & {"gpu-operator", "cards"} == {"cards"}


NODES = """
  s1: { address: 198.51.100.1, k3s: server, gpu_cards: { count: 2 } }
  a1: { address: 198.51.100.11, k3s: agent }
"""
CONSENT = Options(allow=frozenset({"gpu-pods-lose-device"}))


def test_whole_sections_that_are_taken_out_are_removed_with_consent(tmp_path: Path) -> None:
    site = SwitchedSite(tmp_path, NODES, tail=GPU + KAI)
    assert site.apply(CONSENT).exit_code == 0
    site.declare(tmp_path, NODES)
    planned = {planned.step.id.role for planned in site.plan().steps if planned.changes}
    assert planned == {"gpu_sharing:retire", "gpu_operator:retire"}
    assert site.apply().exit_code == 5, "it waits for consent"
    assert site.cluster.get("Namespace", "gpu-operator") is not None
    report = site.apply(CONSENT)
    assert report.exit_code == 0, [d for step in report.steps for d in step.diagnostics]
    assert site.cluster.get("Namespace", "gpu-operator") is None
    assert site.cluster.get("Namespace", "kai-scheduler") is None
    assert site.plan().empty


def test_a_pod_of_somebody_else_stays_with_the_operator(tmp_path: Path) -> None:
    site = SwitchedSite(tmp_path, NODES, tail=GPU)
    assert site.apply(CONSENT).exit_code == 0
    site.cluster.store.seed(pod_in("gpu-operator"))
    site.declare(tmp_path, NODES)
    for _ in range(2):
        site.cluster.requests.clear()
        report = site.apply(CONSENT)
        codes = {d.code for step in report.steps for d in step.diagnostics}
        assert (report.exit_code != 0, codes) == (True, {"OPERATOR_HAS_FOREIGN"})
        assert site.cluster.writes() == []
    assert site.cluster.get("Pod", "of-a-colleague", "gpu-operator") is not None
    assert site.cluster.get("HelmChart", "gpu-operator", "kube-system") is not None


def test_destroy_keeps_the_cluster_of_what_others_made(tmp_path: Path) -> None:
    site = SwitchedSite(tmp_path, NODES, tail=GPU)
    assert site.apply(CONSENT).exit_code == 0
    site.cluster.store.seed(pod_in("gpu-operator"))
    site.cluster.requests.clear()
    report = site.destroy(Options(allow=CONSENT.allow | {"delete"}))
    outcomes = {step.id.role: str(step.outcome) for step in report.steps}
    assert outcomes == {"gpu_operator": "failed", "k3s_agent": "blocked", "k3s_server": "blocked"}
    assert site.cluster.writes() == []


def test_a_cluster_that_was_never_started_has_nothing_to_remove(tmp_path: Path) -> None:
    plan = SwitchedSite(tmp_path, NODES).plan()
    assert [step.step.id.role for step in plan.steps if step.step.id.role.endswith(":retire")] == []


RAILS = """
  s1: { address: 198.51.100.1, k3s: server, rails: { r0: { device: rdma7, hca: mlx5_8 } } }
  a1: { address: 198.51.100.11, k3s: agent }
"""


@pytest.mark.parametrize("silent", [False, True])
def test_the_file_of_a_killed_multus_goes_with_the_network_operator(tmp_path: Path, silent: bool) -> None:
    site = SwitchedSite(tmp_path, RAILS, tail=RDMA)
    report = site.apply(CONSENT)
    assert report.exit_code in {0, 5}, [d for step in report.steps for d in step.diagnostics]
    for name in ("s1", "a1"):
        site.hosts[f"{name}/ssh"].state.files[MULTUS] = ModelFile(b"{}")
    site.silent = {"a1"} if silent else set()
    site.declare(tmp_path, RAILS)
    report = site.apply(CONSENT)
    assert site.cluster.get("Namespace", "nvidia-network-operator") is None
    left = {name for name in ("s1", "a1") if MULTUS in site.hosts[f"{name}/ssh"].state.files}
    assert left == site.silent, "a node that is silent holds up no removal"


def test_multus_of_somebody_else_keeps_its_file(tmp_path: Path) -> None:
    site = SwitchedSite(tmp_path, RAILS)
    assert site.apply(CONSENT).exit_code == 0
    site.hosts["s1/ssh"].state.files[MULTUS] = ModelFile(b"{}")
    assert site.plan().empty
