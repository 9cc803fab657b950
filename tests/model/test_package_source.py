"""A node with a mirror: the driver waits for the lists of the source, and a second apply changes nothing."""

from __future__ import annotations

from pathlib import Path

from provision.api import Options
from provision.api.domains import load_inventory as load
from provision.hosts.apt_sources import RELEASES, SOURCES
from provision.hosts.protocol.script import APT_FOLDER
from provision.testing.model_state import ModelFile
from provision.values.outcomes import Outcome
from tests.model.model_site import ModelSite

TEXT = """
version: 1
name: site
access: { user: root }
policy: { allow: [reboot-node] }
sources: { apt: "https://mirror.example/debian" }
nodes:
  gpu-1:
    address: 198.51.100.7
    gpu_cards: { count: 1 }
    driver: { origin: debian, nvlink: false }
"""


def test_a_driver_comes_from_the_mirror_in_one_apply(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(TEXT)
    site = ModelSite(load(tmp_path / "site.yaml"), tmp_path / "state")
    state = site.hosts["gpu-1/ssh"].state
    state.files.update({release.keyring: ModelFile(b"keys") for release in RELEASES.values()})
    plan = site.plan()
    steps = {step.step.id.role: step for step in plan.steps}
    assert [change.key.kind for change in steps["base_os"].changes] == ["apt-source"]
    assert steps["gpu_driver"].late
    report = site.apply()
    assert {step.outcome for step in report.steps} <= {Outcome.CHANGED, Outcome.UNCHANGED}
    assert "https://mirror.example/debian\n" in state.text(SOURCES)
    assert state.packages["nvidia-smi"]
    again = site.apply()
    assert not any(step.changed for step in again.steps)
    site.destroy(Options(host=True, allow=frozenset({"delete"})))
    assert not any(path.startswith(APT_FOLDER) for path in state.files)
