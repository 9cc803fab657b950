from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.cards import cards
from provision.api.domains import load_inventory as load
from provision.cli import main
from provision.cli.cards import print_cards
from provision.hosts.cards import aliases, cards_of, models_of, uuids_of
from provision.hosts.resources.pci import PciFunction
from provision.values.cancel import Cancel
from tests.unit.proxmox.roles.world import INVENTORY, World
from tests.unit.report.samples import shown

GPU = PciFunction("0000:02:00.0", "10de", "2204", "030000", "vfio-pci", "14", boot_vga=True)
AUDIO = PciFunction("0000:02:00.1", "10de", "1aef", "040300", "", "14")
OTHER = PciFunction("0000:03:00.0", "8086", "10d3", "020000", "e1000e", "14")
BRIDGE = PciFunction("0000:00:01.0", "8086", "1901", "060400", "pcieport", "14")
LSPCI = b'0000:02:00.0 "VGA compatible controller" "NVIDIA Corporation" "GA102 [RTX 3090]" -ra1 "MSI" "x"\n'
SMI = b"00000000:02:00.0, GPU-11111111-2222-3333-4444-555555555555, NVIDIA GeForce RTX 3090\n"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    file = tmp_path / "site.yaml"
    file.write_text(INVENTORY)
    return file


def test_a_card_is_all_its_functions_with_what_shares_its_group() -> None:
    (card, other) = cards_of("pve", (BRIDGE, GPU, AUDIO, OTHER), {"0000:02:00": ("one",)}, {}, {})
    assert card.ids == ("10de:2204", "10de:1aef")
    assert card.drivers == ("vfio-pci", "-")
    assert card.groups == ("14",)
    assert card.shares == ("0000:03:00",)
    assert card.aliases == ("one",)
    assert card.console
    assert other.aliases == ()


def test_names_come_from_the_host() -> None:
    assert models_of(LSPCI.decode()) == {"0000:02:00.0": "NVIDIA Corporation GA102 [RTX 3090]"}
    assert models_of("pcilib: Cannot open\n\n") == {}
    uuid = "GPU-11111111-2222-3333-4444-555555555555"
    assert uuids_of(SMI.decode()) == {"0000:02:00": (uuid, "NVIDIA GeForce RTX 3090")}
    assert uuids_of("No devices were found\n") == {}


def test_a_vm_knows_its_card_by_id_only(inventory: Path) -> None:
    site = load(inventory)
    assert aliases(site, "pve") == {"0000:02:00": ("one",)}
    assert aliases(site, "vm-gpu") == {"10de:2204": ("one",)}


def test_a_vm_of_a_pool_calls_its_card_by_the_pool(inventory: Path) -> None:
    text = inventory.read_text().replace(", drives_console: true }", " }\n    card_pools: { any: [one] }")
    inventory.write_text(text.replace("gpus: [one]", "gpus: [any]"))
    assert aliases(load(inventory), "vm-gpu") == {"10de:2204": ("any",)}


def test_the_site_is_asked_once_and_hosts_without_an_answer_are_named(tmp_path: Path) -> None:
    world = World(tmp_path)
    site = world.site()
    listed = cards(site, Cancel())
    assert [(card.host, card.slot, card.aliases) for card in listed.cards if card.aliases] == [
        ("pve", "0000:02:00", ("one",))
    ]
    assert set(listed.away) == {"vm-gpu"}
    assert not listed.failed
    assert cards(site, Cancel(), targets=("pve",)).away == {}


def test_cards_as_a_table() -> None:
    models = models_of(LSPCI.decode())
    listed = cards_of("pve", (GPU, AUDIO, OTHER), {"0000:02:00": ("one",)}, models, uuids_of(SMI.decode()))
    text = shown(lambda console: print_cards(console, listed, {"vm-gpu": "vm-gpu is off"}))
    lines = text.splitlines()
    assert lines[0].split() == ["host", "slot", "id", "group", "driver", "alias", "model"]
    assert lines[1].split()[:6] == ["pve", "0000:02:00", "10de:2204", "10de:1aef", "14", "vfio-pci"]
    assert "GPU-11111111" in text
    assert "drives_console: true" in text
    assert "vm-gpu gave no answer: vm-gpu is off" in text


def test_a_site_without_cards_says_so() -> None:
    assert shown(lambda console: print_cards(console, (), {})) == "There is no card.\n"


def test_an_unknown_host_is_wrong_usage(inventory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["cards", str(inventory), "--target", "nobody"]) == 64
    assert "NODE_UNKNOWN" in capsys.readouterr().err
