"""A network card is passed to a VM by its own mapping, and never one that the host needs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from provision.api.domains import load_inventory
from provision.hosts.resources.pci import PciFunction
from provision.proxmox.checks.test_hypervisor import test_cards_of_running_vms_are_with_vfio as is_with_vfio
from provision.proxmox.nic_facts import HOST_NICS
from provision.proxmox.reboot_facts import REBOOT_FACTS
from provision.testing.model_host import ModelFile, ModelFunction
from provision.values.errors import Refused, UsageError
from tests.unit.proxmox.roles.world import INVENTORY, World
from tests.unit.proxmox.test_host_drivers import planned

PORTS = [
    PciFunction(
        f"0000:81:00.{number}", "15b3", "101d", "020000", "mlx5_core", str(40 + number), module="mlx5_core"
    )
    for number in (0, 1, 2)
]
NICS = """\
nic ens1f0np0 /sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0
nic ens1f1np1 /sys/devices/pci0000:80/0000:80:01.0/0000:81:00.1
nic ens1f1v0 /sys/devices/pci0000:80/0000:80:01.0/0000:81:00.2
virtual 0000:81:00.2 0000:81:00.1
upper ens1f0np0 vmbr0
address vmbr0 inet 10.0.0.5/24 scope global vmbr0
default vmbr0
controller vmbr0
end
"""


def text(cards: str, pci: str = "[rail]") -> str:
    return (
        INVENTORY.replace("    cards:\n", f"    cards:\n{cards}")
        .replace("vmid: 101,", f"vmid: 101, pci: {pci},")
        .replace("console-loss,", "console-loss, device-loss,")
    )


VF = '      rail: { address: "0000:81:00", functions: [2], id: "15b3:101d", rom: false }\n'
UPLINK = VF.replace("[2]", "[0]")
PF = VF.replace("[2]", "[1]")


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.host.functions += [ModelFunction(port, ("mlx5_core",), "mlx5_core") for port in PORTS]
    world.host.modules.add("mlx5_core")
    network(world, NICS)
    return world


def network(world: World, nics: str, interfaces: str = "") -> None:
    world.host.nics = nics
    world.host.files["/etc/network/interfaces"] = ModelFile(interfaces.encode())


def refusals(world: World) -> dict[str, tuple[str, ...]]:
    return {problem.code: problem.evidence for problem in world.plan().refusals}


def test_a_virtual_function_is_passed_by_its_own_mapping_without_its_rom(world: World) -> None:
    world.write(text(VF))
    assert world.apply().exit_code == 0
    config = world.pve.vms[101].config
    assert config["hostpci0"] == "mapping=provision-site-rail_f2,pcie=1,rombar=0"
    assert (config["machine"], config["balloon"]) == ("q35", "0")
    assert "bios" not in config, "a network card needs no OVMF"
    assert world.pve.mappings["provision-site-rail_f2"] == [
        "node=pve,path=0000:81:00.2,id=15b3:101d,iommugroup=42"
    ]
    assert world.plan().empty


def test_the_rom_is_changed_in_place_and_another_spelling_is_no_change(world: World) -> None:
    world.write(text(VF))
    assert world.apply().exit_code == 0
    world.write(text(VF.replace("rom: false", "rom: true")))
    assert world.apply().exit_code == 0
    assert world.pve.vms[101].config["hostpci0"] == "mapping=provision-site-rail_f2,pcie=1,rombar=1"
    world.pve.vms[101].config["hostpci0"] = "pcie=1,mapping=provision-site-rail_f2"
    assert world.plan().empty


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        (
            UPLINK,
            (
                "ens1f0np0 is a part of vmbr0",
                "vmbr0 has 10.0.0.5/24",
                "vmbr0 has the default route",
                "vmbr0 has the way to this controller",
            ),
        ),
        (PF, ("virtual function 0000:81:00.2 is passed with it",)),
    ],
)
def test_a_card_that_the_host_needs_is_refused(world: World, card: str, expected: tuple[str, ...]) -> None:
    world.write(text(card))
    assert refusals(world) == {"NIC_OF_HOST": expected}
    with pytest.raises(Refused, match="NIC_OF_HOST"):
        world.apply()
    assert world.pve.vms == {}


def test_a_port_of_a_bridge_of_the_next_boot_is_refused(world: World) -> None:
    network(world, NICS, "iface vmbr1 inet manual\n  bridge-ports ens1f1v0\n")
    world.write(text(VF))
    assert refusals(world) == {"NIC_OF_HOST": ("ens1f1v0 is a port of vmbr1 in /etc/network/interfaces",)}


def test_a_network_that_was_not_read_is_refused(world: World) -> None:
    world.host.nics = "nic ens1f0np0 /sys"
    world.write(text(VF))
    assert refusals(world) == {"NIC_OF_HOST": ("its network was not read",)}


def test_names_that_the_kernel_counts_are_pinned_first(world: World) -> None:
    network(world, NICS.replace("ens1f1v0", "eth1"), "iface vmbr0 inet manual\n  bridge-ports eth2\n")
    world.host.files["/sys/class/net/eth2/address"] = ModelFile(b"aa:bb:cc:00:00:01\n")
    world.host.files["/sys/class/net/eth2/device"] = ModelFile()
    world.write(text(VF))
    assert list(refusals(world)) == ["NIC_SHIFTS_NAMES"]
    link = b"[Match]\nMACAddress=aa:bb:cc:00:00:01\n[Link]\nName=eth2\n"
    world.host.files["/etc/systemd/network/10-eth2.link"] = ModelFile(link)
    assert refusals(world) == {}


def test_a_whole_port_is_given_to_vfio_at_boot_and_its_twin_is_not(world: World, tmp_path: Path) -> None:
    network(world, NICS.replace("virtual 0000:81:00.2 0000:81:00.1\n", "virtual 0000:81:00.2 0000:81:00.0\n"))
    both = PF.replace("[1]", "[1, 2]")
    resources, _ = planned(tmp_path / "role", world.host, text(both))
    (script,) = [each for each in resources if each.key.name.endswith("init-top/provision-cards")]
    assert b"for f in 0000:81:00.1; do" in getattr(script, "content", b"")
    unbound = [each.key.name for each in resources if each.key.kind == "card-unbound"]
    assert unbound == ["0000:02:00"], "no reboot is owed for a network card"


def test_two_functions_of_a_card_go_to_two_vms(world: World) -> None:
    two = VF + VF.replace("rail:", "other:").replace("[2]", "[1]")
    world.write(text(two).replace("gpus: [one],", "gpus: [one], pci: [other],"))
    inventory = load_inventory(world.folder / "site.yaml")
    assert inventory.nodes["vm-gpu"].cards == ("one", "other")
    for wrong in (two.replace("[1]", "[1, 2]"), two.replace(", functions: [1]", "")):
        world.write(text(wrong))
        with pytest.raises(UsageError, match="the card's PCI address"):
            load_inventory(world.folder / "site.yaml")


def test_a_card_is_taken_once_whatever_key_names_it(world: World) -> None:
    world.write(text(VF, "[rail, one]"))
    with pytest.raises(UsageError, match="the card one of pve is declared twice"):
        load_inventory(world.folder / "site.yaml")


def test_what_the_next_boot_configures_is_asked_for(world: World) -> None:
    from provision.proxmox.preflight.rules import evidence  # noqa: PLC0415 - for this test alone

    world.write(text(VF))
    asked = evidence(load_inventory(world.folder / "site.yaml"))["pve/ssh"]
    assert {HOST_NICS, REBOOT_FACTS} <= set(asked)
    world.write(INVENTORY)
    assert HOST_NICS not in evidence(load_inventory(world.folder / "site.yaml"))["pve/ssh"]


@pytest.mark.parametrize(
    ("away", "fails"), [("vm-gpu/ssh", False), ("vm-1/ssh", True), ("", True)], ids=["own", "other", "both"]
)
def test_the_check_looks_at_functions_of_running_vms_only(world: World, away: str, fails: bool) -> None:
    """Of one slot, function 2 is with vfio for vm-1, and function 1 still with the host's driver."""
    two = VF + VF.replace("rail:", "other:").replace("[2]", "[1]")
    world.write(text(two).replace("gpus: [one],", "pci: [other],"))
    rows = "0000:81:00.1 0x020000 mlx5_core\n0000:81:00.2 0x020000 vfio-pci"
    site: Any = SimpleNamespace(
        inventory=load_inventory(world.folder / "site.yaml"), is_away=lambda system: system == away
    )
    host: Any = SimpleNamespace(check_output=lambda _command, _slot: rows)
    if fails:
        with pytest.raises(AssertionError, match="other"):
            is_with_vfio(site, "pve", host, ("0000:81:00",))
    else:
        is_with_vfio(site, "pve", host, ("0000:81:00",))
