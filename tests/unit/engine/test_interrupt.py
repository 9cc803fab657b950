from __future__ import annotations

import threading
from pathlib import Path

import pytest

from provision.api import past_runs
from provision.contracts.system import SystemSpec
from provision.engine import workers
from provision.engine.observe import observe
from provision.engine.session import Session
from provision.hosts import host_effects
from provision.values.cancel import Cancel, Interrupted
from provision.values.consent import Consent
from provision.values.events import ChangeMade, Problem
from tests.unit.engine.fake_hosts import Host, Item, Value
from tests.unit.engine.fakes import FakeRole, FakeSite, here, on_own, own


def test_a_blocked_driver_does_not_hold_a_run_that_must_leave(tmp_path: Path) -> None:
    site = FakeSite([FakeRole("r", own(a="1"), on_own())], state=tmp_path)
    planned = site.plan()
    never = site.blocks["n1/ssh"] = threading.Event()
    cancel = Cancel()
    done: list[int] = []

    def run() -> None:
        done.append(site.apply(planned=planned, cancel=cancel).exit_code)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    cancel.leave()
    thread.join(timeout=30)
    assert done == [130]
    never.set()


def test_a_blocked_question_does_not_hold_a_plan_that_must_leave() -> None:
    never = threading.Event()
    cancel = Cancel()
    started = threading.Event()

    def work(_item: int) -> None:
        started.set()
        never.wait()

    def leave() -> None:
        started.wait()
        cancel.leave()

    threading.Thread(target=leave, daemon=True).start()
    with pytest.raises(Interrupted):
        workers.each([1, 2], work, cancel)
    never.set()


def test_the_first_interrupt_ends_the_looking() -> None:
    site = FakeSite([FakeRole("r", own(a="1"), on_own())])
    world = site.environment()
    cancel = Cancel()
    cancel.drain()
    with pytest.raises(Interrupted):
        observe(Session(world.systems, world.open_driver), {"n1/ssh": (Value("a"),)}, {}, cancel)
    assert site.hosts["n1/ssh"].answers == []
    assert not cancel.leaving


def test_a_drained_run_ends_what_runs_and_begins_nothing_new(tmp_path: Path) -> None:
    site = FakeSite(
        [FakeRole("r1", own(a="1"), on_own()), FakeRole("r2", own(b="1"), on_own())], state=tmp_path
    )
    cancel = Cancel()
    site.on_set = lambda *_: cancel.drain()
    report = site.apply(cancel=cancel)
    assert report.exit_code == 130
    assert site.outcomes(report) == {"n1: r1": "changed", "n1: r2": "blocked"}
    assert site.hosts["n1/ssh"].values == {"a": "1"}
    assert site.apply().exit_code == 0


def test_a_run_that_is_interrupted_before_its_last_reboot_says_so(tmp_path: Path) -> None:
    item = Item("n1/ssh", "a", "1", boots=host_effects.REBOOT_NODE)
    site = FakeSite(
        [FakeRole("r", lambda _: [item], on_own())],
        policy={host_effects.REBOOT_NODE: Consent.ALLOW},
        state=tmp_path,
    )
    cancel = Cancel()
    site.on_set = lambda *_: cancel.drain()
    report = site.apply(cancel=cancel)
    assert (report.exit_code, report.interrupted) == (130, True)
    assert [(str(step.outcome), step.reason) for step in report.steps] == [
        ("blocked", "interrupted before its reboot")
    ]
    record = past_runs.run(tmp_path / "journal.sqlite", "run-1")
    assert record is not None
    assert (record["exit_code"], record["interrupted"]) == (130, True)
    assert site.hosts["n1/ssh"].reboots == 0
    site.on_set = None
    assert site.apply().exit_code == 0
    assert site.hosts["n1/ssh"].reboots == 1


UPID = "UPID:pve:0001:0002:65000000:qmcreate:101:root@pam!t:"


def test_what_goes_on_after_the_second_interrupt_is_named_everywhere(tmp_path: Path) -> None:
    api = Host(is_api=True, cuts=frozenset({"vm"}), handle=UPID)
    role = FakeRole("r", lambda _: [Item("pve/api", "vm", "1")], lambda _: {"pve/api": (Value("vm"),)})
    site = FakeSite([role], hosts={"pve/api": api}, state=tmp_path)
    site.specs["pve/api"] = SystemSpec("pve/api", "proxmox", "n1", {}, here)
    cancel = Cancel()
    site.on_set = lambda *_: cancel.leave()
    report = site.apply(cancel=cancel)
    assert (report.exit_code, report.interrupted) == (130, True)
    assert site.outcomes(report) == {"n1: r": "failed"}
    step = report.steps[0]
    assert UPID in step.reason
    assert step.diagnostics[0].code == "OUTCOME_UNKNOWN"
    assert "waits for a task that still runs" in step.diagnostics[0].remedy
    assert next(iter(step.changed)).key.name == "vm"
    assert [event.verdict for event in site.events if isinstance(event, ChangeMade)] == ["indeterminate"]
    assert [UPID in str(event.diagnostic) for event in site.events if isinstance(event, Problem)] == [True]
    record = past_runs.run(tmp_path / "journal.sqlite", "run-1")
    assert record is not None
    assert UPID in record["steps"][0]["reason"]
    assert UPID in record["problems"][0]["diagnostic"]
    site.on_set = None
    assert site.outcomes(site.apply()) == {"n1: r": "unchanged"}  # looked up: it was done
    assert api.acts == 1


def test_a_step_that_is_interrupted_while_it_reads_back_had_begun(tmp_path: Path) -> None:
    site = FakeSite([FakeRole("r", own(a="1"), on_own())], state=tmp_path)
    cancel = Cancel()
    site.on_set = lambda *_: cancel.leave()
    report = site.apply(cancel=cancel)
    assert site.outcomes(report) == {"n1: r": "failed"}
    assert report.steps[0].reason == "interrupted: what it began is looked up by the next run"


def test_actions_after_a_cut_connection_are_not_reported_as_done() -> None:
    site = FakeSite(
        [FakeRole("r", own(a="1", b="2"), on_own())], hosts={"n1/ssh": Host(cuts=frozenset({"a"}))}
    )
    report = site.apply()
    assert site.outcomes(report) == {"n1: r": "failed"}
    assert "(pgid 42); looked up: it was done; what comes after it was not begun" in report.steps[0].reason
    assert site.outcomes(site.apply()) == {"n1: r": "changed"}
