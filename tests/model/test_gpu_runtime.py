"""The toolkit of the GPU Operator on models: k3s restarts once on each node, and then pods get the cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.engine.model import RunReport
from provision.hosts.resources.pci import PciFunction
from provision.k3s import runtimes
from provision.testing.model_gpu import archive_drivers
from provision.testing.model_host import ModelFile, ModelFunction
from provision.testing.model_k3s import install_toolkit
from tests.model.k3s_site import K3sSite
from tests.model.model_site import DeadError, Life

NODES = """
  s1: { address: 198.51.100.1, k3s: server, gpu_cards: { count: 2 } }
  a1: { address: 198.51.100.11, k3s: agent, gpu_cards: { count: 2 } }
"""
TAIL = "gpu: { toolkit: operator, operator: { version: v26.7.1 } }\n"
MODES = {"none": "", "hami": "sharing: { mode: hami, version: 2.9.0 }\n"}
DESIRED = f"{runtimes.TOOLKIT}/{runtimes.RUNTIME}"


def site_of(folder: Path, tail: str = TAIL, more: str = "") -> K3sSite:
    return K3sSite(folder, NODES + more, tail=tail)


def restarts(site: K3sSite) -> list[str]:
    return [line.partition("/")[0] for line in site.life.log if line.endswith("restart-k3s: done")]


def problems(report: RunReport) -> list[str]:
    return [f"{d.code} {d.summary} {d.evidence}" for step in report.steps for d in step.diagnostics]


@pytest.mark.parametrize("mode", MODES)
def test_k3s_restarts_once_a_node_and_the_cards_are_proven(tmp_path: Path, mode: str) -> None:
    site = site_of(tmp_path, TAIL + MODES[mode])
    report = site.apply()
    assert report.exit_code == 0, problems(report)
    assert restarts(site) == ["s1", "a1"]
    for name in ("s1", "a1"):
        assert DESIRED in site.text(name, runtimes.CONTAINERD)
    site.life.log.clear()
    second = site.apply()
    assert {str(step.outcome) for step in second.steps} == {"unchanged"}
    assert restarts(site) == []
    assert {name: second.trips[name] for name in ("s1/ssh", "a1/ssh")} == {"s1/ssh": 1, "a1/ssh": 1}


def test_a_node_whose_containerd_lost_the_runtime_restarts_alone(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    assert site.apply().exit_code == 0
    site.hosts["a1/ssh"].state.files[runtimes.CONTAINERD] = ModelFile(b"version = 3\n")
    plan = site.plan()
    changes = [
        (str(change.key), [str(effect) for effect in change.effects])
        for planned in plan.steps
        for change in planned.changes
        if change.key.kind == "container-runtime"
    ]
    assert changes == [("a1/ssh:container-runtime:nvidia", ["restart-k3s"])]
    site.life.log.clear()
    assert site.apply().exit_code == 0
    assert restarts(site) == ["a1"]


def test_a_toolkit_that_does_not_come_stops_before_any_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_of(tmp_path)
    monkeypatch.setattr("tests.model.model_site.install_toolkit", lambda _: None)
    report = site.apply()
    assert report.exit_code != 0
    assert "container-runtime" in " ".join(problems(report))
    assert restarts(site) == []


def test_without_consent_no_node_restarts_and_the_step_waits(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    object.__setattr__(site.inventory.policy, "allow", ())
    report = site.apply()
    (step,) = [step for step in report.steps if step.id.role == "gpu_operator"]
    assert str(step.outcome) == "waiting", problems(report)
    assert restarts(site) == []


def test_a_silent_node_keeps_no_other_from_its_restart(tmp_path: Path) -> None:
    site = site_of(tmp_path, more="  a2: { address: 198.51.100.12, k3s: agent }\n")
    site.apply()
    site.hosts["s1/ssh"].state.files[runtimes.CONTAINERD] = ModelFile(b"version = 3\n")
    site.silent = {"a1"}
    site.life.log.clear()
    site.apply()
    assert restarts(site) == ["s1"]


def test_a_run_that_is_killed_anywhere_ends_with_the_runtime(tmp_path: Path) -> None:
    whole = site_of(tmp_path / "whole")
    whole.apply()
    marks = [number for number, line in enumerate(whole.life.log, 1) if "a1/ssh: restart-k3s" in line]
    for boundary in (marks[0] - 2, *marks):
        site = site_of(tmp_path / f"killed-{boundary}")
        site.life = Life(boundary)
        with pytest.raises(DeadError):
            site.apply()
        site.life = Life()
        report = site.apply()
        assert report.exit_code == 0, problems(report)
        for name in ("s1", "a1"):
            assert DESIRED in site.text(name, runtimes.CONTAINERD)
        assert site.plan().empty


DRIVEN = NODES.replace("count: 2 }", "count: 1 }, driver: { origin: debian }")
HOST_TAIL = "gpu: { toolkit: host, operator: { version: v26.7.1 } }\n"
PACKAGED = "/usr/bin/nvidia-container-runtime"


def driven_site(folder: Path, tail: str) -> K3sSite:
    """Return a cluster whose machines have a card and a driver to install."""
    site = K3sSite(folder, DRIVEN, tail=tail)
    for host in site.hosts.values():
        card = PciFunction("0000:01:00.0", "10de", "2204", "030200")
        host.state.functions = [ModelFunction(card, ("nouveau",), "nouveau")]
        archive_drivers(host.state, "debian")
    object.__setattr__(site.inventory.policy, "allow", (*site.inventory.policy.allow, "reboot-node"))
    return site


def test_a_toolkit_that_comes_before_k3s_costs_no_restart(tmp_path: Path) -> None:
    site = driven_site(tmp_path, HOST_TAIL)
    report = site.apply()
    assert report.exit_code == 0, problems(report)
    assert restarts(site) == []
    assert PACKAGED in site.text("a1", runtimes.CONTAINERD)
    assert site.plan().empty


def test_a_toolkit_on_the_host_restarts_a_running_k3s_once_a_node(tmp_path: Path) -> None:
    site = driven_site(tmp_path, "gpu: { operator: { version: v26.7.1 } }\n")
    assert site.apply().exit_code == 0
    assert PACKAGED not in site.text("a1", runtimes.CONTAINERD)
    site.declare(tmp_path, DRIVEN, tail=HOST_TAIL)
    site.life.log.clear()
    report = site.apply()
    assert report.exit_code == 0, problems(report)
    assert sorted(restarts(site)) == ["a1", "s1"]
    assert PACKAGED in site.text("a1", runtimes.CONTAINERD)
    assert site.plan().empty
    # What a GPU Operator has left there is what k3s takes first: a restart would not help.
    state = site.hosts["a1/ssh"].state
    install_toolkit(state)
    text = site.text("a1", runtimes.CONTAINERD).replace(PACKAGED, DESIRED)
    state.files[runtimes.CONTAINERD] = ModelFile(text.encode())
    site.life.log.clear()
    report = site.apply()
    assert "TOOLKIT_LEFT" in " ".join(problems(report))
    assert restarts(site) == []


@pytest.mark.parametrize(("unlinked", "named"), [(True, ["a1"]), (False, [])])
def test_a_reload_of_systemd_that_takes_cards_from_pods_is_named(
    tmp_path: Path, unlinked: bool, named: list[str]
) -> None:
    site = site_of(tmp_path)
    assert site.apply().exit_code == 0
    state = site.hosts["a1/ssh"].state
    state.unlinked_cards = unlinked
    unit = "/etc/systemd/system/k3s-agent.service"
    state.files[unit] = ModelFile(state.files[unit].content + b"# changed\n")
    warnings = [warning for warning in site.plan().warnings if warning.code == "GPU_RELOAD_TAKES_CARDS"]
    assert [warning.subject for warning in warnings] == named
    assert all("nvidia-ctk system" in warning.remedy for warning in warnings)
    # Without a reload, nothing is lost.
    state.files[unit] = ModelFile(state.files[unit].content.removesuffix(b"# changed\n"))
    assert "GPU_RELOAD_TAKES_CARDS" not in [warning.code for warning in site.plan().warnings]
