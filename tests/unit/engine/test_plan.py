from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from provision.api import query_cache
from provision.contracts.change import Key
from provision.contracts.effect import Effect
from provision.contracts.role import Parent
from provision.engine.environment import Options
from provision.engine.model import StepId
from provision.engine.steps import expand
from provision.hosts import host_effects
from provision.inventory.playbook import Entry, parse_playbook
from provision.values.consent import Consent
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.errors import UsageError
from tests.unit.engine.fake_hosts import Host, Item, Value
from tests.unit.engine.fakes import FakeRole, FakeSite, on_own, own


def names(site: FakeSite, options: Options | None = None) -> list[str]:
    return [str(each.id) for each in expand(site.environment(), options or Options())]


def test_a_role_with_nothing_declared_yields_no_step() -> None:
    site = FakeSite([FakeRole("r", own(a="1"), on_own(), subjects=frozenset({"n2"}))], subjects=("n1", "n2"))
    assert names(site) == ["n2: r"]


def test_a_guests_steps_come_after_all_steps_of_its_parent() -> None:
    roles = [FakeRole("r1", own(a="1"), on_own()), FakeRole("r2", own(a="1"), on_own())]
    site = FakeSite(roles, subjects=("vm", "pve"), parents={"vm": (Parent("pve"),)})
    assert names(site) == ["pve: r1", "pve: r2", "vm: r1", "vm: r2"]


def test_targets_and_steps_leave_the_rest_out() -> None:
    roles = [FakeRole("r1", own(a="1"), on_own()), FakeRole("r2", own(a="1"), on_own())]
    site = FakeSite(roles, subjects=("n1", "n2"))
    assert names(site, Options(targets=("n2",), steps=("r1",))) == ["n2: r1"]


def test_unknown_targets_and_steps_are_all_named() -> None:
    site = FakeSite([FakeRole("r1", own(a="1"), on_own())])
    with pytest.raises(UsageError) as caught:
        names(site, Options(targets=("n9",), steps=("r9",)))
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["TARGET_UNKNOWN", "STEP_UNKNOWN"]


def test_steps_that_wait_for_each_other_are_refused_with_the_circle() -> None:
    site = FakeSite(
        [
            FakeRole("r1", own(a="1"), on_own(), needs=("r2",)),
            FakeRole("r2", own(a="1"), on_own()),
        ]
    )
    with pytest.raises(UsageError) as caught:
        names(site)
    assert caught.value.diagnostics[0].code == "STEPS_CIRCULAR"
    assert "n1: r1 -> n1: r2 -> n1: r1" in caught.value.diagnostics[0].summary


@pytest.mark.parametrize(
    ("data", "word"),
    [
        ([], "mapping"),
        ({"steps": [{"role": "r", "on": "nodes", "when": "x"}]}, "when"),
        ({"steps": [{"on": "nodes"}]}, "either"),
        ({"steps": [{"role": "r", "on": "nodes", "serial": "two"}]}, "serial"),
        ({"steps": [{"role": "r", "on": "nodes", "stop_on_failure": "true"}]}, "needs `serial`"),
        ({"steps": [{"role": "r", "on": "nodes", "serial": "1", "stop_on_failure": "yes"}]}, "true or false"),
        ({"steps": [{"role": "r", "on": "nodes", "after": "q"}]}, "after"),
        ({"steps": [], "vars": {}}, "vars"),
    ],
)
def test_a_wrong_playbook_is_refused(data: object, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_playbook(data, "p.yaml")
    assert word in caught.value.diagnostics[0].summary


def test_a_playbook_is_read() -> None:
    data = {
        "name": "x",
        "steps": [
            {"role": "r", "on": ["a", "b"], "serial": "2", "gate": "Sure?"},
            {"role": "s", "on": "a", "serial": "1", "stop_on_failure": "true"},
            {"verify": "all", "after": "r"},
        ],
    }
    playbook = parse_playbook(data, "p.yaml")
    assert playbook.entries == (
        Entry("r", ("a", "b"), (), 2, "Sure?"),
        Entry("s", ("a",), serial=1, stop_on_failure=True),
        Entry("verify", (), ("r",)),
    )


def test_risks_are_listed_highest_first_with_their_consent(tmp_path: Path) -> None:
    def wants(_: object) -> list[Item]:
        return [
            Item("n1/ssh", "a", "1", restarts="a.service"),
            Item("n1/ssh", "b", "1", boots=host_effects.REBOOT_NODE),
        ]

    site = FakeSite([FakeRole("r", wants, on_own())], state=tmp_path)
    risks = site.plan().plan.risks
    assert [(str(risk.effect), risk.consent) for risk in risks] == [
        ("reboot-node", Consent.ASK),
        ("restart a.service", Consent.ALLOW),
    ]


def test_preflight_errors_refuse_and_warnings_are_kept(tmp_path: Path) -> None:
    site = FakeSite([FakeRole("r", own(a="1"), on_own())], state=tmp_path)
    site.rules = lambda *_, **__: [
        Diagnostic("MEMORY", "too little"),
        Diagnostic("CLOCK", "unknown", severity=Severity.NOTE),
    ]
    plan = site.plan().plan
    assert [refusal.code for refusal in plan.refusals] == ["MEMORY"]
    assert [warning.code for warning in plan.warnings] == ["CLOCK"]


def test_a_defect_of_a_role_is_a_problem_of_its_step_alone(tmp_path: Path) -> None:
    def broken(_: object) -> list[Item]:
        raise KeyError("secret value")

    roles = [FakeRole("bad", broken, on_own()), FakeRole("good", own(a="1"), on_own())]
    site = FakeSite(
        roles, subjects=("n1",), entries=(Entry("good", ("all",)), Entry("bad", ("all",))), state=tmp_path
    )
    plan = site.plan().plan
    assert [step.problem.code if step.problem else "" for step in plan.steps] == ["", "ROLE_DEFECT"]
    assert "secret value" not in str(plan)
    assert site.outcomes(site.apply()) == {"n1: good": "changed", "n1: bad": "failed"}


def test_a_merged_change_is_reported_once(tmp_path: Path) -> None:
    def wants(value: str) -> FakeRole:
        return FakeRole(value, lambda _: [Item("n1/ssh", "k", value, merges=True)], on_own())

    site = FakeSite([wants("x"), wants("y")], state=tmp_path)
    changes = [[str(change.key) for change in step.changes] for step in site.plan().plan.steps]
    assert changes == [["n1/ssh:item:k"], []]


def test_what_was_asked_is_kept_and_unknown_kinds_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x" / "query_cache.json"
    query_cache.write(path, {"a": [Value("1"), Value("2")], "b": [Value("1")]})
    assert query_cache.read(path) == {"a": {Value("1"), Value("2")}, "b": {Value("1")}}
    path.write_text(path.read_text().replace("fake_hosts:Value", "fake_hosts:Gone"))
    assert query_cache.read(path) == {"a": frozenset(), "b": frozenset()}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version":1,"queries":[],"systems":{"a":[7]}}', "\x00"])
def test_a_damaged_memory_is_no_memory(text: str, tmp_path: Path) -> None:
    path = tmp_path / "query_cache.json"
    path.write_text(text)
    assert query_cache.read(path) == {}


def test_a_question_with_a_nested_tuple_comes_back_equal() -> None:
    @dataclasses.dataclass(frozen=True)
    class Local:
        kind = "local"
        names: tuple[tuple[str, int], ...]

    packed = query_cache.pack(Local((("a", 1),)))
    assert packed is not None
    assert packed[2] == [[["a", 1]]]


def test_an_owed_effect_belongs_to_the_hosts_own_first_step(tmp_path: Path) -> None:
    restart = Effect(host_effects.RESTART, "x.service")
    hosts = {"n1/ssh": Host({"a": "1", "b": "1"}, pending={restart: "boot-1"})}
    site = FakeSite(
        [FakeRole("r1", own(a="1"), on_own()), FakeRole("r2", own(b="1"), on_own())],
        hosts=hosts,
        state=tmp_path,
    )
    owing = {step.step.id: [change.key for change in step.changes] for step in site.plan().plan.steps}
    assert owing == {
        StepId("r1", "n1"): [Key("n1/ssh", "pending", "restart x.service")],
        StepId("r2", "n1"): [],
    }
