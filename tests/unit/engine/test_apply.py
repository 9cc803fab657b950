from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from provision.contracts.change import Key
from provision.contracts.effect import Effect, EffectClass
from provision.engine import readback
from provision.engine.environment import Options
from provision.engine.readback import read_back
from provision.engine.run import Run
from provision.engine.step_state import StepState
from provision.hosts import host_effects
from provision.inventory.playbook import Entry
from provision.proxmox import vm_effects
from provision.values.consent import Consent
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError
from provision.values.events import ChangeMade, StepEnded
from tests.unit.engine.fake_hosts import Host, Item, Value
from tests.unit.engine.fakes import (
    FakeRole,
    FakeSite,
    on_own,
    own,
)

REBOOT = host_effects.REBOOT_NODE


def test_a_change_is_made_and_the_next_plan_is_empty(tmp_path: Path) -> None:
    site = FakeSite([FakeRole("base", own(a="1", b="2"), on_own("os"))], state=tmp_path)
    report = site.apply()
    assert site.outcomes(report) == {"n1: base": "changed"}
    assert report.exit_code == 0
    assert site.hosts["n1/ssh"].values == {"a": "1", "b": "2"}
    assert site.plan().plan.empty
    made = [event.key for event in site.events if isinstance(event, ChangeMade)]
    assert made == ["n1/ssh:item:a", "n1/ssh:item:b"]


def test_unchanged_host_costs_two_executions_first_and_one_afterwards(tmp_path: Path) -> None:
    roles = [FakeRole(name, own(**{name: "1"}), on_own(f"fact {name}")) for name in ("r1", "r2", "r3")]
    site = FakeSite(roles, hosts={"n1/ssh": Host({"r1": "1", "r2": "1", "r3": "1"})}, state=tmp_path)
    assert site.apply().trips == {"n1/ssh": 2}
    report = site.apply()
    assert report.trips == {"n1/ssh": 1}
    assert set(site.outcomes(report).values()) == {"unchanged"}


def test_a_changed_host_costs_one_act_a_step_and_one_reading_back(tmp_path: Path) -> None:
    site = FakeSite([FakeRole("base", own(a="1", b="2", c="3"), on_own("os"))], state=tmp_path)
    site.apply()
    site.hosts["n1/ssh"].values["b"] = "9"
    report = site.apply()
    assert report.trips == {"n1/ssh": 3}
    assert [str(each.key) for each in report.steps[0].changed] == ["n1/ssh:item:b"]


def test_a_failure_blocks_what_needs_it_and_siblings_go_on(tmp_path: Path) -> None:
    site = FakeSite(
        [FakeRole("r1", own(a="1"), on_own()), FakeRole("r2", own(b="1"), on_own())],
        subjects=("n1", "n2"),
        hosts={"n1/ssh": Host(refuses=frozenset({"a"}))},
        state=tmp_path,
    )
    report = site.apply()
    assert site.outcomes(report) == {
        "n1: r1": "failed",
        "n1: r2": "blocked",
        "n2: r1": "changed",
        "n2: r2": "changed",
    }
    assert report.exit_code == 1
    assert report.steps[0].diagnostics[0].evidence == ("cannot set a",)
    assert "`provision show last --full`" in report.steps[0].diagnostics[0].remedy


def test_a_failed_step_counts_what_it_had_changed_and_not_what_failed(tmp_path: Path) -> None:
    site = FakeSite(
        [FakeRole("r", own(a="1", b="2"), on_own())],
        hosts={"n1/ssh": Host(refuses=frozenset({"b"}))},
        state=tmp_path,
    )
    (step,) = site.apply().steps
    assert (str(step.outcome), [str(each.key) for each in step.changed]) == ("failed", ["n1/ssh:item:a"])


def test_an_order_edge_waits_for_the_end_whatever_it_is(tmp_path: Path) -> None:
    site = FakeSite(
        [
            FakeRole("r1", own(a="1"), on_own(), subjects=frozenset({"n1"})),
            FakeRole("r2", own(b="1"), on_own(), subjects=frozenset({"n2"})),
        ],
        subjects=("n1", "n2"),
        entries=(Entry("r1", ("all",)), Entry("r2", ("all",), after=("r1",))),
        hosts={"n1/ssh": Host(refuses=frozenset({"a"}))},
        state=tmp_path,
    )
    assert site.outcomes(site.apply()) == {"n1: r1": "failed", "n2: r2": "changed"}
    ended = [event.subject for event in site.events if isinstance(event, StepEnded)]
    assert ended == ["n1", "n2"]


def test_serial_steps_follow_each_other(tmp_path: Path) -> None:
    site = FakeSite(
        [FakeRole("r", own(a="1"), on_own())],
        subjects=("n1", "n2", "n3"),
        entries=(Entry("r", ("all",), serial=1),),
        state=tmp_path,
    )
    seen: list[str] = []
    site.on_set = lambda system, _name, _value: seen.append(system)
    site.apply()
    assert seen == ["n1/ssh", "n2/ssh", "n3/ssh"]


def boots(name: str) -> FakeRole:
    return FakeRole(
        name, lambda context: [Item(f"{context.subject.name}/ssh", name, "1", boots=REBOOT)], on_own()
    )


ALLOWED = {REBOOT: Consent.ALLOW}


def test_reboots_of_consecutive_steps_merge_into_one_at_the_end(tmp_path: Path) -> None:
    site = FakeSite([boots("driver"), boots("rdma"), boots("arguments")], policy=ALLOWED, state=tmp_path)
    report = site.apply()
    assert set(site.outcomes(report).values()) == {"changed"}
    assert site.hosts["n1/ssh"].reboots == 1
    assert site.plan().plan.empty


def test_a_step_that_needs_the_new_boot_has_it_and_is_expanded_after_it(tmp_path: Path) -> None:
    seen: list[object] = []

    def after(context: object) -> list[Item]:
        seen.append(context.seen("n1/ssh")[Value("running driver")])  # type: ignore[attr-defined]  # a Context
        return [Item("n1/ssh", "mapping", "1")]

    mapping = FakeRole("mapping", after, on_own("running driver"), needs_new_boot=True)
    site = FakeSite([boots("driver"), mapping, boots("last")], policy=ALLOWED, state=tmp_path)
    planned = site.plan()
    late = {str(step.step.id): step.late for step in planned.plan.steps if step.late}
    assert late == {"n1: mapping": "after n1: driver"}
    report = site.apply(planned=planned)
    assert set(site.outcomes(report).values()) == {"changed"}
    assert seen[-1] == "1"
    assert site.hosts["n1/ssh"].reboots == 2
    assert site.plan().plan.empty


def test_a_reboot_without_consent_waits_and_the_rest_goes_on(tmp_path: Path) -> None:
    needs_boot = FakeRole("mapping", own(m="1"), on_own(), needs_new_boot=True)
    other = FakeRole("other", own(o="1"), on_own())
    site = FakeSite([boots("driver"), other, needs_boot], state=tmp_path)
    report = site.apply()
    assert site.outcomes(report) == {
        "n1: driver": "waiting",
        "n1: other": "changed",
        "n1: mapping": "waiting",
    }
    assert report.exit_code == 5
    assert [str(each.effect) for each in report.consents_missing] == ["reboot-node"]
    assert site.hosts["n1/ssh"].reboots == 0
    allowed = site.apply(Options(allow=frozenset({REBOOT.name})))
    assert allowed.exit_code == 0
    assert site.hosts["n1/ssh"].reboots == 1
    assert site.plan().plan.empty


def test_a_person_may_consent_when_asked(tmp_path: Path) -> None:
    site = FakeSite([boots("driver")], state=tmp_path)
    questions: list[str] = []

    def ask(question: str) -> bool:
        questions.append(question)
        return True

    assert site.apply(ask=ask).exit_code == 0
    assert questions == ["n1: allow reboot-node?"]


def test_the_machine_that_provision_runs_on_is_not_rebooted_by_it(tmp_path: Path) -> None:
    site = FakeSite(
        [boots("driver"), FakeRole("m", own(m="1"), on_own(), needs_new_boot=True)],
        policy=ALLOWED,
        state=tmp_path,
    )
    site.home["n1"] = Diagnostic("HOME", "reboot it yourself")
    report = site.apply()
    assert report.exit_code == 5
    assert site.hosts["n1/ssh"].reboots == 0
    assert (report.steps[0].reason, report.steps[0].diagnostics) == ("reboot it yourself", (site.home["n1"],))
    site.hosts["n1/ssh"].start()
    assert site.apply().exit_code == 0


def test_only_who_runs_provision_is_told_to_reboot_it(tmp_path: Path) -> None:
    site = FakeSite([boots("driver")], ("n1", "n2"), state=tmp_path)
    site.home["n1"] = Diagnostic("HOME", "reboot it yourself")
    report = site.apply()
    assert [step.diagnostics[0].code for step in report.steps] == ["HOME", "CONSENT_MISSING"]


def test_never_is_not_lifted_by_allow(tmp_path: Path) -> None:
    site = FakeSite([boots("driver")], policy={REBOOT: Consent.NEVER}, state=tmp_path)
    assert site.apply(Options(allow=frozenset({REBOOT.name})), ask=lambda _: True).exit_code == 5


def test_step_without_consent_is_not_started_and_its_dependents_wait(tmp_path: Path) -> None:
    loss = Effect(vm_effects.CONSOLE_LOSS, "n1")
    start = FakeRole("start", lambda _: [Item("n1/ssh", "power", "on", risks=(loss,))], on_own())
    site = FakeSite([start, FakeRole("after", own(b="1"), on_own())], state=tmp_path)
    report = site.apply()
    assert site.outcomes(report) == {"n1: start": "waiting", "n1: after": "waiting"}
    assert site.hosts["n1/ssh"].acts == 0
    assert report.exit_code == 5


def test_an_effect_that_an_earlier_run_owes_is_planned_and_done(tmp_path: Path) -> None:
    restart = Effect(host_effects.RESTART, "chrony.service")
    host = Host({"a": "1"}, pending={restart: "boot-1"})
    site = FakeSite([FakeRole("r", own(a="1"), on_own())], hosts={"n1/ssh": host}, state=tmp_path)
    planned = site.plan()
    assert [change.key for change in planned.plan.steps[0].changes] == [
        Key("n1/ssh", "pending", str(restart))
    ]
    report = site.apply(planned=planned)
    assert site.outcomes(report) == {"n1: r": "changed"}
    assert host.restarted == [str(restart)]
    assert site.plan().plan.empty


def test_a_pending_reboot_of_an_earlier_boot_is_satisfied(tmp_path: Path) -> None:
    host = Host({"a": "1"}, boot=2, pending={Effect(REBOOT): "boot-1"})
    site = FakeSite([FakeRole("r", own(a="1"), on_own())], hosts={"n1/ssh": host}, state=tmp_path)
    assert site.plan().plan.empty


def test_a_reboot_before_the_rebuild_that_it_needs_stays_in_the_plan(tmp_path: Path) -> None:
    initramfs = Effect(host_effects.INITRAMFS)
    host = Host({"a": "1"}, boot=2, pending={initramfs: "boot-1", Effect(REBOOT): "boot-1"})
    site = FakeSite([FakeRole("r", own(a="1"), on_own())], hosts={"n1/ssh": host}, state=tmp_path)
    planned = site.plan().plan.steps[0].changes
    assert {each.key.name for each in planned} == {str(initramfs), str(REBOOT)}
    report = site.apply(Options(allow=frozenset({REBOOT.name})))
    assert (report.exit_code, host.reboots, host.pending) == (0, 1, {})
    assert host.restarted[0] == str(initramfs)


def test_an_unknown_outcome_is_looked_up_and_not_repeated(tmp_path: Path) -> None:
    host = Host(cuts=frozenset({"a"}))
    site = FakeSite([FakeRole("r", own(a="1"), on_own())], hosts={"n1/ssh": host}, state=tmp_path)
    report = site.apply()
    assert site.outcomes(report) == {"n1: r": "changed"}
    assert host.acts == 1


def test_a_person_does_what_the_engine_cannot(tmp_path: Path) -> None:
    role = FakeRole(
        "dhcp", lambda _: [Item("n1/ssh", "lease", "x", by_hand=True), Item("n1/ssh", "b", "1")], on_own()
    )
    site = FakeSite([role], state=tmp_path)
    report = site.apply()
    assert report.exit_code == 5
    assert report.steps[0].diagnostics[0].evidence == ("type x into lease",)

    def ask(_question: str) -> bool:
        site.hosts["n1/ssh"].values["lease"] = "x"
        return True

    assert site.apply(ask=ask).exit_code == 0
    assert site.hosts["n1/ssh"].values == {"lease": "x", "b": "1"}


def test_a_change_that_settles_within_its_deadline_is_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readback, "FIRST_POLL", 0.01)
    host = Host(by_itself={"lease": (4, "x")})
    role = FakeRole(
        "address", lambda _: [Item("n1/ssh", "lease", "x", impossible=True, within=30.0)], on_own()
    )
    site = FakeSite([role], hosts={"n1/ssh": host}, state=tmp_path)
    assert site.apply().exit_code == 0


def test_what_cannot_be_mended_fails_with_its_diagnostic(tmp_path: Path) -> None:
    role = FakeRole("r", lambda _: [Item("n1/ssh", "a", "1", impossible=True)], on_own())
    site = FakeSite([role], state=tmp_path)
    report = site.apply()
    assert report.exit_code == 1
    assert report.steps[0].diagnostics[0].code == "IMPOSSIBLE"


def test_a_gate_holds_a_step_until_a_person_answers(tmp_path: Path) -> None:
    site = FakeSite(
        [FakeRole("r", own(a="1"), on_own())], entries=(Entry("r", ("all",), gate="Cabled?"),), state=tmp_path
    )
    assert site.apply().exit_code == 5
    assert site.apply(ask=lambda question: question == "Cabled?").exit_code == 0
    assert site.apply().exit_code == 0, "an unchanged step asks nothing"


def test_what_left_the_inventory_is_shown_and_goes_only_with_prune(tmp_path: Path) -> None:
    role = FakeRole("r", own(a="1"), on_own(), left=lambda _: [Item("n1/ssh", "old", "gone")])
    site = FakeSite([role], hosts={"n1/ssh": Host({"old": "here"})}, state=tmp_path)
    assert site.plan().plan.orphans == ("n1/ssh:item:old",)
    site.apply()
    assert site.hosts["n1/ssh"].values["old"] == "here"
    site.apply(Options(prune=True))
    assert site.hosts["n1/ssh"].values["old"] == "gone"
    assert site.plan().plan.orphans == ()


def test_a_system_that_does_not_answer_is_named_once(tmp_path: Path) -> None:
    roles = [FakeRole("r1", own(a="1"), on_own()), FakeRole("r2", own(b="1"), on_own())]
    site = FakeSite(roles, hosts={"n1/ssh": Host(down=True)}, state=tmp_path)
    report = site.apply()
    assert site.outcomes(report) == {"n1: r1": "unreached", "n1: r2": "unreached"}
    assert [diagnostic.code for step in report.steps for diagnostic in step.diagnostics] == [
        "HOST_UNREACHABLE"
    ]
    assert report.exit_code == 1


def test_destroy_takes_only_what_is_retired_in_reverse_order(tmp_path: Path) -> None:
    def removable(name: str) -> FakeRole:
        return FakeRole(name, own(**{name: "1"}), on_own(), gone=lambda _: [Item("n1/ssh", name, "gone")])

    site = FakeSite(
        [removable("r1"), FakeRole("kept", own(k="1"), on_own()), removable("r2")], state=tmp_path
    )
    site.apply()
    assert site.hosts["n1/ssh"].values == {"r1": "1", "k": "1", "r2": "1"}
    order: list[str] = []
    site.on_set = lambda _system, name, _value: order.append(name)
    site.apply(destroying=True)
    assert order == ["r2", "r1"]
    assert site.hosts["n1/ssh"].values == {"r1": "gone", "k": "1", "r2": "gone"}


@pytest.mark.parametrize("merges", [True, False])
def test_two_roles_that_name_one_key_unite_or_conflict(tmp_path: Path, merges: bool) -> None:

    def wants(value: str) -> FakeRole:
        return FakeRole(
            f"wants-{value}", lambda _: [Item("n1/ssh", "arguments", value, merges=merges)], on_own()
        )

    site = FakeSite([wants("x"), wants("y")], state=tmp_path)
    if merges:
        site.apply()
        assert site.hosts["n1/ssh"].values == {"arguments": "x,y"}
        assert site.plan().plan.empty
    else:
        with pytest.raises(UsageError) as caught:
            site.plan()
        assert caught.value.diagnostics[0].code == "RESOURCE_CONFLICT"
        assert "wants-x" in caught.value.diagnostics[0].summary
        assert "wants-y" in caught.value.diagnostics[0].summary
        assert site.hosts["n1/ssh"].acts == 0


@pytest.mark.parametrize("boots", [None, host_effects.REBOOT_NODE])
def test_answers_that_another_step_drops_meanwhile_are_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boots: EffectClass | None
) -> None:
    """A shared answer (the reservations of a router) may go between a step's read-back and its comparison."""
    site = FakeSite(
        [FakeRole("r", lambda _: [Item("n1/ssh", "a", "1", boots=boots)], on_own("a"))],
        policy={host_effects.REBOOT_NODE: Consent.ALLOW},
        state=tmp_path,
    )

    def read_back_and_drop(run: Run, states: Sequence[StepState], systems: Sequence[str]) -> None:
        read_back(run, states, systems)
        run.session.forget("n1/ssh", [Value("a"), Value("running a")], run.cancel)

    monkeypatch.setattr("provision.engine.readback.read_back", read_back_and_drop)
    monkeypatch.setattr("provision.engine.reboot.read_back", read_back_and_drop)
    assert site.outcomes(site.apply()) == {"n1: r": "changed"}
