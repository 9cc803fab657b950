"""Images of checks that are not named: `validate` says what is therefore not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.domains import load_inventory
from provision.inventory.check_images import unnamed_images

ROOT = Path(__file__).parents[3]


def purposes(path: Path) -> list[str]:
    notes = unnamed_images(load_inventory(path, environ={}))
    return [note.summary.partition(" is not named")[0].rpartition(".")[2] for note in notes]


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("h100-pair", ["network", "rdma", "nixl", "nccl"]),
        ("homelab", ["network"]),
        ("lab", []),
    ],
)
def test_a_shipped_inventory_says_which_checks_have_no_image(name: str, missing: list[str]) -> None:
    assert purposes(ROOT / "inventories" / f"{name}.yaml") == missing


def test_every_purpose_is_looked_at_and_a_named_one_is_not_missing(tmp_path: Path) -> None:
    text = (ROOT / "inventories/h100-pair.yaml").read_text()
    (images,) = (line for line in text.splitlines() if line.startswith("  images: { cuda"))
    file = tmp_path / "pair.yaml"
    file.write_text(text.replace(images, "  dcgm: { level: 1 }"))
    every = ["network", "cuda", "dcgm", "rdma", "nixl", "nccl"]
    assert purposes(file) == every
    assert sorted(every) == sorted(type(load_inventory(file, environ={}).verify.images).model_fields)
    rows = ", ".join(f"{name}: 'reg.lab/{name}:1@sha256:{'a' * 64}'" for name in every)
    file.write_text(text.replace(images, f"  dcgm: {{ level: 1 }}\n  images: {{ {rows} }}"))
    assert purposes(file) == []
    file.write_text(text.replace(images, "  pods: false"))
    assert purposes(file) == [], "no check may run pods"
