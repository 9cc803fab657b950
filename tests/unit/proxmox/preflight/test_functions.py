"""Single functions of a card: what shares their IOMMU group goes with them, so it must be passed, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.hosts.resources.pci import PciFunction
from provision.testing.model_host import ModelFunction
from provision.values.diagnostics import Severity
from tests.unit.proxmox.preflight.test_rules import found
from tests.unit.proxmox.roles.world import INVENTORY, World

ALONE = {"0": "25", "1": "26", "2": "27", "3": "28"}
"""IOMMU group by function: each has its own, as on recent processors with graphics."""


def world(folder: Path, groups: dict[str, str]) -> World:
    """Return a host with a card of four functions."""
    world = World(folder)
    classes = {"0": "030000", "1": "040300", "2": "108000", "3": "0c0330"}
    world.host.functions = [
        ModelFunction(PciFunction(f"0000:02:00.{number}", "1002", "164e", classes[number], group=group))
        for number, group in groups.items()
    ]
    return world


@pytest.mark.parametrize(
    ("functions", "groups", "codes"),
    [
        ("[0, 1]", ALONE, set()),
        ("[0]", ALONE, set()),
        ("[1, 0, 1]", ALONE, set()),
        ("[0, 1, 2, 3]", dict.fromkeys(ALONE, "25"), set()),
        ("[]", dict.fromkeys(ALONE, "25"), set()),  # all of them
        ("[0, 1]", dict.fromkeys(ALONE, "25"), {"IOMMU_GROUP_SHARED"}),
        ("[0, 1]", {**ALONE, "3": "26"}, {"IOMMU_GROUP_SHARED"}),
        ("[3]", {**ALONE, "3": "27"}, {"IOMMU_GROUP_SHARED"}),
        ("[0, 7]", ALONE, {"GPU_ADDRESS_MOVED"}),
        ("[7]", ALONE, {"GPU_ADDRESS_MOVED"}),  # there is no such function
        ("[0, 1]", {**ALONE, "1": "25"}, set()),  # a group of exactly these two
        ("[0, 1, 2]", {**ALONE, "1": "25", "3": "25"}, {"IOMMU_GROUP_SHARED"}),
    ],
)
def test_functions_are_passed_alone_where_their_groups_are_their_own(
    tmp_path: Path, functions: str, groups: dict[str, str], codes: set[str]
) -> None:
    text = INVENTORY.replace('id: "10de:2204"', f'id: "1002:164e", functions: {functions}')
    problems = found(world(tmp_path, groups), text)
    assert {problem.code for problem in problems if problem.severity is Severity.ERROR} == codes
