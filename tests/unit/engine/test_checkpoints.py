"""Steps that are verified before the first subject and after each one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from provision.engine.environment import Verification
from provision.engine.model import Checkpoint
from provision.inventory.playbook import Entry, parse_playbook
from provision.values.cancel import Cancel
from provision.values.errors import UsageError
from provision.values.outcomes import ExitCode
from tests.unit.engine.fakes import FakeRole, FakeSite, on_own, own

LINE = {"role": "r", "on": "all", "serial": "1", "stop_on_failure": "true", "verify": "each"}


class Checkpoints:
    """Says where it was asked; fails at one place."""

    def __init__(self, fails: str = "") -> None:
        self.asked: list[str] = []
        self.fails = fails

    def __call__(self, request: Checkpoint, _cancel: Cancel) -> Verification:
        place = f"{'before' if request.is_before else 'after'} {request.subject}"
        self.asked.append(place)
        code = ExitCode.VERIFY_FAILED if place == self.fails else ExitCode.DONE
        return Verification(code, f"said {place}")


def site(folder: Path, checkpoints: Checkpoints, roles: Sequence[str] = ("r",)) -> FakeSite:
    entries = [
        Entry(role, ("all",), serial=1, stop_on_failure=True, verify_each=True, way_back="back")
        for role in roles
    ]
    return FakeSite(
        [FakeRole(role, own(**{role: "1"}), on_own()) for role in roles],
        subjects=("n1", "n2", "n3"),
        entries=(*entries, Entry("verify")),
        state=folder,
        verify=lambda _: Verification(ExitCode.DONE, "all"),
        checkpoint=checkpoints,
    )


def test_a_site_is_verified_before_the_first_and_after_each(tmp_path: Path) -> None:
    checkpoints = Checkpoints()
    assert site(tmp_path, checkpoints).apply().exit_code == 0
    assert checkpoints.asked == ["before n1", "after n1", "after n2", "after n3"]


def test_what_is_unchanged_is_not_verified(tmp_path: Path) -> None:
    checkpoints = Checkpoints()
    fakes = site(tmp_path, checkpoints)
    fakes.hosts["n1/ssh"].values["r"] = "1"
    fakes.hosts["n3/ssh"].values["r"] = "1"
    assert fakes.apply().exit_code == 0
    assert checkpoints.asked == ["before n2", "after n2"]
    checkpoints.asked.clear()
    assert fakes.apply().exit_code == 0
    assert checkpoints.asked == []


@pytest.mark.parametrize(("fails", "changed"), [("before n1", 0), ("after n1", 1), ("after n2", 2)])
def test_a_failed_checkpoint_stops_there(tmp_path: Path, fails: str, changed: int) -> None:
    fakes = site(tmp_path, Checkpoints(fails), ("r", "s"))
    report = fakes.apply()
    assert report.exit_code == ExitCode.ERROR, "steps are blocked"
    outcomes = [str(step.outcome) for step in report.steps if step.id.role in ("r", "s")]
    assert outcomes == ["changed"] * changed + ["blocked"] * (6 - changed)
    reasons = {step.reason for step in report.steps if str(step.outcome) == "blocked" and step.id.role == "s"}
    assert all("verify failed" in reason for reason in reasons)


def test_the_next_role_begins_behind_the_last_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints()
    fakes = site(tmp_path, checkpoints, ("r", "s"))
    order: list[str] = []
    fakes.on_set = lambda system, name, _: order.append(f"{system} {name}")
    assert fakes.apply().exit_code == 0
    assert order == [f"n{number}/ssh {role}" for role in "rs" for number in (1, 2, 3)]
    assert checkpoints.asked[3:5] == ["after n3", "before n1"]


@pytest.mark.parametrize(
    "wrong",
    [{"serial": "0"}, {"stop_on_failure": "false"}, {"verify": "all"}, {"way_back": ["x"]}, {"serial": "2"}],
)
def test_a_careful_step_needs_one_subject_at_a_time(wrong: dict[str, object]) -> None:
    parse_playbook({"steps": [LINE]}, "p")
    with pytest.raises(UsageError):
        parse_playbook({"steps": [{**LINE, **wrong}]}, "p")
