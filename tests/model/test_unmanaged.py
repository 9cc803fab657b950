"""What a node declares as not managed stays as it is, whatever it is: an apply changes nothing of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from provision.engine.model import RunReport
from provision.hosts.resources.pci import PciFunction
from provision.k3s.queries import Machine, MachineStatus
from provision.testing.model_host import ModelFile, ModelFunction
from provision.testing.model_k3s import ANSWERS
from provision.testing.model_state import HostState
from tests.model.k3s_site import K3sSite

NODE = "  s1: {{ address: 198.51.100.1, k3s: server{} }}\n"
Prepare = Callable[[HostState], object]


def other_name(state: HostState) -> None:
    state.hostname = "rpi_node1"


def foreign_driver(state: HostState) -> None:
    card = PciFunction("0000:01:00.0", "10de", "2204", "030200")
    state.functions = [ModelFunction(card, ("nvidia",), "nvidia")]
    state.foreign_driver = state.loaded_driver = "580.95.05"


def vendors_stack(state: HostState) -> None:
    state.packages["mlnx-ofed-all"] = "24.10"


def docker(state: HostState) -> None:
    answer = ANSWERS[Machine](state, Machine())
    assert isinstance(answer, MachineStatus)
    state.machine = replace(answer, foreign=("docker (/lib/systemd/system/docker.service)",))


def mount_of_theirs(state: HostState) -> None:
    state.files["/etc/fstab"] = ModelFile(b"nas:/models /srv/models nfs4 ro 0 0\n")
    state.mounts["/srv/models"] = "nas:/models"


CASES: dict[str, tuple[str, str, Prepare]] = {
    # what, keys of the node, other sections, how the machine is
    "hostname": (", hostname: unmanaged", "", other_name),
    "driver": (", driver: { manage: false, minimum: '570' }, gpu_cards: { count: 1 }", "", foreign_driver),
    "ofed": (
        ", ofed: { manage: false }",
        "",
        vendors_stack,
    ),
    "runtime": (", container_runtime: { manage: false }", "", docker),
    "mounts": ("", "storage: { models: { path: /srv/models, manage: false } }\n", mount_of_theirs),
}


def shown(report: RunReport) -> str:
    return " ".join(f"{d.code} {d.summary}" for step in report.steps for d in step.diagnostics)


def own(state: HostState) -> dict[str, object]:
    """Return what the cases are about."""
    keys = ("hostname", "foreign_driver", "loaded_driver", "mounts", "machine", "held")
    kept: dict[str, object] = {key: copy.deepcopy(getattr(state, key)) for key in keys}
    kept["fstab"] = state.text("/etc/fstab")
    kept["packages"] = {
        name: version
        for name, version in state.packages.items()
        if name.startswith(("nvidia", "libnvidia", "mlnx", "docker", "containerd"))
    }
    kept["hostname file"] = state.text("/etc/hostname")
    return kept


@pytest.mark.parametrize("what", CASES)
def test_what_is_not_managed_stays_as_it_is(tmp_path: Path, what: str) -> None:
    keys, tail, prepare = CASES[what]
    site = K3sSite(tmp_path, NODE.format(keys), tail=tail)
    state = site.hosts["s1/ssh"].state
    prepare(state)
    before, boots = own(state), state.boots
    report = site.apply()
    assert report.exit_code == 0, shown(report)
    assert own(state) == before
    assert state.boots == boots
    assert site.plan().empty
    assert not [warning for warning in site.plan().warnings if warning.code == "KUBERNETES_PRESENT"]


@pytest.mark.parametrize(
    ("what", "managed"),
    [
        ("hostname", (", hostname: s1", "")),
        ("mounts", ("", "storage: { models: { path: /srv/models, manage: true, server: 'nas:/other' } }\n")),
    ],
)
def test_the_same_machine_differs_where_it_is_managed(
    tmp_path: Path, what: str, managed: tuple[str, str]
) -> None:
    site = K3sSite(tmp_path, NODE.format(managed[0]), tail=managed[1])
    CASES[what][2](site.hosts["s1/ssh"].state)
    kinds = {change.key.kind for step in site.plan().steps for change in step.changes}
    assert {"hostname": "hostname", "mounts": "nfs-mount"}[what] in kinds


def test_a_node_that_is_not_managed_is_neither_asked_nor_changed(tmp_path: Path) -> None:
    more = "  theirs: { address: 198.51.100.9, manage: false, timezone: Etc/UTC, packages: [jq] }\n"
    site = K3sSite(tmp_path, NODE.format("") + more)
    site.silent = {"theirs"}
    report = site.apply()
    assert report.exit_code == 0, shown(report)
    assert "theirs" not in {step.id.subject for step in report.steps}
