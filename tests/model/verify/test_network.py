"""A cluster with RDMA networks of pods: what somebody does to them turns the check of that name red."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from provision.api.domains import load_inventory as load
from provision.lab.kube.store import Write
from provision.testing.model_cluster import set_status
from provision.values.outcomes import ExitCode
from provision.verify import plugin
from provision.verify.model import CheckOutcome, VerifyReport
from tests.model.model_site import ModelSite
from tests.model.verify.damage import Damage

NODE, OWN, SPACE = "nic", "nvidia-network-operator", "bench"
INVENTORY = """
version: 1
name: nics
policy: { allow: [reboot-node] }
access: { user: debian, key: ./key }
network: { cidr: 198.18.0.0/24 }
nodes:
  nic:
    address: 198.18.0.13
    k3s: server
    rails: { r0: { device: rdma7, hca: mlx5_8, port: 1, mtu: 4220 } }
    rail_addresses: { r0: 10.224.7.143/12 }
k3s: { version: v1.35.7+k3s1, binary: ./k3s }
rdma:
  operator: { version: v26.4.0 }
  netns: shared
  resources: { ib: { rail: r0, pods_per_node: 64 } }
  networks:
    roce: { rail: r0, namespaces: [bench, serve], pool: { subnet: 10.224.240.0/24, block: 16 } }
"""


def status(kind: str, name: str, namespace: str = "", **fields: Any) -> Callable[[ModelSite], object]:
    def change(site: ModelSite) -> None:
        site.cluster.controllers.clear()
        held = site.cluster.get(kind, name, namespace)
        assert held is not None
        set_status(site.cluster.store, site.cluster.store.kind(kind), held, fields)

    return change


def stricter(site: ModelSite) -> None:
    kind = site.cluster.store.kind("Namespace")
    held = site.cluster.get("Namespace", SPACE)
    assert held is not None
    labels = {**held["metadata"]["labels"], "pod-security.kubernetes.io/enforce": "baseline"}
    made = {**held, "metadata": {**held["metadata"], "labels": labels}}
    site.cluster.store.update(kind, ("", SPACE), made, Write("somebody"))


NETWORK_DAMAGES = (
    Damage(
        "test_cni_programs",
        "/var/lib/rancher/k3s/data/cni/macvlan does not run",
        lambda site: site.hosts[f"{NODE}/ssh"].state.files.pop("/var/lib/rancher/k3s/data/cni/macvlan"),
        NODE,
    ),
    Damage(
        "test_nic_policy_is_ready",
        "notReady",
        status("NicClusterPolicy", "nic-cluster-policy", state="notReady"),
        "cluster",
    ),
    Damage(
        "test_network_operands_run",
        "kube-multus-ds: 0 of 1",
        status("DaemonSet", "kube-multus-ds", OWN, numberReady=0),
        "cluster",
    ),
    Damage(
        "test_rdma_is_allocatable",
        "0 are allocatable, 64 are declared",
        status("Node", NODE, allocatable={"rdma/ib": "0"}),
        NODE,
    ),
    Damage(
        "test_rdma_pools",
        "no node has addresses",
        status("IPPool", "roce-pool", OWN, allocations=[]),
        "cluster",
    ),
    Damage(
        "test_rdma_networks",
        "roce-serve: error",
        status("MacvlanNetwork", "roce-serve", state="error"),
        "cluster",
    ),
    Damage("test_rdma_namespaces_admit", "bench: Pod Security enforces baseline", stricter, "cluster"),
)
"""All at once: each is seen by its own check."""
CHECKS = {damage.check for damage in NETWORK_DAMAGES}


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> ModelSite:
    folder = tmp_path_factory.mktemp("nics")
    for name, text in {"key": "k", "key.pub": "ssh-ed25519 AAAA me", "k3s": "binary"}.items():
        (folder / name).write_text(text)
    (folder / "nics.yaml").write_text(INVENTORY)
    site = ModelSite(load(folder / "nics.yaml"), folder / "state", checks=True)
    site.apply()
    return site


@pytest.fixture
def site(applied: ModelSite, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelSite]:
    monkeypatch.setattr(plugin, "SETTLING", 0.05)
    monkeypatch.setattr(plugin, "PAUSE", 0.01)
    store = applied.cluster.store
    objects, controllers = copy.deepcopy(store._objects), list(store.controllers)
    hosts = {name: copy.deepcopy(host.state) for name, host in applied.hosts.items()}
    yield applied
    for name, state in hosts.items():
        applied.hosts[name].state = state
    store._objects = objects
    store.controllers[:] = controllers


def outcomes(report: VerifyReport, outcome: CheckOutcome) -> dict[str, str]:
    return {one.check: one.message for one in report.checks if one.outcome is outcome and one.check in CHECKS}


def test_networks_as_declared_are_proven(site: ModelSite) -> None:
    assert outcomes(site.verify(), CheckOutcome.PROVEN).keys() == CHECKS


def test_every_damage_of_networks_turns_its_check_red(site: ModelSite) -> None:
    for damage in NETWORK_DAMAGES:
        damage.do(site)
    report = site.verify()
    red = outcomes(report, CheckOutcome.FAILED)
    assert {
        check: damage.words in red.get(check, "") for check, damage in _by_check().items()
    } == dict.fromkeys(CHECKS, True), red
    assert report.exit_code(strict=False) == ExitCode.VERIFY_FAILED


def _by_check() -> dict[str, Damage]:
    return {damage.check: damage for damage in NETWORK_DAMAGES}
