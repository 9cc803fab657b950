"""The controller dies at every boundary of a driver; the next run finishes what it began."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest

from provision.contracts.role import Context, Need, Parent
from provision.contracts.system import SystemSpec
from provision.hosts import host_effects
from provision.values.consent import Consent
from tests.unit.engine.fake_hosts import Host, Item, KilledError, Value
from tests.unit.engine.fakes import FakeRole, FakeSite, born_on, here, on_own
from tests.unit.engine.test_retire import GONE, MODES, Cluster

REBOOT = host_effects.REBOOT_NODE


def one_host(state: Path) -> FakeSite:
    """Files with restarts, a reboot in between that a step waits for, and one at the end."""

    def on_n1(*items: Item) -> Callable[[object], list[Item]]:
        return lambda _: list(items)

    roles = [
        FakeRole(
            "base",
            on_n1(Item("n1/ssh", "a", "1", restarts="a.service"), Item("n1/ssh", "b", "2")),
            on_own("os"),
        ),
        FakeRole("driver", on_n1(Item("n1/ssh", "driver", "1", boots=REBOOT)), on_own()),
        FakeRole(
            "mapping",
            on_n1(Item("n1/ssh", "map", "1", restarts="m.service")),
            on_own("running driver"),
            needs_new_boot=True,
        ),
        FakeRole("late", on_n1(Item("n1/ssh", "k", "1", boots=REBOOT)), on_own()),
    ]
    return FakeSite(roles, policy={REBOOT: Consent.ALLOW}, state=state)


def hypervisor_and_guest(state: Path) -> FakeSite:
    """A hypervisor that reboots before its guest is made, and a guest that reboots, too."""
    roles = [
        FakeRole(
            "prepare",
            lambda _: [Item("pve/ssh", "grub", "x", boots=host_effects.REBOOT_HYPERVISOR)],
            on_own("cards"),
            subjects=frozenset({"pve"}),
        ),
        FakeRole(
            "mapping",
            lambda _: [Item("pve/api", "map", "1")],
            lambda _: {"pve/ssh": (Value("running grub"),), "pve/api": (Value("map"),)},
            needs_new_boot=True,
            subjects=frozenset({"pve"}),
        ),
        FakeRole(
            "create",
            lambda _: [
                Item("pve/api", "vm", "there", makes="vm"),
                Item("router", "vm-lease", "1", restarts="dnsmasq"),
            ],
            lambda _: {"pve/api": (Value("vm"),), "router": ()},
            subjects=frozenset({"vm"}),
        ),
        FakeRole(
            "base",
            lambda _: [Item("vm/ssh", "k", "1", boots=host_effects.REBOOT_GUEST)],
            on_own("os"),
            subjects=frozenset({"vm"}),
        ),
    ]
    return FakeSite(
        roles,
        subjects=("pve", "vm"),
        hosts={"pve/api": Host(is_api=True), "router": Host()},
        specs={
            "pve/api": SystemSpec("pve/api", "proxmox", "pve", {}, here),
            "router": SystemSpec("router", "host", "router", {}, here),
            "vm/ssh": SystemSpec(
                "vm/ssh", "host", "vm", {"pve/api": (Value("vm"),)}, born_on("pve/api", "vm")
            ),
        },
        parents={"vm": (Parent("pve"),)},
        policy={host_effects.REBOOT_HYPERVISOR: Consent.ALLOW, host_effects.REBOOT_GUEST: Consent.ALLOW},
        state=state,
    )


def server_and_agents(state: Path) -> FakeSite:
    """A server whose restart makes a token, and two agents that join with it and get a label."""
    subjects = ("server", "agent-1", "agent-2")

    def join(context: Context) -> list[Item]:
        token = context.require("server/ssh", Value("token"))
        name = context.subject.name
        return [
            Item(f"{name}/ssh", "joined", str(token), restarts="agent.service"),
            Item("server/api", f"label {name}", "1"),
        ]

    def install(_: Context) -> list[Item]:
        return [Item("server/ssh", "service", "up", restarts="server", alters=(("server/ssh", "token"),))]

    def agents(subject: str) -> dict[str, tuple[Value, ...]]:
        return {"server/ssh": (Value("token"),), f"{subject}/ssh": (Value("os"),)}

    needs = (Need("install", scope="site"),)
    site = FakeSite(
        [
            FakeRole("install", install, on_own("os"), subjects=frozenset({"server"})),
            FakeRole("join", join, agents, needs=needs, subjects=frozenset(subjects[1:])),
        ],
        subjects=subjects,
        hosts={"server/api": Host(is_api=True)},
        specs={"server/api": SystemSpec("server/api", "api", "server", {}, here)},
        state=state,
    )

    def on_effect(_system: str, effect: str) -> None:
        if effect == "restart server":
            site.hosts["server/ssh"].values["token"] = "secret"

    site.on_effect = on_effect
    return site


@pytest.mark.parametrize("make", [one_host, hypervisor_and_guest, server_and_agents])
def test_a_run_that_is_killed_anywhere_is_finished_by_the_next(
    make: Callable[[Path], FakeSite], tmp_path: Path
) -> None:
    whole = make(tmp_path / "whole")
    assert whole.apply().exit_code == 0
    assert whole.plan().plan.empty
    assert whole.boundaries > 8
    for boundary in range(1, whole.boundaries + 1):
        site = make(tmp_path / str(boundary))
        site.kill_at = boundary
        with pytest.raises(KilledError):
            site.apply()
        halfway = copy.deepcopy(site.dump())
        assert site.apply().exit_code == 0, f"killed at boundary {boundary}, left {halfway}"
        assert site.plan().plan.empty, f"killed at boundary {boundary}, left {halfway}"
        assert site.dump() == whole.dump(), f"killed at boundary {boundary}, left {halfway}"
        for effect in whole.hosts.values():
            assert not effect.pending


def test_every_restart_of_the_uninterrupted_run_happens_after_a_kill_too(tmp_path: Path) -> None:
    whole = one_host(tmp_path / "whole")
    whole.apply()
    for boundary in range(1, whole.boundaries + 1):
        site = one_host(tmp_path / str(boundary))
        site.kill_at = boundary
        with pytest.raises(KilledError):
            site.apply()
        site.apply()
        booted = site.hosts["n1/ssh"].reboots
        restarted = set(site.hosts["n1/ssh"].restarted)
        assert restarted == set(whole.hosts["n1/ssh"].restarted) or booted, f"killed at boundary {boundary}"


@pytest.mark.parametrize("target", MODES)
def test_a_switch_that_is_killed_anywhere_never_has_both(tmp_path: Path, target: str) -> None:
    for kill_at in range(1, 12):
        cluster = Cluster(tmp_path / str(kill_at), target)
        other = next(mode for mode in MODES if mode != target)
        cluster.host.values = {other: "on", target: GONE}
        try:
            cluster.site(kill_at=kill_at).apply()
        except KilledError:
            assert cluster.site(runs=1).apply().exit_code == 0
        assert cluster.host.values == {target: "on", other: GONE}
        assert cluster.both == []
