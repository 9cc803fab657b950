"""Guests that the run itself creates, that are off, or that do not answer."""

from __future__ import annotations

import threading
from pathlib import Path

from provision.contracts.role import Parent
from provision.contracts.system import NotThere, SystemSpec
from provision.hosts import host_effects
from tests.unit.engine.fake_hosts import Host, Item, Value
from tests.unit.engine.fakes import (
    FakeRole,
    FakeSite,
    born_on,
    here,
    on_own,
    own,
)


def guests(tmp_path: Path) -> FakeSite:
    """A hypervisor `pve` with an API and a guest `vm`."""
    create = FakeRole(
        "create",
        lambda _: [Item("pve/api", "vm", "there", makes="vm")],
        lambda _: {"pve/api": (Value("vm"),)},
        subjects=frozenset({"vm"}),
    )
    prepare = FakeRole("prepare", own(host="1"), on_own(), subjects=frozenset({"pve"}))
    base = FakeRole("base", own(a="1"), on_own("os"), subjects=frozenset({"vm"}))
    more = FakeRole(
        "more",
        lambda _: [Item("vm/ssh", "k", "1", boots=host_effects.REBOOT_GUEST)],
        on_own("more"),
        subjects=frozenset({"vm"}),
    )
    return FakeSite(
        [prepare, create, base, more],
        subjects=("pve", "vm"),
        hosts={"pve/api": Host(is_api=True)},
        specs={
            "pve/api": SystemSpec("pve/api", "proxmox", "pve", {}, here),
            "vm/ssh": SystemSpec(
                "vm/ssh", "host", "vm", {"pve/api": (Value("vm"),)}, born_on("pve/api", "vm")
            ),
        },
        parents={"vm": (Parent("pve"),)},
        state=tmp_path,
    )


def test_steps_of_a_missing_guest_are_late_and_run_after_its_creation(tmp_path: Path) -> None:
    site = guests(tmp_path)
    planned = site.plan()
    late = {str(step.step.id): step.late for step in planned.plan.steps if step.late}
    assert late == {"vm: base": "after vm: create", "vm: more": "after vm: create"}
    report = site.apply(planned=planned)
    assert set(site.outcomes(report).values()) == {"changed"}
    assert site.hosts["vm/ssh"].reboots == 1, "a guest born in this run may be rebooted"
    assert site.plan().plan.empty
    assert site.apply().trips == {"pve/ssh": 1, "pve/api": 1, "vm/ssh": 1}


def test_a_guest_that_was_there_is_not_rebooted_without_consent(tmp_path: Path) -> None:
    site = guests(tmp_path)
    site.apply()
    del site.hosts["vm/ssh"].values["k"]
    report = site.apply()
    assert report.exit_code == 5
    assert site.hosts["vm/ssh"].reboots == 1


def test_guest_that_the_user_turned_off_is_unreached_with_exit_code_0(tmp_path: Path) -> None:
    site = guests(tmp_path)
    site.apply()
    site.specs["vm/ssh"] = SystemSpec(
        "vm/ssh",
        "host",
        "vm",
        {"pve/api": (Value("vm"),)},
        lambda _: NotThere("vm is off by hand", late=False, excused=True),
    )
    report = site.apply()
    assert site.outcomes(report) == {
        "pve: prepare": "unchanged",
        "vm: create": "unchanged",
        "vm: base": "unreached",
        "vm: more": "unreached",
    }
    assert report.exit_code == 0


def test_a_host_that_does_not_answer_is_unreached_and_its_guests_too(tmp_path: Path) -> None:
    site = guests(tmp_path)
    site.hosts["pve/api"].down = True
    report = site.apply()
    assert site.outcomes(report)["pve: prepare"] == "changed"
    assert site.outcomes(report)["vm: create"] == "unreached"
    assert report.exit_code == 1


def test_a_new_guest_is_asked_ahead_for_its_later_steps(tmp_path: Path) -> None:
    site = guests(tmp_path)
    assert site.apply().trips["vm/ssh"] == 8, "facts, states, 2 x act and read back, one boot, read back"


def test_a_guest_that_takes_long_to_boot_holds_up_no_other(tmp_path: Path) -> None:
    names = ("vm1", "vm2")
    create = FakeRole(
        "create", lambda context: [Item("pve/api", context.subject.name, "here")], lambda _: {"pve/api": ()}
    )
    meet = FakeRole(
        "meet",
        lambda context: [Item("pve/api", f"{context.subject.name} met", "1")],
        lambda subject: {"pve/api": (Value(subject),), f"{subject}/ssh": (Value("os"),)},
        needs=("create",),
    )
    specs = {"pve/api": SystemSpec("pve/api", "proxmox", "pve", {}, here)}
    for name in names:
        born = born_on("pve/api", name)
        specs[f"{name}/ssh"] = SystemSpec(f"{name}/ssh", "host", name, {"pve/api": (Value(name),)}, born)
    site = FakeSite(
        [create, meet], subjects=names, hosts={"pve/api": Host(is_api=True)}, specs=specs, state=tmp_path
    )
    boots = site.blocks["vm1/ssh"] = threading.Event()

    def on_set(_system: str, name: str, _value: str) -> None:
        if name == "vm2 met":
            boots.set()

    site.on_set = on_set
    deadline = threading.Timer(20, boots.set)
    deadline.start()
    report = site.apply()
    assert deadline.is_alive(), "vm2 waited for vm1"
    deadline.cancel()
    assert set(site.outcomes(report).values()) == {"changed"}
