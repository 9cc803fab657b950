"""Systems with several ways, and the lock of a system that is held for long."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from provision.connections.contracts import LocalEndpoint
from provision.contracts.driver import Emit
from provision.contracts.effect import Effect
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import NotThere, SystemSpec, Way
from provision.engine.session import AwayError, Session
from provision.engine.workers import SystemLock
from provision.hosts.host_effects import REBOOT_NODE
from provision.inventory.playbook import Entry
from provision.values.cancel import Cancel, Interrupted
from provision.values.consent import Consent
from provision.values.errors import Transient
from tests.unit.engine.fake_hosts import FakeDriver, Host, Item, Value
from tests.unit.engine.fakes import FakeRole, FakeSite, on_own, own

API = "cluster/api"


def through(server: str) -> Way:
    """The API through a server that runs."""

    def endpoint(snapshots: Mapping[str, Snapshot]) -> LocalEndpoint | NotThere:
        answers = snapshots[f"{server}/ssh"]
        runs = answers[Value("k3s")] == "runs"
        return LocalEndpoint() if runs else NotThere(f"k3s does not run on {server} yet")

    return Way({f"{server}/ssh": (Value("k3s"),)}, endpoint)


class Cluster:
    """Servers, and an API that answers through each that runs."""

    def __init__(self, *roles: FakeRole, state: Path | None = None, servers: int = 3) -> None:
        self.servers = tuple(f"s{number}" for number in range(1, servers + 1))
        first, *others = (through(server) for server in self.servers)
        spec = SystemSpec(API, "kube", "cluster", first.questions, first.endpoint, alternatives=tuple(others))
        self.site = FakeSite(
            list(roles),
            subjects=(*self.servers, "cluster"),
            specs={API: spec},
            hosts={API: Host(is_api=True)},
            state=state,
        )
        del self.site.specs["cluster/ssh"]
        for server in self.servers:
            self.host(server).values["k3s"] = "runs"
        self.opened: list[int] = []
        self.dead: set[int] = set()
        self.session = Session(self.site.specs, self.open)

    def host(self, server: str) -> Host:
        return self.site.hosts[f"{server}/ssh"]

    def open(self, spec: SystemSpec, _endpoint: object) -> FakeDriver:
        driver = FakeDriver(spec.name, self.site.hosts[spec.name], self.site)
        if spec.name == API:
            way = self.session.systems[API].way
            self.opened.append(way)
            if way in self.dead:
                driver.host = Host(is_api=True, down=True)
        return driver

    def ask(self, name: str = "x", *, fresh: bool = True) -> object:
        return self.session.ask(API, [Value(name)], Cancel(), fresh=fresh)[Value(name)]

    @property
    def way(self) -> int:
        return self.session.systems[API].way


def test_the_first_way_that_leads_somewhere_is_taken() -> None:
    cluster = Cluster()
    cluster.host("s1").values["k3s"] = "broken"
    cluster.site.hosts[API].values["x"] = "1"
    assert cluster.ask() == "1"
    assert cluster.opened == [1]


def test_a_server_that_does_not_answer_closes_its_way_only() -> None:
    cluster = Cluster()
    cluster.host("s1").down = True
    cluster.ask()
    assert cluster.opened == [1]


def test_a_way_that_fails_is_left_for_the_next_one_with_all_answers_kept() -> None:
    cluster = Cluster()
    cluster.site.hosts[API].values.update(x="1", y="2")
    assert cluster.ask("x") == "1"
    assert cluster.opened == [0]
    driver = cluster.session.systems[API].driver
    assert isinstance(driver, FakeDriver)
    driver.host = Host(is_api=True, down=True)
    assert cluster.ask("y") == "2"
    assert cluster.opened == [0, 1]
    assert cluster.session.snapshots()[API][Value("x")] == "1"


def test_when_every_way_fails_the_first_failure_is_told() -> None:
    cluster = Cluster()
    cluster.dead = {0, 1, 2}
    with pytest.raises(Transient, match="HOST_UNREACHABLE"):
        cluster.ask()
    assert cluster.opened == [0, 1, 2]


def test_a_failing_way_says_more_than_others_that_lead_nowhere_yet() -> None:
    cluster = Cluster(servers=2)
    cluster.dead = {0}
    cluster.host("s2").values["k3s"] = "not yet"
    with pytest.raises(Transient, match="HOST_UNREACHABLE"):
        cluster.ask()


def test_what_comes_later_in_the_run_explains_why_no_way_leads_there() -> None:
    cluster = Cluster(servers=2)
    cluster.host("s1").down = True
    cluster.host("s2").values["k3s"] = "not yet"
    with pytest.raises(AwayError) as caught:
        cluster.ask()
    assert caught.value.away == NotThere("k3s does not run on s2 yet")


def test_only_the_way_in_use_goes_down_with_its_server() -> None:
    cluster = Cluster()
    cluster.ask()
    assert API in cluster.session.behind("s1")
    assert API not in cluster.session.behind("s1", movable=False)
    assert API not in cluster.session.behind("s2")
    cluster.session.void("s2", Cancel())
    assert API in cluster.session.snapshots()
    cluster.session.void("s1", Cancel())
    assert API not in cluster.session.snapshots()


def test_a_system_with_one_way_goes_down_with_it() -> None:
    cluster = Cluster(servers=1)
    cluster.ask()
    assert API in cluster.session.behind("s1", movable=False)


def test_while_a_server_reboots_the_others_are_tried_first() -> None:
    cluster = Cluster()
    cluster.ask()
    cluster.session.move_away("s1", Cancel())
    assert API not in cluster.session.behind("s1")
    assert API in cluster.session.snapshots()
    cluster.ask()
    assert cluster.opened == [0, 1]
    cluster.session.void("s1", Cancel())
    cluster.session.reset(API, Cancel())
    cluster.ask()
    assert cluster.opened == [0, 1, 0]


def test_an_act_that_nothing_heard_goes_through_the_next_way() -> None:
    cluster = Cluster()
    cluster.ask()
    calls: list[int] = []

    def act(_driver: object) -> str:
        calls.append(cluster.way)
        if cluster.way == 0:
            raise cluster_down()
        return "done"

    assert cluster.session.call(API, act, Cancel()) == "done"
    assert calls == [0, 1]


def cluster_down() -> Transient:
    host = Host(down=True)
    try:
        FakeDriver("x", host, FakeSite([])).answer(frozenset(), Cancel())
    except Transient as error:
        return error
    raise AssertionError("the host answered")


def test_a_run_reboots_one_server_while_the_api_is_used_through_another(tmp_path: Path) -> None:
    """The API was opened through s1; a step acts on it while s1 reboots."""
    held_during_reboot: list[str | None] = []
    rebooting, acted = threading.Event(), threading.Event()

    def kernel(_context: object) -> list[Item]:
        return [Item("s1/ssh", "kernel", "new", boots=REBOOT_NODE)]

    def wants(_context: object) -> list[Item]:
        return [Item(API, "object", "1")]

    def on_set(system: str, _name: str, _value: str) -> None:
        if system == "s2/ssh":
            assert rebooting.wait(5)
        if system == API:
            acted.set()

    cluster = Cluster(
        FakeRole("kernel", kernel, on_own(), subjects=frozenset({"s1"})),
        FakeRole("slow", own(a="1"), on_own(), subjects=frozenset({"s2"})),
        FakeRole("object", wants, lambda _: {API: ()}, subjects=frozenset({"cluster"})),
        state=tmp_path,
    )
    site = cluster.site
    site.entries = (
        Entry("kernel", ("s1",)),
        Entry("slow", ("s2",)),
        Entry("object", ("cluster",), after=("slow",)),
    )
    site.policy[REBOOT_NODE] = Consent.ALLOW
    site.on_set = on_set
    reboot = FakeDriver.reboot

    def slow_reboot(driver: FakeDriver, effect: Effect, emit: Emit, cancel: Cancel) -> str:
        rebooting.set()
        acted.wait(5)
        held_during_reboot.append(site.hosts[API].values.get("object"))
        return reboot(driver, effect, emit, cancel)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeDriver, "reboot", slow_reboot)
        report = site.apply()
    assert report.exit_code == 0, report
    assert held_during_reboot == ["1"]
    assert site.hosts["s1/ssh"].reboots == 1


# ---------------------------------------------------------------- the lock of a system


def test_who_waits_for_a_lock_leaves_when_the_run_leaves() -> None:
    lock, cancel = SystemLock(), Cancel()
    held, done = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def hold() -> None:
        with lock.held(Cancel()):
            held.set()
            done.wait(5)

    def wait() -> None:
        try:
            with lock.held(cancel):
                raise AssertionError("the lock was free")
        except Interrupted as error:
            raised.append(error)

    threading.Thread(target=hold, daemon=True).start()
    assert held.wait(5)
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    cancel.drain()
    cancel.leave()
    waiting.join(5)
    done.set()
    assert raised


def test_a_lock_is_reentrant_and_free_afterwards() -> None:
    lock = SystemLock()
    with lock.held(Cancel()), lock.held(Cancel()):
        pass
    taken: list[bool] = []
    thread = threading.Thread(target=lambda: taken.append(lock._lock.acquire(blocking=False)))
    thread.start()
    thread.join(5)
    assert taken == [True]


def test_a_system_is_asked_no_more_once_the_run_leaves_while_it_reboots() -> None:
    """The thread that asks a rebooting host ends with the run and not with the reboot."""
    site = FakeSite([FakeRole("r", own(a="1"), on_own())])
    session = Session(site.specs, lambda spec, _: FakeDriver(spec.name, site.hosts[spec.name], site))
    cancel, ended = Cancel(), threading.Event()
    rebooted, holding = threading.Event(), threading.Event()

    def reboot() -> None:
        with session.systems["n1/ssh"].lock.held(Cancel()):
            holding.set()
            rebooted.wait(5)

    def ask() -> None:
        with pytest.raises(Interrupted):
            session.ask("n1/ssh", [Value("a")], cancel)
        ended.set()

    threading.Thread(target=reboot, daemon=True).start()
    assert holding.wait(5)
    threading.Thread(target=ask, daemon=True).start()
    cancel.drain()
    cancel.leave()
    assert ended.wait(5)
    rebooted.set()


def test_cached_answers_locate_a_guest_while_its_host_is_busy() -> None:
    """Opening a system waits for no lock of another whose answers are known."""
    cluster = Cluster(servers=1)
    cluster.session.ask("s1/ssh", [Value("k3s")], Cancel())
    holding, done, answered = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        with cluster.session.systems["s1/ssh"].lock.held(Cancel()):
            holding.set()
            done.wait(5)

    def ask() -> None:
        cluster.ask()
        answered.set()

    threading.Thread(target=hold, daemon=True).start()
    assert holding.wait(5)
    threading.Thread(target=ask, daemon=True).start()
    assert answered.wait(5)
    done.set()
