from __future__ import annotations

from pathlib import Path

import pytest

from provision.engine.environment import Options
from tests.unit.engine.fake_hosts import Host, Item
from tests.unit.engine.fakes import FakeRole, FakeSite, on_own, own

OLD = "n1/ssh:item:old"


def site_of(state: Path, role: FakeRole, *others: FakeRole) -> FakeSite:
    return FakeSite([role, *others], hosts={"n1/ssh": Host({"old": "here"})}, state=state)


def leaving(*subjects: str) -> FakeRole:
    """Return a role that left something on n1; declared for some subjects, or for none."""
    return FakeRole(
        "r",
        own(a="1"),
        on_own(),
        subjects=frozenset(subjects),
        gone=lambda _: [],
        left=lambda _: [Item("n1/ssh", "old", "gone")],
    )


@pytest.mark.parametrize("subjects", [(), ("n1",)])
def test_orphans_are_shown_whoever_is_declared(subjects: tuple[str, ...], tmp_path: Path) -> None:
    site = site_of(tmp_path, leaving(*subjects))
    assert site.plan().plan.orphans == (OLD,)
    assert site.plan(Options(steps=("r",))).plan.orphans == (OLD,)


def test_what_was_not_chosen_is_not_asked(tmp_path: Path) -> None:
    site = site_of(tmp_path, leaving(), FakeRole("other", own(), on_own()))
    site.subjects = ("n1", "n2")
    site.__post_init__()
    assert site.plan(Options(steps=("other",))).plan.orphans == ()
    assert site.plan(Options(targets=("n2",))).plan.orphans == ()
    assert site.plan(Options(targets=("n1",))).plan.orphans == (OLD,)


def test_destroy_removes_them_where_nothing_is_declared(tmp_path: Path) -> None:
    site = site_of(tmp_path, leaving())
    assert site.outcomes(site.apply(destroying=True)) == {"n1: orphans": "changed"}
    assert site.hosts["n1/ssh"].values["old"] == "gone"


def test_they_go_ahead_of_all_steps_on_their_systems_and_hold_none_back(tmp_path: Path) -> None:
    site = site_of(tmp_path, leaving("n1"))
    order: list[str] = []
    site.on_set = lambda _system, name, _value: order.append(name)
    site.apply(Options(prune=True))
    assert order == ["old", "a"]
    site = site_of(tmp_path / "refusing", leaving("n1"))
    site.hosts["n1/ssh"].refuses = frozenset({"old"})
    report = site.apply(Options(prune=True))
    assert site.outcomes(report) == {"n1: orphans": "failed", "n1: r": "changed"}
    assert report.exit_code == 1


def test_a_role_looks_again_at_what_it_made_known(tmp_path: Path) -> None:
    def left(context: object) -> list[Item]:
        snapshot = context.seen("n1/ssh")  # type: ignore[attr-defined]  # a Context
        first = Item("n1/ssh", "old", "gone")
        known = all(query in snapshot for query in first.queries())
        return [first, Item("n1/ssh", "its part", "gone")] if known else [first]

    role = leaving()
    role.left = left
    site = site_of(tmp_path, role)
    site.hosts["n1/ssh"].values["its part"] = "here"
    assert site.plan().plan.orphans == (OLD, "n1/ssh:item:its part")


def test_unreachable_orphan_owner_warns_in_a_plan_and_fails_a_removal(
    tmp_path: Path,
) -> None:
    site = site_of(tmp_path, leaving())
    site.hosts["n1/ssh"].down = True
    plan = site.plan().plan
    assert [warning.code for warning in plan.warnings] == ["ORPHANS_UNKNOWN"]
    report = site.apply(destroying=True)
    assert site.outcomes(report) == {"n1: orphans_unknown": "unreached"}
    assert report.exit_code == 1
    assert report.steps[0].reason == "what r left on n1 was not looked at: n1/ssh does not answer"


def broken(_context: object) -> list[Item]:
    raise ValueError("a bug")


def test_a_role_that_fails_to_look_says_so(tmp_path: Path) -> None:
    role = leaving("n1")
    role.left = broken
    site = site_of(tmp_path, role)
    plan = site.plan().plan
    assert [warning.code for warning in plan.warnings] == ["ROLE_DEFECT"]
    assert [str(step.step.id) for step in plan.steps if step.changes] == ["n1: r"]
    assert site.outcomes(site.apply(destroying=True))["n1: orphans_unknown"] == "failed"


def test_destroy_removes_known_orphans_and_fails_if_a_role_cannot_look(
    tmp_path: Path,
) -> None:
    blind, other, sees = leaving(), leaving(), leaving()
    blind.name, other.name = "blind", "other"
    blind.left = other.left = broken
    site = site_of(tmp_path, blind, sees, other)
    report = site.apply(destroying=True)
    assert site.outcomes(report) == {"n1: orphans": "changed", "n1: orphans_unknown": "failed"}
    assert site.hosts["n1/ssh"].values["old"] == "gone"
    assert report.exit_code == 1
    (problem,) = next(step for step in report.steps if step.id.role == "orphans_unknown").diagnostics
    said = "\n".join((problem.summary, *problem.evidence))
    assert "what blind left on n1 was not looked at" in said
    assert "what other left on n1 was not looked at" in said
