"""What an earlier step alters or brings: late in the plan, there when the step is reached, or a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.role import Context, Need
from provision.contracts.system import SystemSpec
from provision.engine.environment import Options
from provision.inventory.playbook import Entry
from provision.proxmox import vm_effects
from tests.unit.engine.fake_hosts import Host, Item, Value
from tests.unit.engine.fakes import FakeRole, FakeSite, here, on_own, own

SERVER = "server/ssh"


def install(_: Context) -> list[Item]:
    return [Item(SERVER, "service", "up", restarts="server.service", alters=((SERVER, "token"),))]


def join(context: Context) -> list[Item]:
    token = context.require(SERVER, Value("token"), "cannot join the server")
    return [Item(f"{context.subject.name}/ssh", "joined", str(token))]


def cluster(tmp_path: Path, *, needs: bool = True, install_role: FakeRole | None = None) -> FakeSite:
    """A server that makes a token when its service comes up, and two agents that read it."""
    server = install_role or FakeRole("install", install, on_own())
    server.subjects = frozenset({"server"})
    agents = FakeRole(
        "join",
        join,
        lambda subject: {SERVER: (Value("token"),), f"{subject}/ssh": ()},
        needs=(Need("install", scope="site"),) if needs else (),
        subjects=frozenset({"agent-1", "agent-2"}),
    )
    site = FakeSite([server, agents], subjects=("server", "agent-1", "agent-2"), state=tmp_path)
    if not needs:
        site.entries = (Entry("install", ("all",)), Entry("join", ("all",), after=("install",)))

    def on_set(_system: str, name: str, _value: str) -> None:
        if name == "service":
            site.hosts[SERVER].values["token"] = "secret"

    site.on_set = on_set
    return site


def late(site: FakeSite, options: Options | None = None) -> dict[str, str]:
    return {str(step.step.id): step.late for step in site.plan(options).plan.steps if step.late}


def test_the_first_apply_joins_all_agents_to_a_server_it_installs(tmp_path: Path) -> None:
    site = cluster(tmp_path)
    assert late(site) == {"agent-1: join": "after server: install", "agent-2: join": "after server: install"}
    report = site.apply()
    assert set(site.outcomes(report).values()) == {"changed"}
    assert [site.hosts[f"agent-{number}/ssh"].values["joined"] for number in (1, 2)] == ["secret", "secret"]
    assert site.plan().plan.empty


def test_an_answer_that_a_step_alters_is_read_after_it(tmp_path: Path) -> None:
    site = cluster(tmp_path)
    site.hosts[SERVER].values["token"] = "old"
    assert late(site)
    assert site.apply().exit_code == 0
    assert site.hosts["agent-1/ssh"].values["joined"] == "secret"
    assert site.plan().plan.empty


@pytest.mark.parametrize("needs", [True, False])
def test_an_answer_that_never_comes_fails_the_step_with_its_reason(tmp_path: Path, needs: bool) -> None:
    site = cluster(tmp_path, needs=needs)
    site.on_set = None
    report = site.apply()
    assert site.outcomes(report) == {
        "server: install": "changed",
        "agent-1: join": "failed",
        "agent-2: join": "failed",
    }
    assert "cannot join the server: there is nothing yet" in report.steps[-1].reason
    again = site.apply()
    assert site.outcomes(again)["agent-1: join"] == "failed", "the server is unchanged"
    assert again.exit_code == 1


def wait_for_consent(_: Context) -> list[Item]:
    return [Item(SERVER, "service", "up", risks=(Effect(vm_effects.CONSOLE_LOSS, "server"),))]


@pytest.mark.parametrize(
    ("spoil", "outcome"),
    [("consent", "waiting"), ("refused", "blocked"), ("blocked", "blocked"), ("silent", "unreached")],
)
def test_a_missing_answer_has_the_outcome_of_its_bringer(tmp_path: Path, spoil: str, outcome: str) -> None:
    role = FakeRole("install", wait_for_consent if spoil == "consent" else install, on_own())
    site = cluster(tmp_path, needs=False, install_role=role)
    if spoil == "refused":
        site.hosts[SERVER].refuses = frozenset({"service"})
    if spoil == "silent":
        site.hosts[SERVER].down = True
    if spoil == "blocked":
        site.roles.insert(0, FakeRole("first", own(a="1"), on_own(), subjects=frozenset({"server"})))
        site.entries = (Entry("first", ("all",)), *site.entries)
        site.hosts[SERVER].refuses = frozenset({"a"})
    report = site.apply()
    assert site.outcomes(report)["agent-1: join"] == outcome


def test_the_message_names_the_step_that_a_target_leaves_out(tmp_path: Path) -> None:
    site = cluster(tmp_path)
    report = site.apply(Options(targets=("agent-1",)))
    assert site.outcomes(report) == {"agent-1: join": "failed"}
    assert "this run leaves out the step `server: install`" in report.steps[0].reason


def test_an_unknown_answer_is_never_unchanged(tmp_path: Path) -> None:
    site = cluster(tmp_path)
    site.hosts[SERVER].values.update(service="up")
    site.hosts[SERVER].unknown["token"] = Unknown("permission denied")
    report = site.apply()
    assert site.outcomes(report)["agent-1: join"] == "failed"
    assert "permission denied" in report.steps[1].reason


def test_one_of_a_hundred_new_reservations_makes_no_step_late(tmp_path: Path) -> None:
    names = tuple(f"n{number}" for number in range(100))

    def reserve(context: Context) -> list[Item]:
        name = context.subject.name
        return [Item("router", name, "reserved", reads=("listing",), alters=(("router", "listing"),))]

    roles = [
        FakeRole("reserve", reserve, lambda _: {"router": (Value("listing"),)}),
        FakeRole("base", own(a="1"), on_own("os")),
    ]
    site = FakeSite(
        roles,
        subjects=names,
        hosts={"router": Host(dict.fromkeys(names[1:], "reserved"))},
        specs={"router": SystemSpec("router", "host", "router", {}, here)},
        entries=(Entry("reserve", ("all",), serial=1), Entry("base", ("all",))),
        state=tmp_path,
    )
    planned = site.plan().plan
    assert [len(step.changes) for step in planned.steps if step.step.id.role == "reserve"] == [1] + 99 * [0]
    assert late(site) == {}


def test_what_needs_no_answer_of_a_machine_to_come_is_shown(tmp_path: Path) -> None:
    def copy(context: Context) -> list[Item]:
        return [Item("vm/ssh", "copy", str(context.require("vm/ssh", Value("os"))))]

    subjects = frozenset({"vm"})
    roles = [
        FakeRole("create", lambda _: [Item("pve/api", "vm", "there", makes="vm")], lambda _: {"pve/api": ()}),
        FakeRole("base", own(a="1"), on_own("os"), subjects=subjects),
        FakeRole("copy", copy, on_own("os"), subjects=subjects),
    ]
    roles[0].subjects = subjects
    site = FakeSite(
        roles,
        subjects=("vm",),
        hosts={"pve/api": Host(is_api=True), "vm/ssh": Host({"os": "debian"})},
        specs={"pve/api": SystemSpec("pve/api", "api", "pve", {}, here)},
        state=tmp_path,
    )
    steps = {step.step.id.role: step for step in site.plan().plan.steps}
    assert [str(change.key) for change in steps["base"].changes] == ["vm/ssh:item:a"]
    assert (steps["base"].late, steps["copy"].late) == ("after vm: create", "after vm: create")
    assert steps["copy"].changes == ()
    assert site.apply().exit_code == 0
    assert site.plan().plan.empty
