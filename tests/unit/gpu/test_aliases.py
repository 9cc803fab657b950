"""Aliases of cards become UUIDs, or nothing."""

from __future__ import annotations

from pathlib import Path

from provision.api.domains import load_inventory as load
from provision.contracts.query import Unknown
from provision.gpu.aliases import card_uuids
from provision.gpu.facts import GpuCard
from provision.gpu.queries import CardStatus
from provision.hosts.resources.pci import PciFunction

SITE = """
version: 1
name: site
access: { user: root }
nodes:
  a: { address: 10.0.0.1, gpu_cards: { count: 2 } }
  b: { address: 10.0.0.2, gpu_cards: { count: 1 } }
sharing: { mode: hami, version: 2.9.0, cards: { one: [a/1], both: [a/0, b/0], away: [b/0] } }
"""


def cards(*uuids: str) -> list[GpuCard]:
    made = []
    for number, uuid in enumerate(uuids):
        address = f"0000:0{number}:00.0"
        status = CardStatus(address, name="x", uuid=uuid) if uuid else CardStatus(address, problem="lost")
        made.append(GpuCard(PciFunction(address, "10de", "2330", "030200", "nvidia"), status))
    return made


def test_an_alias_has_the_uuids_of_its_slots(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(SITE)
    inventory = load(tmp_path / "site.yaml", environ={})
    both = {"a": cards("GPU-1", "GPU-2"), "b": cards("GPU-3")}
    assert card_uuids(inventory, both) == {
        "one": ("GPU-2",),
        "both": ("GPU-1", "GPU-3"),
        "away": ("GPU-3",),
    }
    assert card_uuids(inventory, {**both, "b": Unknown("cut")}) == {"one": ("GPU-2",)}
    assert card_uuids(inventory, {**both, "b": cards("")}) == {"one": ("GPU-2",)}
