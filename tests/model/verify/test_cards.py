"""Checks of cards: a sysfs made for the test is looked at by real shells, a VM as its API tells it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from provision.api.domains import check_folders
from provision.api.domains import load_inventory as load
from provision.contracts.query import ApiGet, ApiReply, Unknown
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.shell import Shell, ShellResult
from provision.inventory import Inventory
from provision.verify.backend import Answers
from provision.verify.model import CheckOutcome, CheckResult
from provision.verify.runner import run_checks

INVENTORY = """
version: 1
name: tiny
access: { user: debian, key: ./key }
network: { cidr: 198.18.0.0/24 }
images:
  debian-12: { url: "https://example.org/debian.qcow2", sha256: "@SHA" }
hypervisors:
  pve:
    address: 198.18.0.5
    api:
      url: https://198.18.0.5:8006
      token_id: a@pve!b
      token: !secret { file: ./token }
      fingerprint: "@PRINT"
    ssh: { user: root }
    storage: { images: local, disks: local, snippets: local }
    bridge: vmbr0
    cards:
      one: { address: "0000:01:00", id: "1234:1111" }
      two: { address: "0000:02:00", id: "1234:1111" }
profiles:
  small: { hypervisor: pve, image: debian-12, cores: 1, memory: 1GiB, disk: 4GiB }
nodes:
  vm: { profile: small, vmid: 201, address: 198.18.0.11, gpus: [one, two] }
""".replace("@SHA", "0" * 64).replace("@PRINT", ":".join(["00"] * 32))
OTHER = "  other: { profile: small, vmid: 202, address: 198.18.0.12, gpus: [two] }\n"
GROUP = "vfio-pci holds nothing of a card's IOMMU group but what is passed to the same VM"
PASSED = "Every declared card is passed through by its mapping, or as root by its address, as PCI Express"


class Machines:
    """A hypervisor whose /sys is a folder, and its API with one VM; `gone` systems must never be asked."""

    def __init__(self, root: Path, config: Mapping[str, str], gone: tuple[str, ...] = ()) -> None:
        self.root = root
        self.config = config
        self.gone = gone
        self.asked: list[str] = []
        self.answers: dict[str, dict[Any, object]] = {}

    def away(self, system: str) -> str:
        return f"{system} does not answer" if system in self.gone else ""

    def held(self, system: str) -> Snapshot:
        return Snapshot(system, "boot", dict(self.answers.get(system, {})))

    def gather(self, wanted: Mapping[str, Iterable[Any]]) -> None:
        for system, queries in wanted.items():
            self.ask(system, queries)

    def ask(self, system: str, queries: Iterable[Any], *, fresh: bool = False) -> Snapshot:
        del fresh
        self.asked.append(system)
        for each in queries:
            self.answers.setdefault(system, {})[each] = self.answer(system, each)
        return self.held(system)

    def answer(self, system: str, query: object) -> object:
        if system == "pve/ssh" and isinstance(query, Shell):
            script = query.command.replace("/sys/", f"{self.root}/sys/")
            result = subprocess.run(["sh", "-c", script], capture_output=True, check=False)
            return ShellResult(result.returncode, result.stdout, result.stderr)
        if isinstance(query, ApiGet) and query.path.endswith("/pending"):
            rows = [{"key": key, "value": value} for key, value in self.config.items()]
            return ApiReply(200, json.dumps(rows))
        return Unknown("silence")


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    path = tmp_path / "tiny.yaml"
    path.write_text(INVENTORY)
    return load(path)


def sysfs(root: Path, *functions: tuple[str, str, str, int]) -> None:
    """Make a tree of PCI functions: address, class, driver (or nothing) and IOMMU group."""
    bus = root / "sys/bus/pci"
    for address, cls, driver, group in functions:
        device = bus / "devices" / address
        device.mkdir(parents=True)
        (device / "class").write_text(f"{cls}\n")
        if driver:
            (bus / "drivers" / driver).mkdir(parents=True, exist_ok=True)
            (device / "driver").symlink_to(bus / "drivers" / driver)
        members = root / f"sys/kernel/iommu_groups/{group}/devices"
        members.mkdir(parents=True, exist_ok=True)
        (members / address).symlink_to(device)
        (device / "iommu_group").symlink_to(members.parent)


@cache
def folder_of(claim: str) -> Path:
    """Return the folder whose checks claim something: the others need not run."""
    (folder,) = (
        folder
        for folder in check_folders()
        if any(f'"""{claim}' in file.read_text() for file in folder.glob("test_*.py"))
    )
    return folder


def check(inventory: Inventory, machines: Answers, claim: str) -> CheckResult:
    report = run_checks(inventory, machines, [folder_of(claim)])
    (result,) = (result for result in report.checks if result.name == claim)
    return result


ONE = ("0000:01:00.0", "0x030000", "vfio-pci", 7)
TWO = ("0000:02:00.0", "0x030000", "vfio-pci", 7)
BRIDGE = ("0000:00:01.0", "0x060400", "pcieport", 7)


def test_cards_of_one_vm_may_share_a_group(inventory: Inventory, tmp_path: Path) -> None:
    sysfs(tmp_path, BRIDGE, ONE, TWO, ("0000:01:00.1", "0x040300", "vfio-pci", 7))
    assert check(inventory, Machines(tmp_path, {}), GROUP).outcome is CheckOutcome.PROVEN


def test_another_device_of_the_group_that_keeps_its_driver_is_untouched(
    inventory: Inventory, tmp_path: Path
) -> None:
    sysfs(tmp_path, ONE, ("0000:02:00.0", "0x030000", "", 8), ("0000:03:00.0", "0x020000", "e1000e", 7))
    assert check(inventory, Machines(tmp_path, {}), GROUP).outcome is CheckOutcome.PROVEN


def test_another_device_of_the_group_that_vfio_took_is_told(inventory: Inventory, tmp_path: Path) -> None:
    sysfs(tmp_path, ONE, TWO, ("0000:03:00.0", "0x020000", "vfio-pci", 7))
    found = check(inventory, Machines(tmp_path, {}), GROUP)
    assert found.outcome is CheckOutcome.FAILED
    assert "0000:03:00.0" in found.message


def test_a_card_of_another_vm_in_the_group_is_told(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(INVENTORY.replace("gpus: [one, two]", "gpus: [one]") + OTHER)
    sysfs(tmp_path, ONE, TWO)
    assert check(load(path), Machines(tmp_path, {}), GROUP).outcome is CheckOutcome.FAILED


@pytest.mark.parametrize(
    ("first", "outcome"),
    [
        ("mapping=provision-tiny-one,pcie=1", CheckOutcome.PROVEN),
        ("mapping=provision-tiny-one", CheckOutcome.FAILED),
        ("mapping=provision-tiny-two,pcie=1", CheckOutcome.FAILED),
        ("host=0000:01:00,pcie=1", CheckOutcome.FAILED),
        ("0000:01:00,pcie=1", CheckOutcome.FAILED),
    ],
)
def test_a_card_is_passed_by_its_own_mapping_and_nothing_else(
    inventory: Inventory, tmp_path: Path, first: str, outcome: CheckOutcome
) -> None:
    config = {"hostpci0": first, "hostpci1": "mapping=provision-tiny-two,pcie=1"}
    assert check(inventory, Machines(tmp_path, config), PASSED).outcome is outcome


def test_an_api_that_is_away_is_asked_by_no_check(inventory: Inventory, tmp_path: Path) -> None:
    sysfs(tmp_path, ONE, TWO)
    machines = Machines(tmp_path, {}, gone=("pve/api", "vm/ssh"))
    checks = run_checks(inventory, machines, check_folders()).checks
    unsure = [each for each in checks if each.outcome is CheckOutcome.UNKNOWN]
    assert {each.subject for each in unsure} >= {"vm"}
    assert len([each for each in unsure if each.message == "pve/api does not answer"]) >= 8
    assert not {"pve/api", "vm/ssh"} & set(machines.asked)


POOLED = INVENTORY.replace("profiles:\n", "    card_pools: { any: [one, two] }\nprofiles:\n").replace(
    "gpus: [one, two]", "gpus: [any]"
)
HELD = "vfio-pci holds every passed function of a card whose VM runs; of a pool, of a card for each VM"


@pytest.mark.parametrize(
    ("nodes", "bound", "outcome"),
    [
        ("", ("vfio-pci", ""), CheckOutcome.PROVEN),
        ("", ("", "vfio-pci"), CheckOutcome.PROVEN),
        ("", ("", ""), CheckOutcome.FAILED),
        (OTHER.replace("[two]", "[any]"), ("vfio-pci", ""), CheckOutcome.FAILED),
        (OTHER.replace("[two]", "[any]"), ("vfio-pci", "vfio-pci"), CheckOutcome.PROVEN),
    ],
)
def test_as_many_cards_of_a_pool_are_with_vfio_as_vms_run(
    tmp_path: Path, nodes: str, bound: tuple[str, str], outcome: CheckOutcome
) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(POOLED + nodes)
    slots = ("0000:01:00.0", "0000:02:00.0")
    rows = [
        (slot, "0x030000", driver, 7 + at) for at, (slot, driver) in enumerate(zip(slots, bound, strict=True))
    ]
    sysfs(tmp_path, *rows)
    assert check(load(path), Machines(tmp_path, {}), HELD).outcome is outcome


def test_a_vm_of_a_pool_has_the_pool_s_mapping(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(POOLED)
    for entry, outcome in (
        ("mapping=provision-tiny-any,pcie=1", CheckOutcome.PROVEN),
        ("mapping=provision-tiny-one,pcie=1", CheckOutcome.FAILED),
    ):
        assert check(load(path), Machines(tmp_path, {"hostpci0": entry}), PASSED).outcome is outcome
