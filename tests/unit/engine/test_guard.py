"""The lock of a hypervisor's API: kept by its host, taken when a step acts, held until no step needs it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from provision.contracts.system import SystemSpec
from provision.engine.session import Session
from provision.values.cancel import Cancel
from tests.unit.engine.fake_hosts import (
    FakeDriver,
    Host,
    Item,
    KilledError,
    Value,
)
from tests.unit.engine.fakes import FakeRole, FakeSite, here, on_own, own


def guarded(tmp_path: Path, **values: str) -> FakeSite:
    """Return a hypervisor with an API whose steps want some values."""
    roles = [
        FakeRole(
            f"r{name}",
            lambda _, name=name, want=want: [Item("pve/api", name, want)],  # type: ignore[misc]  # defaults bind the loop
            lambda _, name=name: {"pve/api": (Value(name),), "pve/ssh": ()},  # type: ignore[misc]  # defaults bind the loop
        )
        for name, want in values.items()
    ]
    site = FakeSite(roles, ("pve",), hosts={"pve/api": Host(is_api=True)}, state=tmp_path)
    site.specs["pve/api"] = SystemSpec("pve/api", "proxmox", "pve", {}, here, guard="pve/ssh")
    return site


def test_the_lock_is_held_while_steps_act_and_taken_once(tmp_path: Path) -> None:
    site = guarded(tmp_path, a="1", b="2")
    host = site.hosts["pve/ssh"]
    held: list[dict[str, str]] = []
    site.on_set = lambda *_: held.append(dict(host.locks))
    report = site.apply()
    assert report.exit_code == 0
    assert held == [{"pve/api": "run-1"}] * 2
    assert report.trips["pve/ssh"] == 2  # the plan, and one lock for both steps
    assert host.locks == {}


def test_the_lock_is_free_while_later_steps_wait_for_other_systems(tmp_path: Path) -> None:
    site = guarded(tmp_path, a="1", b="2")
    needs = ("ra", "rb")
    site.roles.append(FakeRole("later", own(c="3"), on_own(), needs, subjects=frozenset({"pve"})))
    held: dict[str, dict[str, str]] = {}
    site.on_set = lambda _system, name, _value: held.update({name: dict(site.hosts["pve/ssh"].locks)})
    assert site.apply().exit_code == 0
    assert held == {"a": {"pve/api": "run-1"}, "b": {"pve/api": "run-1"}, "c": {}}


def test_a_lock_is_not_freed_under_who_acts(tmp_path: Path) -> None:
    site = guarded(tmp_path, a="1")
    session = Session(site.specs, lambda spec, _: FakeDriver(spec.name, site.hosts[spec.name], site))
    assert session.guard("pve/api", "run-1", Cancel())
    with session.systems["pve/api"].lock.held(Cancel()):
        other = threading.Thread(target=session.release_unused, args=("pve/api",))
        other.start()
        other.join()
    assert site.hosts["pve/ssh"].locks == {"pve/api": "run-1"}
    session.release_unused("pve/api")
    assert site.hosts["pve/ssh"].locks == {}
    assert session.guard("pve/api", "run-1", Cancel()), "who acts once more takes it again"


def test_a_run_that_changes_nothing_takes_no_lock(tmp_path: Path) -> None:
    site = guarded(tmp_path, a="1")
    site.apply()
    site.hosts["pve/ssh"].locks["pve/api"] = "of someone else"
    report = site.apply()
    assert report.exit_code == 0
    assert report.trips == {"pve/ssh": 1, "pve/api": 1}


def test_a_second_controller_is_kept_out_and_told_by_whom(tmp_path: Path) -> None:
    site = guarded(tmp_path, a="1")
    site.hosts["pve/ssh"].locks["pve/api"] = "run-0"
    report = site.apply()
    assert report.exit_code == 6
    assert report.steps[0].reason == "pve/api is locked by run run-0"
    assert site.hosts["pve/api"].acts == 0


def test_what_another_run_did_before_the_lock_was_ours_is_seen(tmp_path: Path) -> None:
    site = guarded(tmp_path, a="1")
    planned = site.plan()
    site.hosts["pve/api"].values["a"] = "1"
    report = site.apply(planned=planned)
    assert (report.exit_code, site.hosts["pve/api"].acts) == (0, 0)


@pytest.mark.parametrize(("idle", "is_void"), [(0.0, True), (3600.0, False)])
def test_a_lock_that_others_held_voids_every_answer_of_its_system(
    tmp_path: Path, idle: float, is_void: bool
) -> None:
    site = guarded(tmp_path, a="1")
    site.hosts["pve/ssh"].idle = idle
    session = Session(site.specs, lambda spec, _: FakeDriver(spec.name, site.hosts[spec.name], site))
    for system in ("pve/ssh", "pve/api"):
        session.ask(system, [Value("a"), Value("b")], Cancel())
    assert session.guard("pve/api", "run-2", Cancel())
    assert (session.snapshot("pve/api") is None) is is_void
    assert session.snapshot("pve/ssh") is not None
    assert not session.guard("pve/api", "run-2", Cancel())  # it is held already


def test_a_run_that_dies_frees_the_lock(tmp_path: Path) -> None:
    site = guarded(tmp_path, a="1")
    site.plan()
    site.kill_at = 2
    with pytest.raises(KilledError):
        site.apply()
    assert site.hosts["pve/ssh"].locks == {}
