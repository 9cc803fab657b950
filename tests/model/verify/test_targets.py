from __future__ import annotations

from pathlib import Path

from provision.api.domains import check_folders
from provision.api.domains import load_inventory as load
from provision.report.checks import style_of
from provision.verify.model import CheckOutcome
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


def test_a_subject_that_the_targets_leave_out_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(INVENTORY)
    report = run_checks(load(path), Host({}), check_folders(), targets=("another",))
    (left_out,) = report.checks
    assert (left_out.subject, left_out.outcome, left_out.excused) == ("a", CheckOutcome.NOT_RUN, True)
    assert style_of(report.checks) != "green"
