from __future__ import annotations

from pathlib import Path

from provision.api.domains import check_folders
from provision.api.domains import load_inventory as load
from provision.verify.runner import run_checks, subjects
from tests.model.verify.test_runner import INVENTORY, Host


def test_checks_are_about_the_targets_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(INVENTORY)
    inventory = load(path)
    assert "a" in subjects(inventory)["node"]
    assert set(subjects(inventory, ("a",))["node"]) == {"a"}
    assert {
        each.subject for each in run_checks(inventory, Host({}), check_folders(), targets=("a",)).checks
    } == {"a"}
    assert run_checks(inventory, Host({}), check_folders(), targets=("another",)).checks == ()
