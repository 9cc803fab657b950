"""Single functions of a card are passed, and the host keeps the others: a processor with graphics."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.hosts.resources.pci import PciFunction
from provision.testing.model_host import ModelFunction
from tests.unit.proxmox.roles.world import INVENTORY, World

IGPU = (
    ("0000:02:00.0", "1002", "164e", "030000", "amdgpu", "25"),
    ("0000:02:00.1", "1002", "1640", "040300", "snd_hda_intel", "26"),
    ("0000:02:00.2", "1022", "1649", "108000", "ccp", "27"),
    ("0000:02:00.3", "1022", "15b6", "0c0330", "xhci_hcd", "28"),
)
FUNCTIONS = 'id: "1002:164e", functions: [0, 1], drives_console: true'


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A host whose card at 02:00 is part of the processor; its drivers are bound."""
    world = World(tmp_path)
    world.host.functions = [
        ModelFunction(PciFunction(address, vendor, device, cls, group=group), (driver,), driver)
        for address, vendor, device, cls, driver, group in IGPU
    ]
    world.host.modules |= {driver for *_, driver, _ in IGPU}
    return world


def text(card: str) -> str:
    return INVENTORY.replace('id: "10de:2204", drives_console: true', card)


WHOLE = text('id: "1002:164e", drives_console: true')
ALLOWED = WHOLE.replace("console-loss,", "console-loss, device-loss,")


def risks(world: World) -> set[str]:
    return {
        f"{risk.cls} {risk.target}"
        for step in world.plan().steps
        for change in step.changes
        for risk in change.risks
    }


def test_functions_of_their_own_have_mappings_and_entries_of_their_own(world: World) -> None:
    world.write(text(FUNCTIONS))
    assert not {risk for risk in risks(world) if risk.startswith("device-loss")}
    assert world.apply().exit_code == 0
    paths = {name: entries[0].split(",")[1:3] for name, entries in world.pve.mappings.items()}
    assert paths == {
        "provision-site-one_f0": ["path=0000:02:00.0", "id=1002:164e"],
        "provision-site-one_f1": ["path=0000:02:00.1", "id=1002:1640"],
    }
    config = world.pve.vms[102].config
    assert (config["hostpci0"], config["hostpci1"]) == (
        "mapping=provision-site-one_f0,pcie=1",
        "mapping=provision-site-one_f1,pcie=1",
    )
    assert world.plan().empty


def test_the_whole_slot_asks_for_what_goes_along_with_its_driver(world: World) -> None:
    world.write(WHOLE)
    assert {risk for risk in risks(world) if risk.startswith("device-loss")} == {
        "device-loss 0000:02:00.2 [1022:1649] ccp",
        "device-loss 0000:02:00.3 [1022:15b6] xhci_hcd",
    }
    report = world.apply()
    assert report.exit_code == 5
    assert not world.pve.vms[102].running, "it is created, and not started without consent"
    world.write(ALLOWED)
    assert world.apply().exit_code == 0
    assert world.pve.vms[102].running


def test_back_from_single_functions_to_the_card_replaces_their_entries(world: World) -> None:
    world.write(text(FUNCTIONS))
    assert world.apply().exit_code == 0
    world.write(ALLOWED)
    assert world.apply(prune=True).exit_code == 0
    config = world.pve.vms[102].config
    assert {key: value for key, value in config.items() if key.startswith("hostpci")} == {
        "hostpci0": "mapping=provision-site-one,pcie=1"
    }
    assert list(world.pve.mappings) == ["provision-site-one"]
