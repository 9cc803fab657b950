"""Rules about drivers and cards: what is refused before anything is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from provision.contracts.rule import Evidence, Finding, UnknownYet
from provision.gpu import preflight
from provision.gpu.roles import gpu_driver
from provision.hosts.apt_sources import STAMP
from provision.hosts.resources.pci import PciFunction
from provision.inventory import Inventory
from provision.testing.model_host import HostState, ModelFile, ModelFunction
from provision.values.cancel import Cancel
from tests.unit.gpu.test_driver import NODE, apply, inventory_of, node

UBUNTU = "origin: ubuntu, branch: 580-server"


def evidence_of(
    inventory: Inventory, change: Callable[[HostState], object], origin: str, device: str
) -> Evidence:
    host = node(origin, device=device)
    change(host.state)
    asked = {*preflight.evidence(inventory)["n1/ssh"], *gpu_driver.questions(inventory, NODE)["n1/ssh"]}
    return Evidence(inventory, {"n1/ssh": host.answer(frozenset(asked), Cancel())}, ())


def codes(evidence: Evidence) -> list[str]:
    found: list[Finding] = [finding for rule in preflight.RULES for finding in rule.check(evidence)]
    return [finding.code for finding in found if not isinstance(finding, UnknownYet)]


def fields(**values: object) -> Callable[[HostState], object]:
    def change(state: HostState) -> None:
        for name, value in values.items():
            setattr(state, name, value)

    return change


def pci(function: PciFunction) -> Callable[[HostState], object]:
    return lambda state: state.functions.append(ModelFunction(function))


SWITCH = PciFunction("0000:05:00.0", "10de", "22a3", "068000")
CASES: list[tuple[str, str, str, Callable[[HostState], object], str, str, list[str]]] = [
    ("nothing wrong", UBUNTU, "", fields(), "ubuntu", "2204", []),
    ("run file", UBUNTU, "", fields(foreign_driver="570.1.1"), "ubuntu", "2204", ["DRIVER_FOREIGN_INSTALL"]),
    (
        "another origin",
        UBUNTU,
        "",
        lambda state: state.packages.update({"cuda-drivers-570": "570.1.1-1"}),
        "ubuntu",
        "2204",
        ["DRIVER_FOREIGN_INSTALL"],
    ),
    ("no archive", "origin: nvidia", "", fields(), "ubuntu", "2204", ["DRIVER_ORIGIN_MISSING"]),
    ("gone", f"{UBUNTU}, version: 580.1.1", "", fields(), "ubuntu", "2204", ["DRIVER_VERSION_GONE"]),
    ("signed", UBUNTU, "", fields(secure_boot=True), "ubuntu", "2204", []),
    ("unsigned", "origin: debian", "", fields(secure_boot=True), "debian", "2204", ["SECURE_BOOT_UNSIGNED"]),
    ("no switch", UBUNTU, "nvswitch: true", fields(), "ubuntu", "2204", ["NVSWITCH_MISSING"]),
    ("a switch", UBUNTU, "nvswitch: true", pci(SWITCH), "ubuntu", "2330", []),
    ("sxm alone", UBUNTU, "", fields(), "ubuntu", "2330", ["SXM_WITHOUT_NVSWITCH"]),
    ("sxm, NVLink off", f"{UBUNTU}, nvlink: false", "", fields(), "ubuntu", "2330", []),
    ("unfit", f"{UBUNTU}, kind: open", "", fields(), "ubuntu", "1b06", ["DRIVER_KIND_UNFIT"]),
    ("too old", "manage: false, minimum: '580'", "", fields(), "ubuntu", "2204", ["DRIVER_TOO_OLD"]),
    (
        "new enough",
        "manage: false, minimum: '580'",
        "",
        fields(foreign_driver="580.1", loaded_driver="580.1"),
        "ubuntu",
        "2204",
        [],
    ),
]


@pytest.mark.parametrize(
    ("driver", "cards", "change", "origin", "device", "expected"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_a_driver_is_refused_for_its_reason_and_no_other(
    tmp_path: Path,
    driver: str,
    cards: str,
    change: Callable[[HostState], object],
    origin: str,
    device: str,
    expected: list[str],
) -> None:
    inventory = inventory_of(tmp_path, driver, f"gpu_cards: {{ count: 1, {cards} }}".replace(", }", " }"))
    assert codes(evidence_of(inventory, change, origin, device)) == expected


def test_a_driver_of_ours_is_no_foreign_one(tmp_path: Path) -> None:
    inventory, host = inventory_of(tmp_path, "origin: debian"), node(device="2204")
    apply(inventory, host)
    asked = {*preflight.evidence(inventory)["n1/ssh"], *gpu_driver.questions(inventory, NODE)["n1/ssh"]}
    snapshot = host.answer(frozenset(asked), Cancel())
    assert codes(Evidence(inventory, {"n1/ssh": snapshot}, ())) == []


def test_a_silent_node_is_not_judged(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, "origin: debian")
    assert codes(Evidence(inventory, {}, ())) == []


def test_a_driver_is_not_missed_before_the_declared_source_is_there(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, "origin: nvidia")
    sources = inventory.sources.model_copy(update={"apt": "https://mirror.example/ubuntu"})
    mirrored = inventory.with_sources(sources, inventory.lock)
    assert codes(evidence_of(mirrored, lambda _state: None, "ubuntu", "2204")) == []

    def fetched(state: HostState) -> None:
        state.files[STAMP] = ModelFile(b"lists of the mirror")

    assert codes(evidence_of(mirrored, fetched, "ubuntu", "2204")) == ["DRIVER_ORIGIN_MISSING"]
