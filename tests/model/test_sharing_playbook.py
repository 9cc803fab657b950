"""The playbook gpu-sharing on models: from one mode to another without looking at hosts."""

from __future__ import annotations

from pathlib import Path

from provision.api import Options, Site
from provision.gpu.mps import MpsStatus
from tests.model.k3s_site import K3sSite

NODES = """
  s1: { address: 198.51.100.1, k3s: server, gpu_cards: { count: 2 } }
  a1: { address: 198.51.100.11, k3s: agent }
"""
GPU = "gpu: { toolkit: host, operator: { version: v26.3.3 } }\n"
HAMI, KAI = (f"sharing: {{ mode: {name}, version: v1 }}\n" for name in ("hami", "kai"))
CONSENT = Options(allow=frozenset({"gpu-pods-lose-device"}))


class SwitchedSite(K3sSite):
    """A cluster that is changed by a playbook of its own."""

    playbook = "site"

    def site(self) -> Site:
        return Site(self.inventory, self.playbook, self.state, self.open, self.verifier)


def test_a_switch_needs_consent_and_removes_the_former_mode_first(tmp_path: Path) -> None:
    site = SwitchedSite(tmp_path, NODES, tail=GPU + HAMI)
    assert site.apply(CONSENT).exit_code == 0
    site.declare(tmp_path, NODES, tail=GPU + KAI)
    site.playbook = "gpu-sharing"
    plan = site.plan()
    assert {planned.step.id.role for planned in plan.steps if planned.changes} >= {
        "gpu_sharing:retire",
        "gpu_operator",
    }
    waiting = site.apply()
    outcomes = {step.id.role: str(step.outcome) for step in waiting.steps}
    assert outcomes["gpu_sharing:retire"] == outcomes["gpu_operator"] == "waiting"
    plugin = site.cluster.get("DaemonSet", "nvidia-device-plugin-daemonset", "gpu-operator")
    assert plugin is None, "the stock plugin does not come back beside HAMi's"
    assert site.cluster.get("Namespace", "hami-system") is not None
    report = site.apply(CONSENT)
    assert report.exit_code == 0, [d for step in report.steps for d in step.diagnostics]
    assert site.cluster.get("Namespace", "hami-system") is None
    assert site.cluster.get("Namespace", "kai-scheduler") is not None
    assert {step.id.role for step in report.steps} <= {
        "gpu_sharing:retire",
        "gpu_operator",
        "gpu_sharing",
        "verify",
    }
    assert site.plan().empty


FOLDER = "/run/nvidia/mps/nvidia.com/gpu"
MPS = "sharing: { mode: mps, slots_per_card: 4 }\n"


def test_what_a_killed_server_of_mps_left_goes_with_the_mode(tmp_path: Path) -> None:
    site = SwitchedSite(tmp_path, NODES, tail=GPU + MPS)
    assert site.apply(CONSENT).exit_code == 0
    state = site.hosts["s1/ssh"].state
    left = MpsStatus(killed=(FOLDER,), has_memory=True, exclusive=("GPU-1",))
    state.mps = left
    assert site.plan().empty, "in its own mode a server may come back"
    site.declare(tmp_path, NODES, tail=GPU + KAI)
    report = site.apply(CONSENT)
    assert report.exit_code == 0, [d for step in report.steps for d in step.diagnostics]
    assert state.mps == MpsStatus()
    assert site.plan().empty
