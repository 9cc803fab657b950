"""`provision doctor`: each rule prints evidence where something is wrong, and nothing elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from provision.api.doctor import doctor_code, host_rules, of_host
from provision.contracts.query import Unknown
from provision.contracts.snapshot import Snapshot
from provision.hosts.doctor import HostRule
from provision.hosts.queries.shell import ShellResult
from provision.values.diagnostics import Severity
from provision.values.outcomes import ExitCode

RULES = {rule.code: rule for rule in host_rules()}
PVE = {"pveversion": "pve-manager/9.0.10/deadbeef (running kernel: 6.14.8-2-pve)"}
DF = "Filesystem 1024-blocks Used Available Capacity Mounted on\n"
PVESM = "Name Type Status Total Used Available %\n"

BROKEN: list[tuple[str, Mapping[str, str], str]] = [
    ("FILESYSTEM_FULL", {"df": DF + "/dev/sda1 100 98 2 98% /"}, "/ is 98% full"),
    (
        "PACKAGES_BROKEN",
        {"dpkg": "The following packages are only half configured\n nvidia-dkms"},
        "nvidia-dkms",
    ),
    ("UNIT_FAILED", {"systemctl": "zfs-import.service loaded failed failed Import"}, "zfs-import.service"),
    ("CLOCK_UNSYNCHRONIZED", {"timedatectl": "NTPSynchronized=no"}, "no"),
    ("OUT_OF_MEMORY", {"dmesg": "[1.0] Out of memory: Killed process 12 (vllm)"}, "vllm"),
    ("HARDWARE_ERRORS", {"dmesg": "[1.0] NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus"}, "79"),
    (
        "VXLAN_CHECKSUMS",
        {"dmesg": "[1.0] UDP: bad checksum. From 10.0.0.1:27503 to 10.0.0.2:8472 ulen 75"},
        "10.0.0.2:8472",
    ),
    ("PVE_VERSION_UNSUPPORTED", {"pveversion": "pve-manager/7.4-17/513c62be"}, "7.4"),
    ("PVE_QUORUM_LOST", {**PVE, "pvecm": "Quorate:          No"}, "No"),
    (
        "PVE_STORAGE_FULL",
        {**PVE, "pvesm": PVESM + "local dir active 98497780 97497780 10 98.98%"},
        "of 93 GiB",
    ),
    ("PVE_STORAGE_INACTIVE", {**PVE, "pvesm": PVESM + "nas nfs inactive 0 0 0 0.00%"}, "nas nfs"),
]
SOUND: list[tuple[str, Mapping[str, str]]] = [
    ("FILESYSTEM_FULL", {"df": DF + "/dev/sda1 100 50 50 50% /"}),
    ("PACKAGES_BROKEN", {"dpkg": ""}),
    ("UNIT_FAILED", {"systemctl": ""}),
    ("CLOCK_UNSYNCHRONIZED", {"timedatectl": "NTPSynchronized=yes"}),
    ("HARDWARE_ERRORS", {"dmesg": "[1.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module"}),
    ("VXLAN_CHECKSUMS", {"dmesg": "[1.0] UDP: bad checksum. From 10.0.0.1:53 to 10.0.0.2:40000 ulen 75"}),
    ("PVE_VERSION_UNSUPPORTED", PVE),
    ("PVE_VERSION_UNSUPPORTED", {"pveversion": "garbage"}),
    ("PVE_QUORUM_LOST", {**PVE, "pvecm": "Quorate:          Yes"}),
    ("PVE_STORAGE_FULL", {**PVE, "pvesm": PVESM + "local dir active 100 50 50 50.00%"}),
    ("PVE_STORAGE_FULL", {"pvesm": PVESM + "local dir active 100 99 1 99.00%"}),  # no Proxmox VE
    ("PVE_STORAGE_INACTIVE", {**PVE, "pvesm": PVESM + "nas nfs disabled 0 0 0 N/A"}),
]


def printed(rule: HostRule, folder: Path, programs: Mapping[str, str]) -> str:
    """Return what a rule prints where these programs print these texts, and others print nothing."""
    for name in ("df", "dpkg", "systemctl", "timedatectl", "dmesg", "pveversion", "pvecm", "pvesm"):
        if name in programs or not name.startswith("pve"):
            (folder / name).write_text(f"#!/bin/sh\ncat <<'END'\n{programs.get(name, '')}\nEND\n")
            (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    result = subprocess.run(
        ["sh", "-c", rule.command],
        capture_output=True,
        text=True,
        env={"PATH": path},
        check=False,
        timeout=20,
    )
    return result.stdout


@pytest.mark.parametrize(("code", "programs", "words"), BROKEN)
def test_what_is_wrong_is_printed(code: str, programs: Mapping[str, str], words: str, tmp_path: Path) -> None:
    assert words in printed(RULES[code], tmp_path, programs)


@pytest.mark.parametrize(("code", "programs"), SOUND)
def test_what_is_well_prints_nothing(code: str, programs: Mapping[str, str], tmp_path: Path) -> None:
    assert printed(RULES[code], tmp_path, programs).strip() == ""


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("pve.list", "deb https://enterprise.proxmox.com/debian/pve bookworm pve-enterprise\n", True),
        ("pve.list", "# deb https://enterprise.proxmox.com/debian/pve bookworm pve-enterprise\n", False),
        ("pve.list", "deb http://download.proxmox.com/debian/pve trixie pve-no-subscription\n", False),
        ("pve.sources", "Types: deb\nURIs: https://enterprise.proxmox.com/debian/pve\n", True),
        ("pve.sources", "Enabled: no\nURIs: https://enterprise.proxmox.com/debian/pve\n", False),
    ],
)
def test_an_enterprise_repository_needs_a_subscription(
    name: str, text: str, wrong: bool, tmp_path: Path
) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / name).write_text(text)
    rule = RULES["PVE_REPO_UNSUBSCRIBED"]
    moved = HostRule(rule.code, rule.when, rule.remedy, rule.command.replace("/etc/apt", str(tmp_path)))
    assert ("enterprise" in printed(moved, tmp_path, PVE)) is wrong
    subscribed = {**PVE, "pvesubscription": "status: active"}
    (tmp_path / "pvesubscription").write_text("#!/bin/sh\necho status: active\n")
    (tmp_path / "pvesubscription").chmod(0o755)
    assert printed(moved, tmp_path, subscribed) == ""


@pytest.mark.parametrize(
    ("groups", "log", "wrong"),
    [
        (1, "DMAR: IOMMU enabled\n", True),
        (1, "AMD-Vi: Interrupt remapping disabled\n", True),
        (1, "DMAR: IOMMU enabled\nDMAR-IR: Enabled IRQ remapping in x2apic mode\n", False),
        (1, "AMD-Vi: Interrupt remapping enabled\n", False),
        (1, "a log that was cut\n", False),
        (0, "DMAR: IOMMU enabled\n", False),
    ],
)
def test_interrupts_that_are_not_remapped_are_found_where_there_are_groups(
    groups: int, log: str, wrong: bool, tmp_path: Path
) -> None:
    (tmp_path / "groups").mkdir()
    for number in range(groups):
        (tmp_path / "groups" / str(number)).mkdir()
    (tmp_path / "journalctl").write_text(f"#!/bin/sh\ncat <<'END'\n{log}END\n")
    (tmp_path / "journalctl").chmod(0o755)
    rule = RULES["IOMMU_NO_IRQ_REMAP"]
    command = rule.command.replace("/sys/kernel/iommu_groups", str(tmp_path / "groups"))
    moved = HostRule(rule.code, rule.when, rule.remedy, command)
    assert bool(printed(moved, tmp_path, PVE)) is wrong


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_a_rule_has_a_remedy_that_names_what_to_do(rule: HostRule) -> None:
    assert re.search(r"`[^`]+`|firmware|https://|memory|hardware|reseat", rule.remedy), rule.remedy
    subprocess.run(["sh", "-n", "-c", rule.command], check=True, timeout=10)


def test_findings_become_problems_and_the_worst_decides() -> None:
    rule, warning = RULES["PACKAGES_BROKEN"], RULES["UNIT_FAILED"]
    answers = {
        rule.query: ShellResult(0, b"half installed\n\n", b""),
        warning.query: ShellResult(0, b"a.service\n", b""),
        RULES["OUT_OF_MEMORY"].query: Unknown("cut"),
    }
    found = list(of_host(host_rules(), Snapshot("vm-1/ssh", answers=answers, skew=-100.0), "vm-1"))
    assert [(each.code, each.evidence) for each in found] == [
        ("PACKAGES_BROKEN", ("half installed",)),
        ("UNIT_FAILED", ("a.service",)),
        ("CLOCK_DIFFERS", ()),
    ]
    assert "100 s behind" in found[2].summary
    assert doctor_code(found) is ExitCode.REFUSED
    assert doctor_code([each for each in found if each.severity is not Severity.ERROR]) is ExitCode.DONE
    assert doctor_code([]) is ExitCode.DONE
