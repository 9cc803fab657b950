"""Order among steps: barriers, counted needs, groups that stop on failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from provision.contracts.role import Context, Count, Need, Parent
from provision.engine.environment import Options
from provision.engine.graph import Ancestry, Countdown, narrowed, ordered, predecessors, reversed_steps
from provision.engine.model import Barrier, RunReport, Step, StepId
from provision.engine.steps import expand
from provision.hosts import host_effects
from provision.inventory import Subject
from provision.inventory.playbook import Entry
from provision.values.consent import Consent
from provision.values.errors import UsageError
from tests.unit.engine.fake_hosts import Item
from tests.unit.engine.fakes import FakeRole, FakeSite, on_own, own


def step(name: str, *needs: str, barriers: Sequence[Barrier] = (), after: Sequence[str] = ()) -> Step:
    role, subject = name.split("@")
    return Step(
        StepId(role, subject),
        Subject("node", subject),
        after=frozenset(map(step_id, after)),
        needs=frozenset(map(step_id, needs)),
        barriers=tuple(barriers),
    )


def step_id(name: str) -> StepId:
    role, subject = name.split("@")
    return StepId(role, subject)


def names(steps: Sequence[StepId]) -> list[str]:
    return [f"{step.role}@{step.subject}" for step in steps]


# ---------------------------------------------------------------- the graph alone


def test_a_step_behind_a_barrier_comes_after_all_its_steps() -> None:
    barrier = Barrier((step_id("a@x"), step_id("a@y")))
    steps = [step("b@x", barriers=[barrier]), step("a@y"), step("a@x")]
    assert names([each.id for each in ordered(steps)]) == ["a@y", "a@x", "b@x"]


def test_a_circle_through_a_barrier_is_named() -> None:
    barrier = Barrier((step_id("a@x"), step_id("a@y")))
    steps = [step("a@x", "b@x"), step("a@y"), step("b@x", barriers=[barrier])]
    with pytest.raises(UsageError, match="x: a -> x: b -> x: a"):
        ordered(steps)


def test_a_barrier_opens_once_all_outcomes_are_certain() -> None:
    barrier = Barrier((step_id("a@x"), step_id("a@y")))
    countdown = Countdown([step("a@x"), step("a@y"), step("b@x", barriers=[barrier]), step("b@z", "b@x")])
    assert names(countdown.ready()) == ["a@x", "a@y"]
    assert countdown.end(step_id("a@x")) == []
    assert countdown.settle(step_id("a@x")) == []
    assert countdown.end(step_id("a@y")) == []
    assert names(countdown.settle(step_id("a@y"))) == ["b@x"]
    assert countdown.end(step_id("b@x")) == []
    assert names(countdown.settle(step_id("b@x"))) == ["b@z"]


def test_a_subject_goes_on_before_its_own_reboot_when_the_others_are_done() -> None:
    barrier = Barrier((step_id("a@x"), step_id("a@y")))
    behind = [step("b@x", barriers=[barrier]), step("b@y", barriers=[barrier])]
    countdown = Countdown([step("a@x"), step("a@y"), *behind])
    countdown.end(step_id("a@x"))  # x owes a reboot
    countdown.end(step_id("a@y"))
    assert names(countdown.settle(step_id("a@y"))) == ["b@x"]
    assert names(countdown.settle(step_id("a@x"))) == ["b@y"]


def test_the_nearest_earlier_step_is_found_through_all_edges() -> None:
    barrier = Barrier((step_id("a@x"), step_id("a@y")))
    steps = [
        step("a@x"),
        step("a@y"),
        step("b@x", "a@x"),
        step("b@y", after=["a@y"]),
        step("c@z", barriers=[barrier]),
    ]
    ancestry = Ancestry(steps)
    after_y = [each.id for each in steps if ancestry.nearest(each.id, {step_id("a@y")})]
    assert names(after_y) == ["b@y", "c@z"]
    assert ancestry.nearest(step_id("c@z"), {step_id("a@x"), step_id("a@y")}) == step_id("a@y")
    assert ancestry.nearest(step_id("c@z"), {step_id("b@x"), step_id("unknown@x")}) is None


def test_edges_lead_through_steps_that_are_left_out() -> None:
    barrier = Barrier((step_id("b@x"), step_id("b@y")))
    steps = [
        step("a@x"),
        step("b@x", "a@x"),
        step("b@y"),
        step("c@z", barriers=[barrier]),
        step("d@z", "c@z"),
    ]
    kept = {step_id("a@x"), step_id("b@y"), step_id("d@z")}
    narrow = {f"{each.id.role}@{each.id.subject}": each for each in narrowed(steps, kept)}
    assert list(narrow) == ["a@x", "b@y", "d@z"]
    assert sorted(names(list(predecessors(narrow["d@z"])))) == ["a@x", "b@y"]
    assert [each.needed for each in narrow["d@z"].barriers] == [2]


def test_a_reversed_graph_undoes_what_came_last_first() -> None:
    barrier = Barrier((step_id("a@x"), step_id("a@y")), needed=2)
    steps = [
        step("a@x"),
        step("a@y"),
        step("b@x", barriers=[barrier]),
        step("b@y", "a@y", barriers=[barrier]),
    ]
    turned = {f"{each.id.role}@{each.id.subject}": each for each in reversed_steps(steps)}
    assert list(turned) == ["b@y", "b@x", "a@y", "a@x"]
    for name in ("a@x", "a@y"):
        assert sorted(names(list(predecessors(turned[name])))) == ["b@x", "b@y"]


@pytest.mark.parametrize(
    ("count", "available", "least"),
    [("all", 3, 3), ("any", 3, 1), (2, 3, 2), (5, 3, 3), ("all", 0, 0), ("any", 0, 0)],
)
def test_a_need_counts_no_more_than_there_are(count: Count, available: int, least: int) -> None:
    need = Need("r", count)
    assert need.least(available) == least


# ---------------------------------------------------------------- edges of a playbook


def edges(steps: Sequence[Step]) -> int:
    """Count what is stored: direct edges, references to barriers, and members of each barrier once."""
    barriers = {barrier for each in steps for barrier in each.barriers}
    direct = sum(len(each.after) + len(each.needs) + len(each.barriers) for each in steps)
    return direct + sum(len(barrier.steps) for barrier in barriers)


def expanded(count: int) -> tuple[Step, ...]:
    roles = [
        FakeRole("first", own(a="1"), on_own()),
        FakeRole("second", own(b="1"), on_own(), needs=("first",)),
        FakeRole("third", own(c="1"), on_own(), needs=(Need("second", "any", "site"),)),
    ]
    subjects = tuple(f"n{number}" for number in range(count))
    entries = (
        Entry("first", ("all",)),
        Entry("second", ("all",), after=("first",), serial=max(count // 2, 1)),
        Entry("third", ("all",), after=("first", "second")),
    )
    return expand(FakeSite(roles, subjects=subjects, entries=entries).environment(), Options())


def test_edges_grow_with_the_steps_and_not_with_their_square() -> None:
    small, large = edges(expanded(50)), edges(expanded(200))
    assert large <= 4 * small


def test_after_a_role_is_after_all_its_steps_also_when_it_comes_later() -> None:
    roles = [FakeRole("r1", own(a="1"), on_own()), FakeRole("r2", own(b="1"), on_own())]
    entries = (Entry("r1", ("n1",), after=("r2",)), Entry("r2", ("n2",)))
    site = FakeSite(roles, subjects=("n1", "n2"), entries=entries)
    assert [str(state) for state in site.plan().states] == ["n2: r2", "n1: r1"]


# ---------------------------------------------------------------- counted needs, in runs


def counted(tmp_path: Path, need: Need, endings: Mapping[str, str]) -> dict[str, str]:
    """Run a role for some servers that end as given, and one that needs them; return all outcomes."""

    def make(context: Context) -> list[Item]:
        name = context.subject.name
        waits = endings[name] == "waits"
        return [Item(f"{name}/ssh", "a", "1", by_hand=waits, impossible=endings[name] == "fails")]

    servers = tuple(endings)
    site = FakeSite(
        [FakeRole("server", make, on_own()), FakeRole("agent", own(b="1"), on_own(), needs=(need,))],
        subjects=(*servers, "agent-1"),
        entries=(Entry("server", servers), Entry("agent", ("agent-1",))),
        state=tmp_path,
    )
    for name, ending in endings.items():
        site.hosts[f"{name}/ssh"].down = ending == "down"
    return site.outcomes(site.apply())


@pytest.mark.parametrize(
    ("count", "endings", "outcome"),
    [
        ("any", ("fails", "well"), "changed"),
        ("any", ("fails", "fails"), "blocked"),
        ("any", ("fails", "waits"), "waiting"),
        ("any", ("fails", "down"), "unreached"),
        ("all", ("well", "fails"), "blocked"),
        ("all", ("waits", "fails"), "blocked"),
        ("all", ("well", "well"), "changed"),
        (2, ("well", "well", "fails"), "changed"),
        (2, ("well", "waits", "fails"), "waiting"),
        (2, ("well", "fails", "fails"), "blocked"),
        (7, ("well", "well"), "changed"),
    ],
)
def test_a_counted_need_decides_once_all_have_ended(
    tmp_path: Path, count: Count, endings: tuple[str, ...], outcome: str
) -> None:
    by_server = {f"server-{number}": ending for number, ending in enumerate(endings)}
    need = Need("server", count, "site")
    assert counted(tmp_path, need, by_server)["agent-1: agent"] == outcome


def test_a_need_for_any_still_waits_until_all_have_ended() -> None:
    order: list[str] = []
    need = Need("server", "any", "site")
    site = FakeSite(
        [FakeRole("server", own(a="1"), on_own()), FakeRole("agent", own(b="1"), on_own(), needs=(need,))],
        subjects=("s1", "s2", "agent-1"),
        entries=(Entry("server", ("s1", "s2")), Entry("agent", ("agent-1",))),
        on_set=lambda system, _name, _value: order.append(system),
    )
    assert site.apply().exit_code == 0
    assert order[-1] == "agent-1/ssh"


def test_one_of_alternative_parents_is_enough() -> None:
    def make(context: Context) -> list[Item]:
        name = context.subject.name
        return [Item(f"{name}/ssh", "a", "1", impossible=name in {"a1", "s1"})]

    parents = (Parent("a1", any_of="agents"), Parent("a2", any_of="agents"))
    site = FakeSite(
        [FakeRole("node", make, on_own()), FakeRole("top", own(b="1"), on_own())],
        subjects=("s1", "a1", "a2", "cluster"),
        entries=(Entry("node", ("s1", "a1", "a2")), Entry("top", ("cluster",))),
        parents={"cluster": parents},
    )
    assert site.outcomes(site.apply())["cluster: top"] == "changed"
    site.parents = {"cluster": (*parents, Parent("s1"))}
    site.hosts["cluster/ssh"].values.clear()
    assert site.outcomes(site.apply())["cluster: top"] == "blocked"


# ---------------------------------------------------------------- a group that stops


def rolled(tmp_path: Path, *, stop: bool, unreached_stops: bool = False, **endings: str) -> dict[str, str]:
    """Roll one role over subjects, one at a time; one of them may end otherwise than well."""

    def make(context: Context) -> list[Item]:
        name = context.subject.name
        ending = endings.get(name)
        reboots = host_effects.REBOOT_NODE if ending == "boots" else None
        return [
            Item(f"{name}/ssh", "a", "1", reboots, by_hand=ending == "waits", impossible=ending == "fails")
        ]

    role = FakeRole("r", make, on_own(), unreached_stops=unreached_stops)
    site = FakeSite(
        [role],
        subjects=("n1", "n2", "n3"),
        entries=(Entry("r", ("all",), serial=1, stop_on_failure=stop),),
        policy={host_effects.REBOOT_NODE: Consent.ASK},
        state=tmp_path,
    )
    for name, ending in endings.items():
        site.hosts[f"{name}/ssh"].down = ending == "down"
    report: RunReport = site.apply()
    return {each.id.subject: str(each.outcome) for each in report.steps}


def test_without_the_key_the_rest_goes_on_after_a_failure(tmp_path: Path) -> None:
    assert rolled(tmp_path, stop=False, n1="fails") == {"n1": "failed", "n2": "changed", "n3": "changed"}


@pytest.mark.parametrize(
    ("ending", "unreached_stops", "outcomes"),
    [
        ("fails", False, ("changed", "failed", "blocked")),
        ("waits", False, ("changed", "waiting", "waiting")),
        ("boots", False, ("changed", "waiting", "waiting")),
        ("down", False, ("changed", "unreached", "changed")),
        ("down", True, ("changed", "unreached", "unreached")),
        ("well", True, ("changed", "changed", "changed")),
    ],
)
def test_a_group_stops_where_a_step_of_it_did_not_end_well(
    tmp_path: Path, ending: str, unreached_stops: bool, outcomes: tuple[str, ...]
) -> None:
    by_subject = rolled(tmp_path, stop=True, unreached_stops=unreached_stops, n2=ending)
    assert tuple(by_subject.values()) == outcomes


def test_a_failure_in_one_group_leaves_other_roles_alone(tmp_path: Path) -> None:
    def make(context: Context) -> list[Item]:
        name = context.subject.name
        return [Item(f"{name}/ssh", "a", "1", impossible=name == "n1")]

    site = FakeSite(
        [FakeRole("rolling", make, on_own()), FakeRole("other", own(b="1"), on_own())],
        subjects=("n1", "n2"),
        entries=(Entry("other", ("n2",)), Entry("rolling", ("all",), serial=1, stop_on_failure=True)),
        state=tmp_path,
    )
    outcomes = site.outcomes(site.apply())
    assert outcomes == {"n2: other": "changed", "n1: rolling": "failed", "n2: rolling": "blocked"}
