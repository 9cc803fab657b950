"""Alternatives that a role did not choose go before what it chose comes, and a switch never has both."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.contracts.role import Parent
from provision.contracts.system import SystemSpec
from provision.engine.environment import Options
from provision.engine.model import StepId
from tests.unit.engine.fake_hosts import Host, Item, Value
from tests.unit.engine.fakes import (
    FakeRole,
    FakeSite,
    born_on,
    here,
    on_own,
    own,
)

GONE = ""
MODES = ("hami", "stock")


class Cluster:
    """A cluster whose sharing is one of two exclusive modes; each set of it is looked at."""

    def __init__(self, state: Path, mode: str) -> None:
        self.mode = mode
        self.host = Host({})
        self.both: list[str] = []
        self.state = state

    def site(self, **more: object) -> FakeSite:
        role = FakeRole(
            "sharing",
            lambda _: [Item("cluster/ssh", self.mode, "on")],
            on_own(),
            unchosen=lambda _: [Item("cluster/ssh", mode, GONE) for mode in MODES if mode != self.mode],
            unchosen_on=("cluster",),
        )
        site = FakeSite([role], subjects=("cluster",), hosts={"cluster/ssh": self.host}, state=self.state)
        for name, value in more.items():
            setattr(site, name, value)
        site.on_set = self._look
        return site

    def _look(self, _system: str, name: str, _value: str) -> None:
        if all(self.host.values.get(mode) for mode in MODES):
            self.both.append(name)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path, "stock")
    cluster.host.values = {"hami": "on", "stock": GONE}
    return cluster


def test_the_other_alternative_goes_first(cluster: Cluster) -> None:
    plan = cluster.site().plan().plan
    assert [str(step.step.id) for step in plan.steps] == ["cluster: sharing:retire", "cluster: sharing"]
    assert cluster.site().apply().exit_code == 0
    assert cluster.host.values == {"hami": GONE, "stock": "on"}
    assert cluster.both == []
    assert cluster.site().plan().plan.empty


def test_where_nothing_is_to_be_removed_there_is_no_retire_step(cluster: Cluster) -> None:
    cluster.host.values = {"hami": GONE, "stock": "on"}
    assert [str(step.step.id) for step in cluster.site().plan().plan.steps] == ["cluster: sharing"]


def test_what_cannot_be_removed_keeps_the_other_from_coming(cluster: Cluster) -> None:
    cluster.host.refuses = frozenset({"hami"})
    site = cluster.site()
    assert site.outcomes(site.apply()) == {
        "cluster: sharing:retire": "failed",
        "cluster: sharing": "blocked",
    }
    assert cluster.host.values == {"hami": "on", "stock": GONE}


def test_a_chosen_step_takes_its_retire_step_along(cluster: Cluster) -> None:
    steps = cluster.site().plan(Options(steps=("sharing",))).plan.steps
    assert [str(step.step.id) for step in steps] == ["cluster: sharing:retire", "cluster: sharing"]


def test_a_role_that_is_no_longer_declared_is_retired_before_its_successor(tmp_path: Path) -> None:
    agent = FakeRole(
        "agent",
        own(agent="on"),
        on_own(),
        subjects=frozenset(),
        unchosen=lambda context: [Item(f"{context.subject.name}/ssh", "agent", GONE)],
        unchosen_on=("n1",),
    )
    server = FakeRole("server", own(server="on"), on_own(), needs=("agent:retire",))
    site = FakeSite([agent, server], hosts={"n1/ssh": Host({"agent": "on"})}, state=tmp_path)
    assert [str(step.step.id) for step in site.plan().plan.steps] == ["n1: agent:retire", "n1: server"]
    site.hosts["n1/ssh"].refuses = frozenset({"agent"})
    assert site.outcomes(site.apply()) == {"n1: agent:retire": "failed", "n1: server": "blocked"}
    site.hosts["n1/ssh"].refuses = frozenset()
    assert site.apply().exit_code == 0
    assert site.hosts["n1/ssh"].values == {"agent": GONE, "server": "on"}


def test_a_key_that_a_coming_step_wants_is_left_to_it(tmp_path: Path) -> None:
    former = FakeRole(
        "former",
        own(),
        on_own(),
        subjects=frozenset(),
        unchosen=lambda _: [Item("n1/ssh", "shared", GONE), Item("n1/ssh", "own", GONE)],
        unchosen_on=("n1",),
    )
    site = FakeSite(
        [former, FakeRole("coming", own(shared="new"), on_own())],
        hosts={"n1/ssh": Host({"shared": "old", "own": "old"})},
        state=tmp_path,
    )
    (retire, coming) = site.plan().plan.steps
    assert [change.key.name for change in retire.changes] == ["own"]
    assert [change.key.name for change in coming.changes] == ["shared"]
    assert site.apply().exit_code == 0
    assert site.hosts["n1/ssh"].values == {"shared": "new", "own": GONE}


def test_the_operators_driver_goes_before_the_hosts_driver_comes(tmp_path: Path) -> None:
    order: list[str] = []
    operator = FakeRole(
        "operator",
        lambda _: [Item("cluster/ssh", "operator", "on")],
        on_own(),
        subjects=frozenset({"cluster"}),
        unchosen=lambda _: [Item("cluster/ssh", "driver", GONE)],
        unchosen_on=("cluster",),
    )
    driver = FakeRole("driver", own(driver="on"), on_own(), subjects=frozenset({"n1"}))
    site = FakeSite(
        [driver, operator],
        subjects=("n1", "cluster"),
        hosts={"cluster/ssh": Host({"driver": "on"})},
        parents={"cluster": (Parent("n1"),)},
        state=tmp_path,
    )
    site.on_set = lambda system, name, _value: order.append(f"{system} {name}")
    assert site.apply().exit_code == 0
    assert order == ["cluster/ssh driver", "n1/ssh driver", "cluster/ssh operator"]


def test_objects_inside_a_machine_are_retired_after_the_run_starts_it(tmp_path: Path) -> None:
    start = FakeRole("start", lambda _: [Item("pve/ssh", "vm", "on")], lambda _: {"pve/ssh": (Value("vm"),)})
    inside = FakeRole(
        "inside",
        own(new="on"),
        on_own(),
        unchosen=lambda context: [Item(f"{context.subject.name}/ssh", "old", GONE)],
        unchosen_on=("vm",),
    )
    order: list[str] = []
    site = FakeSite(
        [start, inside],
        subjects=("vm",),
        hosts={"vm/ssh": Host({"old": "on"}), "pve/ssh": Host()},
        specs={
            "pve/ssh": SystemSpec("pve/ssh", "host", "pve", {}, here),
            "vm/ssh": SystemSpec(
                "vm/ssh", "host", "vm", {"pve/ssh": (Value("vm"),)}, born_on("pve/ssh", "vm")
            ),
        },
        state=tmp_path,
    )
    site.on_set = lambda _system, name, _value: order.append(name)
    plan = site.plan().plan
    late = {str(step.step.id): step.late for step in plan.steps if step.late}
    assert late == {"vm: inside:retire": "after vm: start", "vm: inside": "after vm: inside:retire"}
    assert site.apply().exit_code == 0
    assert order == ["vm", "old", "new"]
    assert site.plan().plan.empty


def test_a_subject_without_steps_is_retired_after_what_starts_it(tmp_path: Path) -> None:
    start = FakeRole(
        "start", lambda _: [Item("pve/ssh", "api", "on")], lambda _: {"pve/ssh": (Value("api"),)}
    )
    operator = FakeRole(
        "operator",
        lambda _: [],
        on_own(),
        unchosen=lambda _: [Item("api/ssh", "old", GONE)],
        unchosen_on=("api",),
        subjects=frozenset(),
    )
    site = FakeSite(
        [start, operator],
        subjects=("pve", "api"),
        hosts={"api/ssh": Host({"old": "on"}), "pve/ssh": Host()},
        parents={"api": (Parent("pve"),)},
        specs={
            "pve/ssh": SystemSpec("pve/ssh", "host", "pve", {}, here),
            "api/ssh": SystemSpec(
                "api/ssh", "host", "api", {"pve/ssh": (Value("api"),)}, born_on("pve/ssh", "api")
            ),
        },
        state=tmp_path,
    )
    start.subjects = frozenset({"pve"})
    order: list[str] = []
    site.on_set = lambda _system, name, _value: order.append(name)
    assert site.apply().exit_code == 0
    assert order == ["api", "old"]
    assert site.plan().plan.empty


def test_destroy_has_no_retire_steps(cluster: Cluster) -> None:
    planned = cluster.site().plan(destroying=True)
    assert StepId("sharing:retire", "cluster") not in planned.states
