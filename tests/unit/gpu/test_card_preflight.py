"""Virtual cards as public reports show them: what their drivers say decides what may be divided."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.domains import load_inventory
from provision.contracts.rule import Evidence, UnknownYet
from provision.contracts.snapshot import Snapshot
from provision.gpu import card_preflight, preflight
from provision.gpu.queries import GPU_STATE_KIND, GpuState, GpuStatus
from provision.hosts.resources.base import Rows

SITE = """
version: 1
name: cluster
access: {{ user: root }}
k3s: {{ version: v1.35.7+k3s1 }}
nodes:
  n1: {{ address: 198.51.100.1, k3s: server, gpu_cards: {{ {cards} }} }}
gpu: {{ operator: {{ version: v26.3.1 }} }}
sharing: {{ {sharing} }}
"""
KAI, HAMI = "mode: kai, version: v0.18.1, fractions: true", "mode: hami, version: 2.9.0, slots_per_card: 4"
SLICES = "mode: time_slicing, slots_per_card: 4"
TAIL = "580.95.05, 9.0, Enabled, Disabled, Enabled, 300.00"
H100 = f"0, NVIDIA H100 PCIe, GPU-aaaa, 00000000:01:00.0, 81559, {TAIL}"
SPARK = f"0, NVIDIA GB10, GPU-cccc, 0000000F:01:00.0, [N/A], {TAIL}"
SLICE = f"0, NVIDIA H100L-2-24C, GPU-dddd, 00000000:03:00.0, 24576, {TAIL}"
GRID = f"0, GRID T4-4Q, GPU-eeee, 00000000:04:00.0, 4096, {TAIL}"
LOST = "Unable to determine the device handle for GPU0000:65:00.0: Unknown Error"


def status_of(*lines: str, licence: str = "") -> GpuStatus:
    rows: Rows = {"smi": [[line] for line in lines], "tool": [["yes"]], "done": [[""]]}
    if licence:
        rows = {**rows, "license": [[licence]]}
    status = GPU_STATE_KIND.read(rows)
    assert isinstance(status, GpuStatus)
    return status


def evidence_of(folder: Path, sharing: str, status: GpuStatus, cards: str = "count: 1") -> Evidence:
    file = folder / "site.yaml"
    file.write_text(SITE.format(sharing=sharing, cards=cards))
    inventory = load_inventory(file)
    snapshot = Snapshot("n1/ssh", answers={GpuState(): status})
    return Evidence(inventory, {"n1/ssh": snapshot}, ())


def codes(evidence: Evidence) -> list[str]:
    found = [finding for rule in card_preflight.RULES for finding in rule.check(evidence)]
    return [finding.code for finding in found if not isinstance(finding, UnknownYet)]


@pytest.mark.parametrize(
    ("lines", "sharing", "expected"),
    [
        ((H100,), KAI, []),
        ((SPARK,), SLICES, []),
        ((SLICE,), SLICES, ["VGPU_DIVIDED"]),
        ((GRID,), HAMI, ["VGPU_DIVIDED"]),
        ((SLICE,), "mode: none", []),
        ((H100, LOST), KAI, []),
    ],
)
def test_a_part_of_a_card_is_not_divided_again(
    tmp_path: Path, lines: tuple[str, ...], sharing: str, expected: list[str]
) -> None:
    assert codes(evidence_of(tmp_path, sharing, status_of(*lines))) == expected


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        ("Unlicensed (Restricted)", ["VGPU_UNLICENSED"]),
        ("Unlicensed (Unrestricted)", ["VGPU_UNLICENSED"]),
        ("Licensed (Expiry: 2027-1-1 0:0:0 GMT)", []),
        ("", []),
    ],
)
def test_a_vgpu_without_a_license_is_a_warning(tmp_path: Path, licence: str, expected: list[str]) -> None:
    assert codes(evidence_of(tmp_path, "mode: none", status_of(SLICE, licence=licence))) == expected


def test_mig_on_a_vgpu_is_refused(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "mode: none", status_of(SLICE), cards="count: 1, mig: true")
    assert codes(evidence) == ["VGPU_DIVIDED"]


def test_only_cards_for_pods_and_declared_drivers_are_asked_for(tmp_path: Path) -> None:
    shared = evidence_of(tmp_path, KAI, status_of(H100)).inventory
    assert preflight.evidence(shared)["n1/ssh"] == (GpuState(),)
    text = SITE.format(sharing="mode: none", cards="count: 1").replace(", gpu_cards: { count: 1 }", "")
    (tmp_path / "plain.yaml").write_text(text)
    assert "n1/ssh" not in preflight.evidence(load_inventory(tmp_path / "plain.yaml"))
