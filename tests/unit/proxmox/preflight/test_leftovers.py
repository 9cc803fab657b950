"""Lines of passthrough guides that do nothing, or take devices that no card declares."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from provision.hosts.queries.shell import ShellResult
from provision.hosts.resources.pci import PciFunction
from provision.proxmox.guide_lines import GUIDE_LINES, leftovers
from provision.proxmox.preflight.leftovers import guide_leftovers
from provision.values.diagnostics import Diagnostic, Severity
from tests.unit.proxmox.preflight.test_rules import site
from tests.unit.proxmox.roles.world import INVENTORY, World

FUNCTIONS = (
    PciFunction("0000:02:00.0", "10de", "2204", "030000"),
    PciFunction("0000:02:00.1", "10de", "1aef", "040300"),
    PciFunction("0000:17:00.0", "10de", "1ff2", "030000"),
    PciFunction("0000:65:00.0", "10de", "1ff2", "030000"),
)
PASSED = frozenset({"0000:02:00", "0000:17:00"})
GRUB, MODPROBE = "/etc/default/grub:9:", "/etc/modprobe.d/vfio.conf:1:"


@pytest.mark.parametrize(
    ("row", "loader", "words"),
    [
        ("/etc/modules:4:vfio_virqfd", "grub", "part of vfio since Linux 6.2"),
        ("/etc/modules-load.d/vfio.conf:1:vfio-virqfd", "grub", "part of vfio since Linux 6.2"),
        (
            f"{MODPROBE}options vfio-pci ids=10de:1ff2 disable_vga=1",
            "grub",
            "takes 0000:65:00.0 from",
        ),
        (
            f"{MODPROBE}options vfio_pci ids=10de:2204,1002:73df",
            "grub",
            "host is 1002:73df",
        ),
        (f"{MODPROBE}  options vfio-pci ids=10DE:1FF2", "grub", "takes 0000:65:00.0"),
        (f'{GRUB}GRUB_CMDLINE_LINUX_DEFAULT="quiet vfio-pci.ids=10de:1ff2"', "grub", "takes 0000:65:00.0"),
        (f'{GRUB}GRUB_CMDLINE_LINUX_DEFAULT="quiet intel_iommu=on"', "systemd-boot", "boots by systemd-boot"),
        ("/etc/kernel/cmdline:1:root=ZFS=a intel_iommu=on", "grub", "boots by GRUB"),
        ("/etc/kernel/cmdline:1:root=ZFS=a pcie_acs_override=downstream", "systemd-boot", "look isolated"),
        (f'{GRUB}GRUB_CMDLINE_LINUX="video=efifb:off"', "grub", "no effect on simpledrm"),
        ("/etc/kernel/cmdline:1:root=a vfio_pci.ids=1002:1", "systemd-boot", "no device of this host"),
        # any device of a maker, by class or not, as the guides of several distributions have it
        (
            f"{MODPROBE}options vfio-pci ids=10de:ffffffff:ffffffff:ffffffff:00030000:ffff00ff",
            "grub",
            "it takes 0000:65:00.0 from the host",
        ),
        (f"{MODPROBE}options vfio-pci ids=1002:ffffffff", "grub", "host is 1002:ffffffff"),
        (f"{MODPROBE}options vfio-pci ids=10de", "grub", "no device of this host is 10de"),
        ("/etc/initramfs-tools/modules:9:vfio_pci ids=10de:1ff2", "grub", "takes 0000:65:00.0"),
        (f'{GRUB}GRUB_CMDLINE_LINUX_DEFAULT="nofb video=vesafb:off,efifb:off"', "grub", "no effect"),
        (f'{GRUB}GRUB_CMDLINE_LINUX_DEFAULT="video=vesafb:off,efifb:off"', "systemd-boot", "does not read"),
        # as it should be, or none of our business
        (f'{MODPROBE}options vfio-pci ids="10de:2204,10de:1aef" disable_vga=1', "grub", ""),
        (f"{MODPROBE}options vfio-pci ids=10de:ffffffff:ffffffff:ffffffff:00040300:ffffff00", "grub", ""),
        ("/etc/modules:9:vfio_pci ids=10de:1ff2", "grub", ""),  # systemd reads no options there
        ("/etc/modules:1:vfio", "grub", ""),
        ("/etc/modules:1:vfio-pci", "grub", ""),
        ("/etc/modules:1:# vfio_virqfd", "grub", ""),
        (f"{MODPROBE}options vfio-pci ids=10de:2204,10de:1aef", "grub", ""),
        (f"{MODPROBE}softdep nvidia pre: vfio-pci", "grub", ""),
        ("/etc/modprobe.d/provision-cards.conf:1:blacklist vfio_virqfd", "grub", ""),
        ("/etc/default/grub.d/50-provision.cfg:3:intel_iommu=on", "systemd-boot", ""),
        (f'{GRUB}#GRUB_CMDLINE_LINUX="intel_iommu=on"', "systemd-boot", ""),
        (f'{GRUB}GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt"', "grub", ""),
        ("/etc/kernel/cmdline:1:root=a video=HDMI-A-1:1024x768@60e", "systemd-boot", ""),
        ("garbage", "grub", ""),
    ],
)
def test_a_line_that_does_not_do_what_it_says_is_named(row: str, loader: str, words: str) -> None:
    found = list(map(str, leftovers(f"{row}\n", loader, FUNCTIONS, PASSED)))
    assert len(found) == bool(words)
    assert all(words in each and each.startswith(row.partition(":")[0]) for each in found)


def test_devices_that_are_not_known_are_not_judged() -> None:
    assert not list(leftovers(f"{MODPROBE}options vfio-pci ids=1:2", "grub", (), PASSED))


def test_leftovers_are_a_warning_with_each_line(tmp_path: Path) -> None:
    evidence = site(World(tmp_path))
    assert guide_leftovers(evidence) == []
    snapshot = evidence.snapshots["pve/ssh"]
    text = b"/etc/modules:4:vfio_virqfd\n/etc/modules:5:vfio\n"
    told = replace(snapshot, answers={**snapshot.answers, GUIDE_LINES: ShellResult(0, text, b"")})
    (finding,) = guide_leftovers(replace(evidence, snapshots={**evidence.snapshots, "pve/ssh": told}))
    assert isinstance(finding, Diagnostic)
    assert (finding.code, finding.severity, len(finding.evidence)) == ("GUIDE_LEFTOVERS", Severity.WARNING, 1)


@pytest.mark.parametrize(
    ("row", "is_removable"),
    [
        ("/etc/modules:4:vfio_virqfd", True),
        (f"{MODPROBE}options vfio-pci ids=1002:73df", True),
        (f"{MODPROBE}options vfio-pci ids=1002:73df,10de:2204", False),  # the second one is declared
        (f"{MODPROBE}options vfio-pci ids=10de:1ff2", False),  # one of two is declared
        (f"{MODPROBE}options vfio-pci ids=1002:73df disable_idle_d3=1", False),
        (f'{MODPROBE}options vfio-pci ids="1002:73df,1002:ab28"', True),
        (f"{MODPROBE}options vfio-pci ids=10de:ffffffff", False),
        ("/etc/initramfs-tools/modules:9:vfio_pci ids=1002:73df", False),
        ("/etc/kernel/cmdline:1:root=a vfio_pci.ids=1002:1", False),
        (f'{GRUB}GRUB_CMDLINE_LINUX="video=efifb:off"', False),
    ],
)
def test_only_a_line_that_nothing_needs_may_go(row: str, is_removable: bool) -> None:
    loader = "grub" if row.startswith(GRUB) else "systemd-boot"
    found = list(leftovers(f"{row}\n", loader, FUNCTIONS, PASSED))
    assert {line.is_removable for line in found} == {is_removable}


def test_what_the_run_removes_is_no_warning(tmp_path: Path) -> None:
    text = INVENTORY.replace("    cards:", "    guide_lines: comment_out\n    cards:", 1)
    world = World(tmp_path)
    evidence = site(world, text)
    snapshot = evidence.snapshots["pve/ssh"]
    rows = b"/etc/modules:4:vfio_virqfd\n/etc/kernel/cmdline:1:root=a pcie_acs_override=downstream\n"
    told = replace(snapshot, answers={**snapshot.answers, GUIDE_LINES: ShellResult(0, rows, b"")})
    findings = guide_leftovers(replace(evidence, snapshots={**evidence.snapshots, "pve/ssh": told}))
    assert "vfio_virqfd" not in str(findings)
