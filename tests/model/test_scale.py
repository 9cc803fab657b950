"""What a plan costs grows with the site and not with its square: function calls and parses are counted."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from benchmarks import plan_nodes, plan_vms
from provision.api import Options, load
from provision.dhcp.backends import dnsmasq
from provision.proxmox import names
from provision.values.cancel import Cancel
from tests.unit.proxmox.roles.world import World

SMALL, LARGE = 15, 60


def calls_of(work: Callable[[], object]) -> int:
    """Return how many Python functions are called, in all threads."""
    counts: dict[int, int] = {}

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            thread = threading.get_ident()
            counts[thread] = counts.get(thread, 0) + 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return sum(counts.values())


def with_vms(folder: Path, vms: int) -> World:
    world = World(folder)
    world.write(plan_vms.inventory(vms))
    assert world.apply().exit_code == 0
    assert world.plan().empty
    return world


def test_a_plan_of_vms_on_one_hypervisor_grows_with_their_number(tmp_path: Path) -> None:
    small = calls_of(with_vms(tmp_path / "small", SMALL).plan)
    large = calls_of(with_vms(tmp_path / "large", LARGE).plan)
    assert large <= small * LARGE / SMALL


def test_a_plan_of_nodes_grows_with_their_number(tmp_path: Path) -> None:
    def calls(nodes: int) -> int:
        folder = tmp_path / str(nodes)
        folder.mkdir()
        (folder / "fleet.yaml").write_text(plan_nodes.inventory(nodes))
        fleet = plan_nodes.Fleet(alike=True)

        def plan() -> None:
            site = load(folder / "fleet.yaml", playbook="hosts", state=folder, open_driver=fleet.open)
            site.plan(Options(), lambda _: None, Cancel())
            site.close()

        plan()
        return calls_of(plan)

    assert calls(LARGE) <= calls(SMALL) * LARGE / SMALL


def test_the_router_s_answers_are_parsed_once_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_vms(tmp_path, 5)
    parsed: list[str] = []
    for name in ("parse_reservations", "parse_leases"):
        parse = getattr(dnsmasq, name)

        def counted(text: str, name: str = name, parse: Callable[[str], object] = parse) -> object:
            parsed.append(name)
            return parse(text)

        monkeypatch.setattr(dnsmasq, name, counted)
    world.plan()
    assert sorted(parsed) == ["parse_leases", "parse_reservations"]


def test_the_vms_of_a_hypervisor_are_found_by_an_index(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(plan_vms.inventory(5))
    inventory = world.site().inventory
    vms = names.nodes_of(inventory, "pve")
    assert [node.name for node in vms] == [f"vm-{number}" for number in range(5)]
    assert names.nodes_of(inventory, "pve") is vms
    assert names.nodes_of(inventory.model_copy(update={"nodes": {}}), "pve") == ()


def test_a_first_plan_of_vms_grows_with_their_number(tmp_path: Path) -> None:
    def calls(name: str, vms: int) -> int:
        world = World(tmp_path / name)
        world.write(plan_vms.inventory(vms))
        return calls_of(world.plan)

    calls("imports", 1)
    assert calls("large", LARGE) <= calls("small", SMALL) * LARGE / SMALL
