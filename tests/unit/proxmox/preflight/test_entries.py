"""Entries of a VM that a token cannot change, or that Proxmox VE would refuse at the start."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest

from provision.values.diagnostics import Severity
from tests.unit.proxmox.preflight.test_rules import found
from tests.unit.proxmox.roles.world import World


@pytest.fixture(scope="module")
def applied(folders: Iterator[Path]) -> World:
    """A site that was applied, with the card passed to vm-gpu."""
    world = World(next(folders))
    assert world.apply().exit_code == 0
    world.pve.vms[102].config.pop("hostpci0")
    return world


@pytest.fixture
def world(applied: World) -> Iterator[World]:
    """The same site again, whatever a test makes of its Proxmox VE: to apply takes 60 ms."""
    vm, pve = applied.pve.vms[102], applied.pve
    before = copy.deepcopy((vm.config, vm.pending, pve.mappings, pve.problems))
    yield applied
    vm.config, vm.pending, pve.mappings, pve.problems = before


def codes(world: World) -> set[str]:
    return {problem.code for problem in found(world) if problem.severity is Severity.ERROR}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000:02:00,pcie=1", set()),  # passes the card as it is declared
        ("host=02:00.0;02:00.1,pcie=1", set()),
        ("0000:02:00", {"PVE_AUTH_TOKEN_RAW_PCI"}),  # not PCI Express
        ("0000:02:00.0,pcie=1", {"PVE_AUTH_TOKEN_RAW_PCI"}),  # a part of the card
        ("host=0000:02:00,pcie=1,mdev=nvidia-222", {"PVE_AUTH_TOKEN_RAW_PCI"}),
        ("0000:03:00,pcie=1", set()),  # another card: not ours to change
        ("mapping=provision-site-one", set()),
        ("mapping=gaming", set()),
    ],
)
def test_an_entry_that_root_made_is_refused_where_it_has_to_change(
    world: World, value: str, expected: set[str]
) -> None:
    world.pve.mappings["gaming"] = ["node=pve,path=0000:02:00,id=10de:2204"]
    world.pve.vms[102].config["hostpci0"] = value
    assert codes(world) == expected


def test_the_pending_removal_of_a_mapped_card_is_taken_back(world: World) -> None:
    world.pve.vms[102].pending["hostpci0"] = None
    assert codes(world) == set()
    assert world.apply().exit_code == 0
    assert world.plan().empty


@pytest.mark.parametrize(
    ("problems", "expected"),
    [([], set()), (["'id' does not match for '0000:02:00' (10de:2204 != 10de:2684)"], {"MAPPING_INVALID"})],
)
def test_a_mapping_of_somebody_else_that_no_longer_fits_is_refused(
    world: World, problems: list[str], expected: set[str]
) -> None:
    world.pve.mappings["gaming"] = ["node=pve,path=0000:02:00,id=10de:2204"]
    world.pve.problems["gaming"] = problems
    world.pve.vms[102].config["hostpci0"] = "mapping=gaming,pcie=1"
    assert codes(world) == expected


def test_a_mapping_of_somebody_else_that_is_gone_is_refused(world: World) -> None:
    world.pve.vms[102].config["hostpci0"] = "mapping=provision-site-one,pcie=1"
    world.pve.vms[102].config["hostpci1"] = "mapping=gone,pcie=1"
    assert codes(world) == {"MAPPING_MISSING"}
    rights = world.pve.rights
    world.pve.rights = {"/vms": rights["/"]}
    assert "MAPPING_MISSING" not in codes(world), "what the token may not see is not missing"
    world.pve.rights = rights
    world.pve.mappings["gone"] = ["node=pve,path=0000:03:00,id=10de:2204"]
    assert codes(world) == set()
