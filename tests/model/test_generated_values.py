"""Values that travel: made once, read back from any home, and rotated by runs that may be killed anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api import Options
from provision.contracts.system import NotThere
from provision.engine.model import RunReport
from provision.testing.model_host import ModelFile
from provision.values.cancel import Cancel
from provision.values.errors import Refused, UsageError
from provision.values.events import ChangeMade
from provision.values.outcomes import Outcome
from tests.model.model_site import DeadError
from tests.model.value_site import AGENTS, SERVERS, ValueSite


@pytest.fixture
def site(tmp_path: Path) -> ValueSite:
    return ValueSite(tmp_path)


def outcomes(report: RunReport) -> dict[str, str]:
    return {f"{step.id.subject} {step.id.role}": str(step.outcome) for step in report.steps}


def test_the_first_apply_brings_one_token_to_all(site: ValueSite) -> None:
    plan = site.plan()
    assert {step.step.id.subject: step.late for step in plan.steps if step.late} == dict.fromkeys(
        AGENTS, "after s1: server"
    )
    assert site.apply().exit_code == 0
    assert len(site.one_token()) == 64
    assert not site.kept()
    assert site.plan().empty


def test_two_plans_do_not_differ_by_the_token_that_each_would_make(site: ValueSite, tmp_path: Path) -> None:
    assert site.saved_plan(tmp_path / "one") == site.saved_plan(tmp_path / "two")


def test_a_plan_with_a_new_token_is_applied_from_its_file(site: ValueSite, tmp_path: Path) -> None:
    site.saved_plan(tmp_path / "plan")
    opened = site.site()
    report = opened.apply(
        None, Options(), site.events.append, Cancel(), lambda _: True, saved=tmp_path / "plan"
    )
    assert report.exit_code == 0
    assert site.one_token()


def test_a_saved_plan_is_stale_when_the_token_is_another(site: ValueSite, tmp_path: Path) -> None:
    site.apply()
    site.rebuild("a1")
    site.saved_plan(tmp_path / "plan")
    for name in SERVERS:
        site.hosts[f"{name}/ssh"].state.files["/etc/lab/token"].content = b"x" * 64
    opened = site.site()
    with pytest.raises(Refused) as caught:
        opened.apply(None, Options(), site.events.append, Cancel(), lambda _: True, saved=tmp_path / "plan")
    assert caught.value.diagnostics[0].code == "PLAN_STALE"


@pytest.mark.parametrize("name", SERVERS)
def test_a_rebuilt_server_takes_the_token_from_another_one(site: ValueSite, name: str) -> None:
    site.apply()
    token = site.one_token()
    site.rebuild(name)
    assert site.apply().exit_code == 0
    assert site.one_token() == token


def test_a_home_that_does_not_answer_makes_no_second_token(site: ValueSite) -> None:
    site.apply()
    token = site.one_token()
    for name in ("s2", "s3", *AGENTS):
        site.rebuild(name)
    site.silent = {"s1"}
    report = site.apply()
    assert report.exit_code == 1
    assert site.tokens() == {"s1": token}
    assert outcomes(report)["s2 server"] != "changed"
    site.silent = set()
    assert site.apply().exit_code == 0
    assert site.one_token() == token


def test_a_silent_home_does_not_matter_where_another_has_the_token(site: ValueSite) -> None:
    site.apply()
    token = site.one_token()
    site.rebuild("a1")
    site.silent = {"s3"}
    report = site.apply(Options(targets=("a1",)))
    assert outcomes(report) == {"a1 agent": "changed"}
    assert site.one_token() == token


def test_readers_inherit_the_excuse_of_a_home_that_is_off(site: ValueSite) -> None:
    site.away = {"s1": NotThere("s1 is off by hand", late=False, excused=True)}
    report = site.apply(Options(targets=("s2", "s3")))
    assert {step.outcome for step in report.steps} == {Outcome.UNREACHED}
    assert all("s1 is off by hand" in step.reason for step in report.steps)
    assert report.exit_code == 0
    assert not site.tokens()


def test_a_home_that_does_not_exist_has_no_token(site: ValueSite) -> None:
    site.away = {"s1": NotThere("s1 does not exist yet", late=False, absent=True)}
    site.apply(Options(targets=("s2", "s3")))
    assert len(set(site.tokens().values())) == 1
    assert set(site.tokens()) == {"s2", "s3"}


def test_homes_are_asked_along_and_make_no_step_late(site: ValueSite) -> None:
    plan = site.plan(Options(targets=("a1",)))
    assert not any(step.late for step in plan.steps)
    site.apply()
    opened = site.site()
    opened.plan(Options(), site.events.append, Cancel())
    assert set(opened.session.trips().values()) == {1}


# ---------------------------------------------------------------- rotation


def test_a_rotation_brings_servers_one_at_a_time_and_then_agents(site: ValueSite) -> None:
    site.apply()
    token = site.one_token()
    site.events.clear()
    report = site.rotate()
    assert report.exit_code == 0
    assert site.one_token() != token
    assert not site.kept()
    ended = [step.id for step in report.steps]
    began = [event.subject for event in site.events if isinstance(event, ChangeMade)]
    assert began[:3] == ["lab-token"] * 3
    assert began[3:6] == list(SERVERS)
    assert set(began[6:8]) == set(AGENTS)
    assert began[8:] == ["lab-token"] * 3
    assert [step.role for step in ended].count("server") == 3
    assert site.plan().empty


def test_a_rotation_shows_neither_token(site: ValueSite, tmp_path: Path) -> None:
    site.apply()
    old = site.one_token()
    site.rotate()
    told = str([event.as_json() for event in site.events])
    journal = b"".join(path.read_bytes() for path in (tmp_path / "state").glob("journal*"))
    kept = b"".join(path.read_bytes() for path in (tmp_path / "state" / "lab").iterdir())
    for token in (old, site.one_token()):
        assert token not in told
        assert token.encode() not in journal + kept


def boundaries(folder: Path) -> int:
    folder.mkdir()
    whole = ValueSite(folder)
    whole.apply()
    before = whole.life.boundaries
    whole.rotate()
    return whole.life.boundaries - before


def test_a_rotation_that_is_killed_anywhere_goes_on(tmp_path: Path) -> None:
    count = boundaries(tmp_path / "whole")
    assert count > 10
    for kill_at in range(1, count + 1):
        folder = tmp_path / str(kill_at)
        folder.mkdir()
        site = ValueSite(folder)
        site.apply()
        old = site.one_token()
        site.life.kill_at = site.life.boundaries + kill_at
        with pytest.raises(DeadError):
            site.rotate()
        site.life.dead, site.life.kill_at = False, 0
        begun = {*site.kept().values(), *site.tokens().values()} - {old}
        assert len(begun) <= 1, kill_at
        report = site.apply()
        assert report.exit_code == 0, kill_at
        assert {site.one_token()} == (begun or {old}), kill_at
        assert not site.kept()
        assert site.plan().empty, kill_at


def test_the_same_command_goes_on_with_the_same_new_token(site: ValueSite) -> None:
    site.apply()
    old = site.one_token()
    site.silent = {"a2"}
    assert site.rotate().exit_code == 1
    (new,) = set(site.kept().values())
    assert site.tokens() == {**dict.fromkeys((*SERVERS, "a1"), new), "a2": old}
    site.silent = set()
    assert site.rotate().exit_code == 0
    assert site.one_token() == new
    assert not site.kept()


def test_a_run_that_leaves_out_readers_finishes_no_rotation(site: ValueSite) -> None:
    site.apply()
    site.silent = {"a2"}
    site.rotate()
    site.silent = set()
    assert site.apply(Options(targets=("a1",))).exit_code == 0
    assert site.kept()
    assert site.apply().exit_code == 0
    assert site.one_token()
    assert not site.kept()


def test_a_new_token_that_cannot_be_kept_is_brought_to_nobody(site: ValueSite) -> None:
    site.apply()
    old = site.one_token()
    for name in SERVERS:
        site.hosts[f"{name}/ssh"].state.files["/var/lib/provision/values"] = ModelFile(b"no folder")
    report = site.rotate()
    assert report.exit_code == 1
    assert site.one_token() == old


def test_a_value_that_no_role_generates_is_refused_with_the_names_that_are(site: ValueSite) -> None:
    with pytest.raises(UsageError) as caught:
        site.apply(Options(rotate=frozenset({"lab-tokn"})))
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.code == "VALUE_UNKNOWN"
    assert diagnostic.summary == "no role generates a secret 'lab-tokn'"
    assert diagnostic.remedy == "Did you mean lab-token? Valid names: lab-token."
