"""Effects on machines reach the cluster: drained before, waited for and uncordoned after, never too many."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from provision.contracts.effect import Effect
from provision.contracts.role import Parent
from provision.contracts.system import SystemSpec
from provision.engine import scheduler
from provision.engine.environment import Options, Verification
from provision.engine.hooks import Hooks
from provision.engine.model import StepId
from provision.engine.step_state import StepResult
from provision.hosts import host_effects
from provision.inventory.playbook import Entry
from provision.kube.kube_effects import DRAIN
from provision.values.cancel import Cancel
from provision.values.consent import Consent
from provision.values.outcomes import ExitCode, Outcome
from tests.unit.engine.cluster import API, EXCESS, REBOOT, Cluster, driver_role
from tests.unit.engine.fake_hosts import Item, Value
from tests.unit.engine.fakes import FakeRole, FakeSite, born_on, on_own, own
from tests.unit.engine.rolling import FOUR, ROLLED, lines, rolled


@pytest.fixture(autouse=True)
def _one_step_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let steps end in the order of the plan, so that what happens is the same each time."""
    monkeypatch.setattr(scheduler, "WORKERS", 1)


@pytest.fixture
def _steps_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let steps run beside each other again."""
    monkeypatch.setattr(scheduler, "WORKERS", 16)


def test_nodes_are_drained_rebooted_and_uncordoned_one_at_a_time() -> None:
    cluster = Cluster(FOUR, servers=("n1", "n2", "n3"))
    site = cluster.site(driver_role())
    report = site.apply()
    assert report.exit_code == 0, report
    assert cluster.history == [event for name in FOUR for event in rolled(name)]
    assert cluster.most_away == 1
    assert site.plan().plan.empty


@pytest.mark.usefixtures("_steps_at_once")
def test_two_are_away_at_once_where_the_limit_is_two() -> None:
    cluster = Cluster(FOUR, servers=("n1",), limit=2)
    site = cluster.site(driver_role("n2", "n3", "n4"))
    both_down = threading.Barrier(2, timeout=10.0)

    def on_boot(system: str, is_up: bool) -> None:
        cluster.on_boot(system, is_up)
        if not is_up and system != "n4/ssh":
            both_down.wait()

    site.on_boot = on_boot
    assert site.apply().exit_code == 0
    assert cluster.most_away == 2
    assert [cluster.events(name) for name in ("n2", "n3", "n4")] == [
        rolled(name) for name in ("n2", "n3", "n4")
    ]


@pytest.mark.usefixtures("_steps_at_once")
def test_no_more_nodes_than_allowed_are_away_when_all_steps_run_at_once() -> None:
    cluster = Cluster(FOUR, servers=("n1", "n2", "n3"))
    assert cluster.site(driver_role()).apply().exit_code == 0
    assert cluster.most_away == 1
    assert {name: cluster.events(name) for name in FOUR} == {name: rolled(name) for name in FOUR}


def test_who_waits_gets_a_slot_in_the_order_of_the_plan() -> None:
    cluster = Cluster(FOUR, servers=("n1",))
    site = cluster.site(driver_role("n2", "n3", "n4"))
    run = site.run(site.plan(), Cancel(), lambda _: None)
    for state in run.planned.states.values():
        state.result = StepResult(Outcome.UNCHANGED)
    calls: list[tuple[Callable[[], object], Callable[[object], None]]] = []
    order: list[str] = []
    hooks = Hooks(
        run, lambda _name, _systems, call, proceed, _: calls.append((call, proceed)), lambda *_: None
    )
    for position, name in ((3, "n4"), (2, "n3"), (1, "n2")):
        owner = StepId("reboot", name)

        def resume(withheld: StepResult | None, owner: StepId = owner) -> None:
            assert withheld is None
            order.append(owner.subject)
            hooks.release(owner)

        assert not hooks.prepare(owner, position, ((f"{name}/ssh", Effect(REBOOT)),), resume)
    while calls:
        call, proceed = calls.pop(0)
        proceed(call())
    assert order == ["n4", "n2", "n3"], "n4 came first, when nobody else waited"


def test_a_run_that_is_told_to_end_leaves_the_rest_to_the_next() -> None:
    cluster = Cluster(FOUR, servers=("n1",))
    site = cluster.site(driver_role("n2", "n3"))
    cancel = Cancel()

    def on_set(system: str, name: str, value: str) -> None:
        cluster.on_set(system, name, value)
        if name == "pods n2":
            cancel.drain()

    site.on_set = on_set
    assert site.apply(cancel=cancel).exit_code == 130
    assert cluster.history == ["cordon n2=provision", "pods n2=0"]
    site.on_set = cluster.on_set
    assert site.apply().exit_code == 0
    assert cluster.away() == set()
    assert cluster.undrained == []
    assert site.plan().plan.empty


def test_without_consent_nothing_is_cordoned_and_the_reboot_waits() -> None:
    cluster = Cluster(FOUR, servers=("n1",))
    site = cluster.site(driver_role("n2"))
    site.policy[DRAIN] = Consent.ASK
    report = site.apply()
    assert report.exit_code == 5
    assert site.outcomes(report)["n2: driver"] == "waiting"
    assert {str(need.effect) for need in report.consents_missing} == {"drain n2"}
    assert cluster.history == []
    assert site.hosts["n2/ssh"].reboots == 0
    assert site.apply(Options(allow=frozenset({"drain"}))).exit_code == 0
    assert cluster.history == rolled("n2")
    assert site.plan().plan.empty


def test_a_cordon_is_undone_where_the_drain_lacks_consent() -> None:
    cluster = Cluster(FOUR, servers=("n1",), asks_for_cordon=False)
    site = cluster.site(driver_role("n2"))
    site.policy[DRAIN] = Consent.NEVER
    report = site.apply()
    assert report.exit_code == 5
    assert cluster.history == ["cordon n2=provision", "cordon n2="]
    assert site.hosts["n2/ssh"].reboots == 0


def test_a_drain_that_fails_withholds_only_that_nodes_reboot() -> None:
    cluster = Cluster(FOUR, servers=("n1",))
    cluster.api.refuses = frozenset({"pods n2"})
    site = cluster.site(driver_role("n2", "n3"))
    report = site.apply()
    outcomes = site.outcomes(report)
    assert report.exit_code == 1
    assert (outcomes["n2: drain:before"], outcomes["n2: driver"]) == ("failed", "blocked")
    assert (outcomes["n3: drain:before"], outcomes["n3: driver"]) == ("changed", "changed")
    assert cluster.events("n2") == ["cordon n2=provision", "cordon n2="]
    assert site.hosts["n2/ssh"].reboots == 0
    cluster.api.refuses = frozenset()
    assert site.apply().exit_code == 0
    assert site.hosts["n2/ssh"].reboots == 1
    assert site.plan().plan.empty


def test_what_was_cordoned_by_a_person_stays_cordoned_when_the_drain_fails() -> None:
    cluster = Cluster(FOUR, servers=("n1",))
    cluster.api.refuses = frozenset({"cordon n2"})
    cluster.api.values["cordon n2"] = "a person"
    site = cluster.site(driver_role("n2"))
    assert site.apply().exit_code == 1
    assert cluster.api.values["cordon n2"] == "a person"


def test_a_node_that_is_not_ready_is_not_drained_and_others_wait_for_it() -> None:
    cluster = Cluster({**FOUR, "n4": False}, servers=("n1",))
    site = cluster.site(driver_role("n2", "n4"))
    report = site.apply()
    assert report.exit_code == 0, report
    assert "no drain: n4 is not ready already" in lines(site)
    assert cluster.history == ["down n4", "up n4", *rolled("n2")]


def test_a_node_that_stays_away_holds_the_others_reboots_back() -> None:
    cluster = Cluster({**FOUR, "n4": False}, servers=("n1",))
    site = cluster.site(driver_role("n2", "n3"))
    report = site.apply()
    assert report.exit_code == 5
    reasons = {str(step.id): step.reason for step in report.steps}
    assert reasons["n2: driver"] == "waits for n4: at most 1 may be away at once"
    assert cluster.history == []
    cluster.join("n4")
    assert site.apply().exit_code == 0
    assert cluster.history == [*rolled("n2"), *rolled("n3")]


def test_the_only_server_is_rebooted_without_a_drain() -> None:
    cluster = Cluster({"n1": True, "n2": True})
    site = cluster.site(driver_role())
    report = site.apply()
    assert report.exit_code == 0, report
    assert f"no drain: there is no other way to {API}" in lines(site)
    assert cluster.history == ["down n1", "up n1", *rolled("n2")]
    assert cluster.most_away == 1


def test_a_machine_without_a_node_object_is_rebooted_at_once() -> None:
    cluster = Cluster({"n1": True, "n2": None, "n3": None})
    site = cluster.site(driver_role("n2", "n3"))
    report = site.apply()
    assert report.exit_code == 0, report
    assert cluster.events("n2") == ["down n2", "up n2"]
    assert "no drain: n3 is not part of it yet" in lines(site)


# ---------------------------------------------------------------- several at once


def on_hypervisor(cluster: Cluster) -> FakeSite:
    """A site whose hypervisor reboots and takes its guests down with it."""
    role = FakeRole(
        "grub",
        lambda _: [Item("pve/ssh", "grub", "1", boots=host_effects.REBOOT_HYPERVISOR)],
        on_own(),
        subjects=frozenset({"pve"}),
    )
    site = cluster.site(role)
    site.policy[host_effects.REBOOT_HYPERVISOR] = Consent.ALLOW
    site.parents = {name: (Parent("pve"),) for name in cluster.guests["pve"]}
    return site


def test_a_reboot_that_takes_away_more_than_the_limit_needs_consent() -> None:
    cluster = Cluster(FOUR, servers=("n1",), guests={"pve": ("n2", "n3", "n4")})
    site = on_hypervisor(cluster)
    report = site.apply()
    assert report.exit_code == 5
    assert {str(need.effect) for need in report.consents_missing} == {"exceed pve"}
    assert cluster.history == []
    report = site.apply(Options(allow=frozenset({EXCESS.name})))
    assert report.exit_code == 0, report
    assert cluster.history[:6] == [event.format(name) for name in ("n2", "n3", "n4") for event in ROLLED[:2]]
    assert cluster.history[6:8] == ["down pve", "up pve"]
    assert cluster.away() == set()
    assert site.plan().plan.empty


def test_a_person_may_allow_it_during_the_run() -> None:
    cluster = Cluster(FOUR, servers=("n1",), guests={"pve": ("n2", "n3")})
    site = on_hypervisor(cluster)
    questions: list[str] = []

    def ask(question: str) -> bool:
        questions.append(question)
        return True

    assert site.apply(ask=ask).exit_code == 0
    assert questions == ["pve: allow exceed pve?"]
    assert "down pve" in cluster.history


def test_a_hypervisor_with_one_node_asks_nothing_and_drains_it() -> None:
    cluster = Cluster(FOUR, servers=("n1",), guests={"pve": ("n3",)})
    report = on_hypervisor(cluster).apply()
    assert report.exit_code == 0, report
    assert cluster.history == [
        event.format(name) for event, name in zip(ROLLED, ("n3", "n3", "pve", "pve", "n3"), strict=True)
    ]


def test_when_one_drain_of_several_fails_all_are_undone() -> None:
    cluster = Cluster(FOUR, servers=("n1",), guests={"pve": ("n2", "n3")}, limit=2)
    cluster.api.refuses = frozenset({"pods n3"})
    site = on_hypervisor(cluster)
    assert site.outcomes(site.apply())["pve: grub"] == "blocked"
    assert cluster.away() == set()
    assert "down pve" not in cluster.history


def test_a_reboot_that_would_cost_the_quorum_waits() -> None:
    cluster = Cluster({"n1": True, "n2": True, "n3": False, "n4": True}, servers=("n1", "n2", "n3"), limit=3)
    site = cluster.site(driver_role("n1", "n4"))
    report = site.apply()
    reasons = {str(step.id): step.reason for step in report.steps}
    assert report.exit_code == 5
    assert reasons["n1: driver"] == "waits for n3: what is left would not be enough"
    assert cluster.history == rolled("n4")
    cluster.join("n3")
    assert site.apply().exit_code == 0
    assert cluster.events("n1") == rolled("n1")


def test_three_servers_never_lose_their_quorum_whatever_the_limit() -> None:
    cluster = Cluster(dict.fromkeys(("n1", "n2", "n3"), True), servers=("n1", "n2", "n3"), limit=3)
    report = cluster.site(driver_role()).apply()
    assert report.exit_code == 0, report
    assert cluster.most_away == 1


# ---------------------------------------------------------------- where the cluster does not answer


def test_a_cluster_that_does_not_answer_withholds_the_reboot() -> None:
    cluster = Cluster(FOUR, servers=("n1",))
    cluster.api.down = True
    site = cluster.site(driver_role("n2"))
    report = site.apply()
    reasons = {str(step.id): step.reason for step in report.steps}
    assert report.exit_code == 1
    assert reasons["n2: driver"] == f"drain is not possible: {API} does not answer"
    assert site.hosts["n2/ssh"].reboots == 0


def test_a_cluster_that_is_not_there_yet_holds_nothing_back() -> None:
    cluster = Cluster(dict.fromkeys(("n1", "n2"), None))
    site = cluster.site(driver_role())
    site.specs[API] = SystemSpec(
        API, "api", "cluster", {"n1/ssh": (Value("token"),)}, born_on("n1/ssh", "token")
    )
    report = site.apply()
    assert [site.hosts[f"{name}/ssh"].reboots for name in ("n1", "n2")] == [1, 1]
    assert site.outcomes(report)["n1: driver"] == site.outcomes(report)["n2: driver"] == "changed"


def test_the_checks_begin_only_when_all_nodes_are_back() -> None:
    cluster = Cluster(FOUR, servers=("n1",))
    site = cluster.site(driver_role("n2", "n3"))
    site.entries = (Entry("driver", ("all",)), Entry("uncordon", ("all",)), Entry("verify"))
    away: list[set[str]] = []

    def verify(_cancel: Cancel) -> Verification:
        away.append(cluster.away())
        return Verification(ExitCode.DONE, "all proven")

    site.verify = verify
    assert site.apply().exit_code == 0
    assert away == [set()]


def test_a_node_that_does_not_come_back_fails_the_run_and_stops_the_others() -> None:
    cluster = Cluster(FOUR, servers=("n1",))
    site = cluster.site(driver_role("n2", "n3"))
    site.on_boot = lambda system, is_up: cluster.on_boot(system, is_up and system != "n2/ssh")
    outcomes = site.outcomes(site.apply())
    assert (outcomes["n2: drain:after"], outcomes["n3: driver"]) == ("failed", "waiting")
    assert site.hosts["n3/ssh"].reboots == 0


# ---------------------------------------------------------------- what the plan says


def risks(site: FakeSite) -> set[str]:
    return {str(need.effect) for need in site.plan().plan.risks}


def test_the_plan_names_the_drains_that_it_needs() -> None:
    cluster = Cluster({**FOUR, "n4": False}, servers=("n1",))
    assert risks(cluster.site(driver_role())) == {"reboot-node", "drain n2", "drain n3"}


def test_the_plan_names_what_exceeds_the_limit() -> None:
    cluster = Cluster(FOUR, servers=("n1",), guests={"pve": ("n2", "n3")})
    assert risks(on_hypervisor(cluster)) == {"reboot-hypervisor", "exceed pve", "drain n2", "drain n3"}


def test_a_plan_without_effects_names_no_drain() -> None:
    cluster = Cluster(FOUR, servers=("n1",))
    assert risks(cluster.site(FakeRole("files", own(motd="1"), on_own()))) == set()
