"""Effects inside a step are drained for, too, and a node that was replaced is taken back after its step."""

from __future__ import annotations

import threading

import pytest

from provision.contracts import common_effects
from provision.contracts.effect import Effect
from provision.contracts.role import Need
from provision.contracts.system import SystemSpec
from provision.engine import scheduler
from provision.inventory.playbook import Entry
from provision.k3s.k3s_effects import RESTART_K3S
from tests.unit.engine.cluster import API, Cluster, driver_role
from tests.unit.engine.fake_hosts import Host, Item, Value
from tests.unit.engine.fakes import FakeRole, FakeSite, born_on, on_own, own
from tests.unit.engine.rolling import FOUR


@pytest.fixture(autouse=True)
def _one_step_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let steps end in the order of the plan, so that what happens is the same each time."""
    monkeypatch.setattr(scheduler, "WORKERS", 1)


@pytest.fixture
def _steps_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let steps run beside each other again."""
    monkeypatch.setattr(scheduler, "WORKERS", 16)


# ---------------------------------------------------------------- effects inside steps


def restarting(*names: str) -> FakeRole:
    """A configuration whose change restarts the node's agent."""
    restart = (Effect(RESTART_K3S),)
    return FakeRole(
        "config",
        lambda context: [
            Item(f"{context.subject.name}/ssh", "first", "1"),
            Item("router", f"route {context.subject.name}", "1"),
            Item(f"{context.subject.name}/ssh", "config", "1", risks=restart),
        ],
        on_own(),
        subjects=frozenset(names),
    )


def with_router(site: FakeSite) -> FakeSite:
    site.hosts["router"] = Host(is_api=True)
    site.specs["router"] = SystemSpec("router", "api", "router", {}, site.specs["n1/ssh"].endpoint)
    return site


def test_a_step_is_begun_again_once_its_node_is_drained() -> None:
    cluster = Cluster(FOUR, servers=("n1",))
    site = with_router(cluster.site(restarting("n2", "n3")))
    report = site.apply()
    assert report.exit_code == 0, report
    drained = ["cordon {0}=provision", "pods {0}=0", "cordon {0}="]
    assert cluster.history == [line.format(name) for name in ("n2", "n3") for line in drained]
    assert site.outcomes(report)["n2: config"] == "changed"
    changed = next(step.changed for step in report.steps if str(step.id) == "n2: config")
    assert [change.key.name for change in changed] == ["first", "route n2", "config"]
    assert site.plan().plan.empty


def test_the_effect_comes_between_drain_and_uncordon() -> None:
    cluster = Cluster(FOUR, servers=("n1",))
    site = with_router(cluster.site(restarting("n2")))

    def on_set(system: str, name: str, value: str) -> None:
        cluster.on_set(system, name, value)
        if name == "config":
            cluster.history.append("config")

    site.on_set = on_set
    assert site.apply().exit_code == 0
    assert cluster.history == ["cordon n2=provision", "pods n2=0", "config", "cordon n2="]


@pytest.mark.usefixtures("_steps_at_once")
def test_a_hook_holds_no_lock_of_another_system() -> None:
    cluster = Cluster(FOUR, servers=("n1",))
    site = with_router(cluster.site(restarting("n2"), driver_role("n3")))
    held: list[str] = []

    def on_set(system: str, name: str, value: str) -> None:
        cluster.on_set(system, name, value)
        if system != API or site.session is None:
            return
        for other in ("n2/ssh", "n3/ssh", "router"):
            lock = site.session.systems[other].lock._lock
            if lock.acquire(blocking=False):
                lock.release()
            else:
                held.append(other)

    site.on_set = on_set
    assert site.apply().exit_code == 0
    assert held == []
    assert cluster.events("n2")


def test_a_step_whose_drain_fails_leaves_its_effect_undone() -> None:
    cluster = Cluster(FOUR, servers=("n1",))
    cluster.api.refuses = frozenset({"pods n2"})
    site = with_router(cluster.site(restarting("n2"), FakeRole("later", own(later="1"), on_own())))
    outcomes = site.outcomes(site.apply())
    assert outcomes["n2: config"] == outcomes["n2: later"] == "blocked"
    assert site.hosts["n2/ssh"].values.get("config") is None
    assert site.hosts["n2/ssh"].values["first"] == "1", "what costs nothing was done"
    assert cluster.events("n2") == ["cordon n2=provision", "cordon n2="]


def test_a_gate_is_asked_once_though_the_step_begins_twice() -> None:
    cluster = Cluster(FOUR, servers=("n1",))
    site = with_router(cluster.site(restarting("n2")))
    site.entries = (Entry("config", ("all",), gate="go on?"), Entry("uncordon", ("all",)))
    asked: list[str] = []

    def ask(question: str) -> bool:
        asked.append(question)
        return True

    assert site.apply(ask=ask).exit_code == 0
    assert asked == ["go on?"]


def test_a_node_whose_step_fails_after_the_drain_stays_cordoned() -> None:
    cluster = Cluster(FOUR, servers=("n1",))
    site = with_router(cluster.site(restarting("n2", "n3")))
    site.hosts["n2/ssh"].refuses = frozenset({"config"})
    report = site.apply()
    outcomes = site.outcomes(report)
    assert (outcomes["n2: config"], outcomes["n3: config"]) == ("failed", "waiting")
    assert cluster.history == ["cordon n2=provision", "pods n2=0"]
    site.hosts["n2/ssh"].refuses = frozenset()
    assert site.apply().exit_code == 0
    assert cluster.away() == set()
    assert site.plan().plan.empty


# ---------------------------------------------------------------- a node that is another one afterwards


def rebuilt(cluster: Cluster, *, needs: tuple[str | Need, ...] = ()) -> FakeSite:
    """A site whose guest n2 is replaced; it is ready again after its agent step."""
    cluster.guests = {"pve": ("n2",)}
    roles = [
        FakeRole(
            "create",
            lambda context: [
                Item(
                    "pve/api",
                    context.subject.name,
                    "new",
                    risks=(Effect(common_effects.REPLACE, context.subject.name),),
                    makes=context.subject.name,
                )
            ],
            lambda name: {"pve/api": (Value(name),)},
            subjects=frozenset({"n2"}),
        ),
        FakeRole("agent", own(agent="1"), on_own("os"), needs=needs, subjects=frozenset({"n2"})),
    ]
    site = cluster.site(driver_role("n1"), *roles)
    site.hosts["pve/api"] = Host({"n2": "old"}, is_api=True)
    site.hosts["n2/ssh"].values["agent"] = "1"
    site.specs["pve/api"] = SystemSpec("pve/api", "api", "pve", {}, site.specs["n1/ssh"].endpoint)
    site.specs["n2/ssh"] = SystemSpec(
        "n2/ssh", "host", "n2", {"pve/api": (Value("n2"),)}, born_on("pve/api", "n2")
    )

    def on_set(system: str, name: str, value: str) -> None:
        if system == "pve/api":
            site.hosts["n2/ssh"].values.clear()
            cluster.api.values["node n2"] = "away"
            cluster.note("replaced n2")
        elif name == "agent":
            cluster.api.values["node n2"] = "ready"
            cluster.note("joined n2")
        cluster.on_set(system, name, value)

    site.on_set = on_set
    return site


def test_a_replaced_node_is_taken_back_only_after_its_agent_step() -> None:
    cluster = Cluster({"n1": True, "n2": True})
    site = rebuilt(cluster)
    report = site.apply()
    assert report.exit_code == 0, report
    assert cluster.events("n2") == [
        "cordon n2=provision",
        "pods n2=0",
        "replaced n2",
        "joined n2",
        "cordon n2=",
    ]
    assert cluster.most_away == 1
    assert site.plan().plan.empty


@pytest.mark.usefixtures("_steps_at_once")
def test_a_node_whose_agent_waits_for_anothers_reboot_gives_its_slot_back() -> None:
    cluster = Cluster({"n1": True, "n2": True})
    site = rebuilt(cluster, needs=(Need("driver", scope="site"),))
    # n1 owes its reboot only when n2 is away already.
    replaced = threading.Event()
    on_set = site.on_set
    assert on_set is not None

    def wait_for_n2(system: str, name: str, value: str) -> None:
        on_set(system, name, value)
        if system == "pve/api":
            replaced.set()
        elif name == "driver":
            assert replaced.wait(10.0)

    site.on_set = wait_for_n2
    report = site.apply()
    assert report.exit_code == 0, report
    history = [event for event in cluster.history if event in {"replaced n2", "down n1", "joined n2"}]
    assert history == ["replaced n2", "down n1", "joined n2"]
    assert cluster.away() == set()
    assert site.plan().plan.empty


def test_a_removal_drains_nothing() -> None:
    cluster = Cluster(FOUR, servers=("n1",))
    role = restarting("n2")
    role.gone = lambda _: [Item("n2/ssh", "config", "none", risks=(Effect(RESTART_K3S),))]
    site = with_router(cluster.site(role))
    report = site.apply(destroying=True)
    assert report.exit_code == 0, report
    assert site.hosts["n2/ssh"].values["config"] == "none"
    assert cluster.history == []
