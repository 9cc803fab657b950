"""A node of the cluster begins again from its image: drained, forgotten, and joined under its old name."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from provision.api import Options
from provision.api.vm_marker import mark_for_rebuild
from provision.engine.model import RunReport
from provision.k3s import paths
from provision.values.cancel import Cancel
from provision.values.errors import Refused
from tests.model.k3s_site import HYPERVISOR, VM, K3sSite

AGENT = f"""\
  s1: {{ address: 198.51.100.1, k3s: server }}
  a1: {VM}, vmid: 201, address: 198.51.100.11, k3s: agent }}
"""
ALONE = f"  s1: {VM}, vmid: 201, address: 198.51.100.11, k3s: server }}\n"
ALLOW = Options(allow=frozenset({"replace", "drain", "power-cycle", "reboot-guest", "reboot-hypervisor"}))


def mark(site: K3sSite, name: str) -> None:
    with closing(site.site()) as opened:
        mark_for_rebuild(opened, name, Cancel())


def bind_volume(site: K3sSite, name: str, node: str) -> None:
    """Let local-path have made a volume on a node, as k3s v1.35 writes it."""
    row = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    spec = {
        "claimRef": {"namespace": "shop", "name": "db"},
        "hostPath": {"path": f"/var/lib/rancher/k3s/storage/{name}", "type": "DirectoryOrCreate"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [row]}]}},
    }
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    site.cluster.store.seed(body)


def problems(report: RunReport) -> list[str]:
    return [f"{d.code} {d.summary} {d.evidence}" for step in report.steps for d in step.diagnostics]


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> K3sSite:
    monkeypatch.setenv("TOKEN", "t")
    site = K3sSite(tmp_path, AGENT, tail=HYPERVISOR)
    report = site.apply(ALLOW)
    assert report.exit_code == 0, problems(report)
    return site


def test_an_agent_is_drained_rebuilt_with_its_data_disk_and_joined(built: K3sSite) -> None:
    store = built.cluster.store
    metadata = {"name": "a1.node-password.k3s", "namespace": "kube-system"}
    store.seed({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    node = built.cluster.get("Node", "a1")
    assert node is not None
    former, machine = node["metadata"]["uid"], "a" * 32
    node["status"]["nodeInfo"]["machineID"] = machine
    (vm,) = built.apis["pve/api"].vms.values()
    data, mac = vm.config["scsi1"], vm.config["net0"]
    mark(built, "a1")
    built.life.log.clear()
    report = built.apply(ALLOW)
    assert report.exit_code == 0, problems(report)
    roles = [step.id.role for step in report.steps]
    assert "drain:before" in roles, roles
    assert (vm.config["scsi1"], vm.config["net0"], vm.images) == (data, mac, 1)
    node = built.cluster.get("Node", "a1")
    assert node is not None
    assert node["metadata"]["uid"] != former
    assert not node["spec"].get("unschedulable")
    assert built.cluster.get("Secret", "a1.node-password.k3s", "kube-system") is None
    assert built.hosts["a1/ssh"].state.units[paths.AGENT].active
    # A model shows its final host key at once: the snippet with the first one goes with the next apply.
    assert built.apply(ALLOW).exit_code == 0
    assert built.plan().empty


def test_a_single_server_with_its_datastore_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "t")
    site = K3sSite(tmp_path, ALONE, tail=HYPERVISOR)
    report = site.apply(ALLOW)
    assert report.exit_code == 0, problems(report)
    mark(site, "s1")
    with pytest.raises(Refused) as refused:
        site.apply(ALLOW)
    assert [problem.code for problem in refused.value.diagnostics] == ["K3S_DATASTORE_LOST"]
    assert [vm.images for vm in site.apis["pve/api"].vms.values()] == [0]


def test_volumes_of_the_node_alone_wait_for_a_consent_of_their_own(built: K3sSite) -> None:
    bind_volume(built, "pvc-1", "a1")
    bind_volume(built, "pvc-2", "s1")
    assert "NODE_HAS_VOLUMES" not in {warning.code for warning in built.plan().warnings}
    mark(built, "a1")
    plan = built.plan()
    (warning,) = [each for each in plan.warnings if each.code == "NODE_HAS_VOLUMES"]
    assert warning.evidence == ("pvc-1: claim shop/db, /var/lib/rancher/k3s/storage/pvc-1",)
    assert "volume-loss a1" in {str(need.effect) for need in plan.risks}
    report = built.apply(ALLOW)
    assert report.exit_code == 5, problems(report)
    node = built.cluster.get("Node", "a1")
    assert node is not None
    assert "unschedulable" not in node["spec"]
    assert [vm.images for vm in built.apis["pve/api"].vms.values()] == [0]
    report = built.apply(Options(allow=ALLOW.allow | {"volume-loss"}))
    assert report.exit_code == 0, problems(report)
    assert [vm.images for vm in built.apis["pve/api"].vms.values()] == [1]
