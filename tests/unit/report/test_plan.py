from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from provision.contracts.change import Change, Key, Op
from provision.contracts.effect import Effect
from provision.contracts.remedy import ByHand
from provision.engine.model import ConsentNeed, Plan, PlannedChange, StepPlan
from provision.hosts import host_effects
from provision.proxmox import vm_effects
from provision.report.plan import affected_subject, op_of, print_plan
from provision.values.consent import Consent
from tests.unit.report.samples import GUEST_STEP, HOST_STEP, PLAN, REFUSED, SAME, shown, step

GOLDEN = Path(__file__).parent / "golden"

CASES = {
    "changes": (PLAN, {}, False),
    "changes-full": (PLAN, {}, True),
    "changes-narrow": (PLAN, {"width": 60}, False),
    "changes-ascii": (PLAN, {"encoding": "latin-1"}, False),
    "refused": (REFUSED, {}, False),
    "same": (SAME, {}, False),
}


@pytest.mark.parametrize("name", CASES)
def test_a_plan_reads_as_the_golden_file_says(name: str) -> None:
    plan, how, full = CASES[name]
    text = shown(lambda console: print_plan(console, plan, full=full), **how)  # type: ignore[arg-type]  # keywords as given
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_no_form_of_output_shows_a_secret() -> None:
    for full in (False, True):
        text = shown(lambda console, full=full: print_plan(console, PLAN, full=full))  # type: ignore[misc]  # the default binds the loop
        assert "hunter" not in text
        assert "content: (secret)" in text


def test_other_encodings_get_ascii() -> None:
    assert shown(lambda console: print_plan(console, PLAN), encoding="latin-1").isascii()


def test_output_of_hosts_cannot_move_the_cursor() -> None:
    evil = Change(Op.UPDATE, "motd", "a\x1b[2J", "b\u202e")
    plan = Plan(
        "lab", (StepPlan(step("vm-1", "x"), changes=(PlannedChange(Key("vm-1/ssh", "f", "n"), (evil,)),)),)
    )
    text = shown(lambda console: print_plan(console, plan))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert r"a\x1b[2J" in text


def test_risk_comes_before_changes() -> None:
    text = shown(lambda console: print_plan(console, PLAN))
    assert text.index("reboot-hypervisor") < text.index("hypervisor_host")


def test_an_effect_that_is_always_allowed_is_no_risk() -> None:
    plan = replace(PLAN, risks=(ConsentNeed("a/ssh", Effect(host_effects.RESTART, "x"), Consent.ALLOW),))
    assert "Risks" not in shown(lambda console: print_plan(console, plan))


def test_a_restart_that_the_policy_asks_about_is_a_risk() -> None:
    plan = replace(PLAN, risks=(ConsentNeed("a/ssh", Effect(host_effects.RESTART, "x"), Consent.ASK),))
    assert "--allow restart" in shown(lambda console: print_plan(console, plan))


@pytest.mark.parametrize(
    ("ops", "by_hand", "sign"),
    [
        ((Op.CREATE, Op.CREATE), None, Op.CREATE),
        ((Op.CREATE, Op.UPDATE), None, Op.UPDATE),
        ((Op.UPDATE, Op.REPLACE), None, Op.REPLACE),
        ((Op.UPDATE, Op.ATTENTION), None, Op.ATTENTION),
        ((Op.DELETE,), None, Op.DELETE),
        ((Op.CREATE,), ByHand(("do it",)), Op.ATTENTION),
        ((), None, Op.UPDATE),
    ],
)
def test_one_sign_stands_for_all_differences_of_a_resource(
    ops: tuple[Op, ...], by_hand: ByHand | None, sign: Op
) -> None:
    changes = tuple(Change(operation, "field") for operation in ops)
    assert op_of(PlannedChange(Key("s", "k", "n"), changes, by_hand=by_hand)) is sign


@pytest.mark.parametrize(
    ("system", "target", "text"),
    [
        ("pve/ssh", "", "pve"),
        ("pve/api", "vm-gpu", "vm-gpu (pve)"),
        ("vm-gpu/ssh", "vm-gpu", "vm-gpu"),
    ],
)
def test_an_effect_names_what_it_affects(system: str, target: str, text: str) -> None:
    assert affected_subject(ConsentNeed(system, Effect(vm_effects.POWER_CYCLE, target), Consent.ASK)) == text


def test_totals_are_a_lower_bound_only_while_something_is_not_known() -> None:
    known = Plan("lab", (HOST_STEP, GUEST_STEP))
    assert "at least" not in shown(lambda console: print_plan(console, known))
    assert "at least" in shown(lambda console: print_plan(console, PLAN))
