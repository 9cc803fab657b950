"""Checks of GPUs where provision runs on the machine itself: replayed from a real guest, or really."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from provision.api import Options
from provision.api import load as load_site
from provision.api.domains import check_folders, load_inventory
from provision.contracts.query import Unknown
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.shell import Shell, ShellResult
from provision.values.cancel import Cancel
from provision.verify.model import CheckOutcome, VerifyReport
from provision.verify.runner import run_checks

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT.parent / "shared" / "samples" / "h200-guest"
INVENTORY = ROOT / "tests" / "e2e" / "gpu.yaml"
GUEST = {"PROVISION_TEST_GPU": "2", "GPU_NAME": "NVIDIA H200", "GPU_MEMORY": "143771MiB"}
PROVEN = {
    "test_gpu_compute_mode",
    "test_gpu_driver_is_bound",
    "test_gpu_count",
    "test_gpu_model",
    "test_gpu_driver_version",
}
NO_SYSTEMD = b"System has not been booted with systemd as init system (PID 1). Can't operate.\n"


class Replay:
    """A guest that answers with what it once said; what was not kept is unknown."""

    def __init__(self, folder: Path) -> None:
        self.functions = (folder / "sysfs-pci.txt").read_text()
        rows = csv.reader(io.StringIO((folder / "query-gpu.csv").read_text()), skipinitialspace=True)
        head, *self.cards = [[field.strip() for field in row] for row in rows if row]
        self.columns = {name.partition(" [")[0]: index for index, name in enumerate(head)}
        self.system = (folder / "proc-and-sys.txt").read_text()

    def away(self, system: str) -> str:
        del system
        return ""

    def held(self, system: str) -> Snapshot:
        return Snapshot(system)

    def gather(self, wanted: Mapping[str, Iterable[Any]]) -> None:
        del wanted

    def ask(self, system: str, queries: Iterable[Any], *, fresh: bool = False) -> Snapshot:
        del fresh
        return Snapshot(system, answers={query: self.answer(query) for query in queries})

    def answer(self, query: Any) -> object:
        command = query.command if isinstance(query, Shell) else ""
        if command.startswith("for f in /sys/bus/pci"):
            return ShellResult(0, "".join(map(self._function, self.functions.splitlines())).encode(), b"")
        if match := re.match(r"nvidia-smi --query-gpu=(\S+)", command):
            return self._listed(match[1].split(","))
        if command == "cat /sys/module/nvidia/version":
            version = re.search(r"^/sys/module/nvidia (\S+) live$", self.system, re.MULTILINE)
            return ShellResult(0, f"{version[1] if version else ''}\n".encode(), b"")
        if "systemctl" in command:
            return ShellResult(1, b"", NO_SYSTEMD)
        return Unknown("the guest was not asked this")

    @staticmethod
    def _function(line: str) -> str:
        path, vendor, _, cls, driver, *_ = line.split()
        bound = driver.rpartition("/")[2].removeprefix("driver=") or "none"
        return f"{path.rpartition('/')[2]} {vendor[2:]} {cls[2:]} {bound}\n"

    def _listed(self, fields: list[str]) -> object:
        if any(field not in self.columns for field in fields):
            return Unknown("the guest was not asked for these fields")
        rows = (
            ", ".join(re.sub(r" (MiB|W)$", "", card[self.columns[field]]) for field in fields)
            for card in self.cards
        )
        return ShellResult(0, "".join(f"{row}\n" for row in rows).encode(), b"")


def outcomes(report: VerifyReport, outcome: CheckOutcome) -> dict[str, str]:
    return {check.check: check.message for check in report.checks if check.outcome is outcome}


def test_replay_of_a_real_guest_proves_its_cards_and_nothing_else() -> None:
    if not SAMPLES.exists():
        pytest.skip("../shared is not beside the checkout")
    report = run_checks(load_inventory(INVENTORY, environ=GUEST), Replay(SAMPLES), check_folders())
    assert outcomes(report, CheckOutcome.FAILED) == {}
    assert set(outcomes(report, CheckOutcome.PROVEN)) == PROVEN
    assert "systemd does not run on here" in outcomes(report, CheckOutcome.UNKNOWN).values()


def test_replay_of_a_real_guest_with_another_card_declared_is_red() -> None:
    if not SAMPLES.exists():
        pytest.skip("../shared is not beside the checkout")
    inventory = load_inventory(
        INVENTORY, environ={**GUEST, "GPU_NAME": "NVIDIA H100", "PROVISION_TEST_GPU": "8"}
    )
    failed = outcomes(run_checks(inventory, Replay(SAMPLES), check_folders()), CheckOutcome.FAILED)
    assert set(failed) == {"test_gpu_count", "test_gpu_model"}
    assert failed["test_gpu_count"].startswith("2 GPUs answer, not 8")


def test_the_cards_of_this_machine_are_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("PROVISION_TEST_GPU"):
        pytest.skip("PROVISION_TEST_GPU is not set: no machine with GPUs")
    for name in ("GPU_NAME", "GPU_MEMORY"):
        monkeypatch.setenv(name, os.environ.get(name) or GUEST[name])
    site = load_site(INVENTORY, state=tmp_path)
    try:
        report = site.verify(Options(), lambda _: None, Cancel())
    finally:
        site.close()
    assert outcomes(report, CheckOutcome.FAILED) == {}
    assert set(outcomes(report, CheckOutcome.PROVEN)) >= PROVEN
