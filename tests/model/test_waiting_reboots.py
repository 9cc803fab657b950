"""VMs without a card do not wait for a reboot of their hypervisor that nobody has allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api import Options
from provision.values.outcomes import Outcome
from tests.model.model_site import ModelSite
from tests.model.test_engine_sites import lab


@pytest.fixture(autouse=True)
def _tasks_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provision.proxmox.driver.FIRST_POLL", 0.0)


def test_only_the_vm_with_the_card_waits_for_the_reboot(tmp_path: Path) -> None:
    inventory = lab(tmp_path)
    allowed = tuple(name for name in inventory.policy.allow if name != "reboot-hypervisor")
    asking = inventory.policy.model_copy(update={"allow": allowed})
    site = ModelSite(inventory.model_copy(update={"policy": asking}), tmp_path / "state")
    report = site.apply(Options(allow=frozenset({"console-loss"})))
    outcomes = {str(step.id): step.outcome for step in report.steps}
    with_card = [node.name for node in inventory.nodes.values() if node.gpus]
    without = [node.name for node in inventory.nodes.values() if node.is_virtual and not node.gpus]
    assert with_card
    assert without
    for name in without:
        assert outcomes[f"{name}: virtual_machine"] is Outcome.CHANGED, outcomes
        assert outcomes[f"{name}: base_os"] in {Outcome.CHANGED, Outcome.UNCHANGED}, outcomes
    for name in with_card:
        assert outcomes[f"{name}: virtual_machine"] is Outcome.WAITING, outcomes
    assert report.exit_code == 5
