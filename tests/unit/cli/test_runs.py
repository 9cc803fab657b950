from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from provision.api import Options, plan_code
from provision.api.events import plan_events
from provision.api.masking import plan_masked
from provision.cli import main, runs
from provision.cli.names import saved_plan
from provision.contracts import common_effects
from provision.engine.model import ConsentNeed, Plan, StepReport
from provision.inventory import Inventory
from provision.inventory.models.cluster import VerifyOptions
from provision.values import events
from provision.values.consent import Consent
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.errors import UsageError
from provision.values.outcomes import ExitCode, Outcome
from provision.verify.model import CheckOutcome, CheckResult, VerifyReport
from tests.unit.cli.fake_site import DONE, INVENTORY, STEP, FakeSite
from tests.unit.report.samples import GUEST_STEP, PLAN, REBOOT, REFUSED, SAME


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> FakeSite:
    fake = FakeSite()
    monkeypatch.setattr(runs, "settle", lambda _context, _name, **_how: INVENTORY)
    monkeypatch.setattr(runs, "read", lambda _name: INVENTORY)
    monkeypatch.setattr(runs, "open_site", lambda _inventory, _playbook=None: fake)
    return fake


def at_terminal(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    """Let a person sit there who types these lines; anything further is the end of input."""
    left = list(answers)
    monkeypatch.setattr(runs, "on_terminal", lambda: True)
    monkeypatch.setattr("provision.cli.prompts._read", lambda _prompt: left.pop(0) if left else "")


@pytest.mark.parametrize(
    ("plan", "detailed", "code"),
    [
        (SAME, False, ExitCode.DONE),
        (SAME, True, ExitCode.DONE),
        (Plan("lab", (GUEST_STEP,)), False, ExitCode.DONE),
        (Plan("lab", (GUEST_STEP,)), True, ExitCode.CHANGES),
        (PLAN, True, ExitCode.ERROR),
        (REFUSED, True, ExitCode.REFUSED),
        (Plan("lab", PLAN.steps[-1:]), True, ExitCode.DONE),
        (Plan("lab", PLAN.steps[4:5]), True, ExitCode.CHANGES),
        (Plan("lab", (replace(GUEST_STEP, problem=REFUSED.refusals[0]),)), True, ExitCode.ERROR),
    ],
    ids=[
        "same",
        "same-detailed",
        "changes",
        "changes-detailed",
        "unreached",
        "refused",
        "off",
        "late",
        "problem",
    ],
)
def test_plan_ends_with_the_right_exit_code(plan: Plan, detailed: bool, code: ExitCode) -> None:
    assert plan_code(plan, detailed=detailed) is code


def test_plan_shows_the_plan_and_closes_the_site(site: FakeSite, capsys: pytest.CaptureFixture[str]) -> None:
    site.plan_result = Plan("lab", (GUEST_STEP,))
    assert main.main(["plan", "lab", "--detailed-exitcode", "--target", "vm-1", "--allow", "delete"]) == 2
    assert "/etc/chrony/chrony.conf" in capsys.readouterr().out
    assert site.closed
    assert site.options == Options(targets=("vm-1",), allow=frozenset({common_effects.DELETE.name}))


def test_plan_saves_what_is_not_refused(site: FakeSite, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    site.plan_result = REFUSED
    assert main.main(["plan", "lab", "--out", str(file)]) == 4
    assert site.saved == []
    site.plan_result = SAME
    assert main.main(["plan", "lab", "--out", str(file)]) == 0
    assert site.saved == [file]


@pytest.mark.parametrize(
    ("argv", "flag"),
    [
        (["apply", "lab"], "--yes"),
        (["apply", "lab", "--json"], "--yes"),
        (["rotate", "lab", "k3s-token"], "--yes"),
        (["destroy", "lab"], "--yes --allow delete"),
        (["destroy", "lab", "--yes"], "--yes --allow delete"),
    ],
)
def test_without_a_terminal_nothing_is_assumed(
    argv: list[str], flag: str, site: FakeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(argv) == 64
    assert f"give {flag}" in capsys.readouterr().err
    assert site.confirmed is None


def test_rotate_applies_with_the_name_of_the_secret(
    site: FakeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    site.report = replace(DONE, exit_code=1)
    assert main.main(["rotate", "lab", "k3s-token", "--yes"]) == 1
    assert site.options is not None
    assert site.options.rotate == frozenset({"k3s-token"})
    assert site.confirmed is True
    assert "provision rotate lab k3s-token" in capsys.readouterr().out


def test_yes_applies_and_sums_up(site: FakeSite, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["apply", "lab", "--yes"]) == 0
    out = capsys.readouterr().out
    assert site.confirmed is True
    assert site.answer is None
    assert "Ended after 3.0 s: 1 done (1 changed) (run r1)" in out
    assert "  provision verify lab\n" in out
    assert "Round trips" not in out


def test_debug_counts_round_trips(site: FakeSite, capsys: pytest.CaptureFixture[str]) -> None:
    del site
    assert main.main(["apply", "lab", "--yes", "--debug"]) == 0
    assert "Round trips: vm-1/ssh 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "confirmed"),
    [(("y\n",), True), (("maybe\n", "yes\n"), True), (("n\n",), False), (("\n",), False), ((), False)],
)
def test_a_person_decides(
    typed: tuple[str, ...], confirmed: bool, site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_terminal(monkeypatch, *typed)
    assert main.main(["apply", "lab"]) == (0 if confirmed else 5)
    assert site.confirmed is confirmed


def test_a_gate_is_answered_by_the_person(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    at_terminal(monkeypatch, "y\n", "y\n")
    main.main(["apply", "lab"])
    assert site.answer is True


def test_with_yes_nothing_is_asked(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    at_terminal(monkeypatch, "y\n")
    main.main(["apply", "lab", "--yes"])
    assert site.answer is None


def test_the_verification_of_a_run_is_shown(site: FakeSite, capsys: pytest.CaptureFixture[str]) -> None:
    site.report = replace(DONE, verification=VerifyReport((FAILED,), 1.0), exit_code=3)
    assert main.main(["apply", "lab", "--yes"]) == 3
    out = capsys.readouterr().out
    assert "FAILED       it is so" in out
    assert "  provision verify lab\n" in out


@pytest.mark.parametrize(
    ("typed", "confirmed"), [("lab\n", True), ("lob\n", False), ("y\n", False), ("", False)]
)
def test_destroy_wants_the_name_typed(
    typed: str, confirmed: bool, site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_terminal(monkeypatch, typed)
    main.main(["destroy", "lab", "--yes"])
    assert site.confirmed is confirmed


def test_destroy_with_consent_asks_nothing(site: FakeSite) -> None:
    assert main.main(["destroy", "lab", "--yes", "--allow", "delete", "--host"]) == 0
    assert site.confirmed is True
    assert site.options == Options(allow=frozenset({common_effects.DELETE.name}), host=True)


@pytest.mark.parametrize(
    ("more", "kept", "flags", "hints"),
    [
        ({}, False, [], []),
        ({}, True, [], ["--host"]),
        ({}, True, ["--host"], []),
        ({"nodes": {"n1": {"address": "10.0.0.6"}}}, False, [], ["inside nodes stays"]),
    ],
)
def test_destroy_with_nothing_to_remove_asks_nothing(
    more: dict[str, object],
    kept: bool,
    flags: list[str],
    hints: list[str],
    site: FakeSite,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    declared = Inventory.model_validate({"version": "1", "name": "lab", **more})
    monkeypatch.setattr(runs, "settle", lambda _context, _name, **_how: declared)
    at_terminal(monkeypatch, "not the name\n")
    site.plan_result, site.kept = SAME, kept
    assert main.main(["destroy", "lab", *flags]) == 0
    assert site.confirmed is True
    shown = capsys.readouterr().out
    assert "There is nothing to remove." in shown
    assert [hint for hint in ("--host", "inside nodes stays") if hint in shown] == hints


def test_destroy_claims_nothing_about_unreached_systems(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_terminal(monkeypatch, "not the name\n")
    site.plan_result = Plan("lab", PLAN.steps[-1:])
    main.main(["destroy", "lab"])
    assert "nothing to remove" not in capsys.readouterr().out


def test_a_policy_that_allows_delete_is_consent(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    allowing = Inventory.model_validate({"version": "1", "name": "lab", "policy": {"allow": ["delete"]}})
    monkeypatch.setattr(runs, "read", lambda _name: allowing)
    assert main.main(["destroy", "lab", "--yes"]) == 0
    assert site.confirmed is True


def ended(outcome: str) -> events.StepEnded:
    return events.StepEnded(run="r1", subject="vm-1", role="base_os", outcome=outcome, seconds=1.0)


def test_json_has_events_alone(site: FakeSite, capsys: pytest.CaptureFixture[str]) -> None:
    site.emitted = (events.RunStarted(run="r1", inventory="lab", verb="apply"), ended("changed"))
    assert main.main(["apply", "lab", "--yes", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["run_started", "step_ended"]


def test_plan_with_json_prints_only_events(site: FakeSite, capsys: pytest.CaptureFixture[str]) -> None:
    site.plan_result = REFUSED
    site.emitted = tuple(plan_events("r1", REFUSED))
    assert main.main(["plan", "lab", "--json"]) == 4
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["type"] == "problem"
    assert lines[-1]["refused"] is True


def test_a_person_reads_the_problems_of_a_plan_once(
    site: FakeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    site.plan_result = REFUSED
    site.emitted = tuple(plan_events("r1", REFUSED))
    main.main(["plan", "lab"])
    captured = capsys.readouterr()
    assert (captured.out + captured.err).count(REFUSED.refusals[0].code) == 1


def test_the_events_of_a_plan_say_all_of_it() -> None:
    emitted = list(plan_events("r1", plan_masked(PLAN, lambda text: text.replace("pool", "(masked)"))))
    changes = [each for each in emitted if isinstance(each, events.ChangePlanned)]
    assert [change.key for change in changes] == [str(c.key) for s in PLAN.steps for c in s.changes]
    text = json.dumps([each.as_json() for each in emitted])
    assert "hunter2" not in text
    assert "pool" not in text
    assert any(change.by_hand for change in changes)
    assert any(change.owed for change in changes)
    opened = {(each.subject, each.role) for each in emitted if isinstance(each, events.StepOpen)}
    assert opened == {(s.step.id.subject, s.step.id.role) for s in PLAN.steps if s.late or s.unreached}
    made = emitted[-1]
    assert isinstance(made, events.PlanMade)
    assert made.changes == len(changes)
    assert made.empty is False


def test_a_warning_that_the_plan_has_shown_is_not_printed_again(
    site: FakeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    warnings = tuple(
        Diagnostic("CLOCK_SKEW", f"{number} s ahead", f"n{number}", severity=Severity.WARNING)
        for number in range(100)
    )
    site.plan_result = replace(PLAN, warnings=warnings)
    site.emitted = tuple(events.Problem(run="r1", diagnostic=warning.as_json()) for warning in warnings)
    main.main(["apply", "lab", "--yes"])
    assert capsys.readouterr().out.count("CLOCK_SKEW") == 1


@pytest.mark.parametrize("command", ["plan", "apply", "destroy"])
def test_a_wrong_effect_class_is_answered_with_the_nearest_one(
    command: str, site: FakeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main([command, "lab", "--allow", "reboot-gest"]) == 64
    assert site.options is None
    shown = capsys.readouterr().err
    assert "EFFECT_UNKNOWN" in shown
    assert "Did you mean reboot-guest?" in shown


def test_out_has_a_short_form(site: FakeSite, tmp_path: Path) -> None:
    site.plan_result = SAME
    assert main.main(["plan", "lab", "-o", str(tmp_path / "plan.json")]) == 0
    assert site.saved == [tmp_path / "plan.json"]


@pytest.mark.parametrize(("flags", "stopped"), [([], False), (["--fail-fast"], True)])
def test_fail_fast_ends_the_run_at_the_first_failure(flags: list[str], stopped: bool, site: FakeSite) -> None:
    site.emitted = (ended("changed"), ended("failed"))
    assert main.main(["apply", "lab", "--yes", *flags]) == (1 if stopped else 0)
    assert site.cancelled is stopped


def test_missing_consent_leads_to_the_command_that_gives_it(
    site: FakeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    site.report = replace(
        DONE,
        steps=(StepReport(STEP, Outcome.WAITING, reason="reboot-hypervisor waits for consent"),),
        consents_missing=(ConsentNeed("pve/ssh", REBOOT, Consent.ASK),),
        exit_code=5,
    )
    assert main.main(["apply", "lab", "--yes"]) == 5
    assert "  provision apply lab --allow reboot-hypervisor\n" in capsys.readouterr().out


PASSED = CheckResult("it is so", "vm-1", CheckOutcome.PROVEN)
FAILED = CheckResult("it is so", "vm-1", CheckOutcome.FAILED, "it is not")
UNSURE = CheckResult("it is so", "vm-1", CheckOutcome.UNKNOWN, "no answer")


@pytest.mark.parametrize(
    ("checks", "flags", "code"),
    [
        ((PASSED,), [], 0),
        ((PASSED, FAILED, UNSURE), ["--strict"], 3),
        ((PASSED, UNSURE), [], 0),
        ((PASSED, UNSURE), ["--strict"], 7),
    ],
)
def test_verify_ends_with_what_it_found(
    checks: tuple[CheckResult, ...], flags: list[str], code: int, site: FakeSite
) -> None:
    site.checks = checks
    assert main.main(["verify", "lab", *flags]) == code


def test_an_inventory_may_want_every_verification_strict(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = INVENTORY.model_copy(update={"verify": VerifyOptions(strict=True)})
    monkeypatch.setattr(runs, "settle", lambda _context, _name, **_how: strict)
    site.checks = (PASSED, UNSURE)
    assert main.main(["verify", "lab"]) == 7


def test_verify_writes_junit(site: FakeSite, tmp_path: Path) -> None:
    site.checks = (PASSED, FAILED)
    file = tmp_path / "junit.xml"
    assert main.main(["verify", "lab", "--junit", str(file)]) == 3
    assert 'failures="1"' in file.read_text()


def test_apply_recognises_a_saved_plan(tmp_path: Path) -> None:
    plan, flow = tmp_path / "plan", tmp_path / "flow.yaml"
    plan.write_text('{"format": 1, "file": "inventories/lab.yaml", "playbook": "hosts"}')
    flow.write_text("{version: '1', name: lab}")
    assert saved_plan(str(plan)) == ("inventories/lab.yaml", plan, "hosts")
    assert saved_plan(str(flow)) == (str(flow), None, None)
    assert saved_plan("lab") == ("lab", None, None)
    plan.write_text('{"version": 1, "name": "lab"}')
    assert saved_plan(str(plan)) == (str(plan), None, None), "an inventory may be written as JSON"
    plan.write_text('{"format": 1}')
    with pytest.raises(UsageError, match="PLAN_UNREADABLE"):
        saved_plan(str(plan))


def saved(tmp_path: Path) -> str:
    file = tmp_path / "plan"
    file.write_text('{"format": "provision-plan/1", "file": "inventories/lab.yaml", "playbook": "site"}')
    return str(file)


@pytest.mark.parametrize(
    "flags", [["--target", "vm-1"], ["--step", "base_os"], ["--playbook", "hosts"], ["--prune"]]
)
def test_options_of_a_saved_plan_cannot_be_given_again(
    flags: list[str], site: FakeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["apply", saved(tmp_path), "--yes", *flags]) == 64
    shown = capsys.readouterr().err
    assert "PLAN_OPTIONS" in shown
    assert f"make a plan with {flags[0]}:" in shown
    assert "  provision plan inventories/lab.yaml --out FILE\n" in shown
    assert site.options is None


def test_after_a_saved_plan_the_next_command_names_the_inventory(
    site: FakeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["apply", saved(tmp_path), "--yes", "--allow", "delete"]) == 0
    assert site.options == Options(allow=frozenset({common_effects.DELETE.name}))
    assert "  provision verify inventories/lab.yaml\n" in capsys.readouterr().out


def test_an_unused_saved_plan_is_in_the_next_command(
    site: FakeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.report = replace(DONE, steps=(), interrupted=True, exit_code=130)
    main.main(["apply", file := saved(tmp_path), "--yes"])
    assert f"  provision apply {file}\n" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["plan", "verify", "validate", "graph"])
def test_a_saved_plan_is_not_an_inventory(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main([command, saved(tmp_path)]) == 64
    assert "it is a saved plan of inventories/lab.yaml" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("argv", [["plan", "lab", "--out"], ["verify", "lab", "--junit"]])
@pytest.mark.parametrize("name", ["nowhere/file", "a-file/file", "."])
def test_an_unwritable_file_is_refused_before_the_work(
    argv: list[str], name: str, site: FakeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a-file").touch()
    assert main.main([*argv, str(tmp_path / name)]) == 64
    assert "FILE_NOT_WRITTEN" in capsys.readouterr().err
    assert site.options is None


def test_a_plan_that_cannot_be_saved_after_all_is_no_defect(
    site: FakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    site.plan_result = replace(PLAN, steps=())
    monkeypatch.setattr(site, "save", full)
    assert main.main(["plan", "lab", "--out", str(tmp_path / "plan")]) == 64
    assert "No space left" in " ".join(capsys.readouterr().err.split())  # wrapped by the length of its path


def test_a_plan_with_unreached_steps_is_not_saved(
    site: FakeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["plan", "lab", "--out", str(tmp_path / "plan")]) == 1
    assert "The plan is not saved: 1 step could not be planned." in capsys.readouterr().out
    assert site.saved == []
