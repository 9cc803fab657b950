"""An IOMMU that is off: whose it is to switch it on, and whether this run does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from provision.api import preflight
from provision.contracts.effect import Effect
from provision.contracts.rule import UnknownYet
from provision.hosts import host_effects
from provision.hosts.resources.kernel import KernelArguments
from provision.hosts.resources.pci import IommuStatus
from provision.proxmox.preflight.iommu import iommu_off
from provision.testing.model_host import ModelFile
from tests.unit.proxmox.preflight.test_rules import site
from tests.unit.proxmox.roles.world import World

ON = ("intel_iommu=on",)
CASES = (
    # table, CPU, arguments of the running kernel, arguments of this run, what is said
    ("DMAR", "GenuineIntel", "ro", ON, None),
    ("DMAR", "GenuineIntel", "ro", ("intel_iommu=on,igfx_off",), None),
    ("DMAR", "AuthenticAMD", "ro", ON, None),  # an emulated CPU beside an Intel IOMMU
    ("DMAR", "GenuineIntel", "ro", ("nomodeset",), "this run does not set intel_iommu=on"),
    ("DMAR", "GenuineIntel", "ro", (), "this run does not set intel_iommu=on"),
    ("DMAR", "GenuineIntel", "ro iommu=pt", (), "this run does not set intel_iommu=on"),
    ("DMAR", "GenuineIntel", "ro intel_iommu=on", ON, "although the kernel has intel_iommu=on"),
    ("DMAR", "GenuineIntel", "ro intel-iommu=igfx_off,on", ON, "although the kernel has intel_iommu=on"),
    (
        "DMAR",
        "GenuineIntel",
        "ro intel_iommu=on intel_iommu=off",
        ON,
        "off because its kernel has intel_iommu=off",
    ),
    (
        "DMAR",
        "GenuineIntel",
        "ro intel_iommu=off intel_iommu=on",
        ON,
        "although the kernel has intel_iommu=on",
    ),
    ("DMAR", "GenuineIntel", "ro iommu=off", ON, "off because its kernel has iommu=off"),
    ("DMAR", "GenuineIntel", 'ro x="intel_iommu=on"', ON, None),
    ("", "GenuineIntel", "ro", ON, "the firmware of pve offers no IOMMU"),
    ("IVRS", "AuthenticAMD", "ro", (), "AMD hosts need no kernel argument"),
    ("IVRS", "AuthenticAMD", "ro iommu=pt", ON, "AMD hosts need no kernel argument"),
    ("IVRS", "AuthenticAMD", "ro amd_iommu=off", (), "off because its kernel has amd_iommu=off"),
    ("", "AuthenticAMD", "ro", (), "the firmware of pve offers no IOMMU"),
)


@pytest.mark.parametrize(("table", "cpu", "active", "planned", "said"), CASES)
def test_an_iommu_that_is_off_names_who_switches_it_on(
    tmp_path: Path, table: str, cpu: str, active: str, planned: tuple[str, ...], said: str | None
) -> None:
    world = World(tmp_path)
    world.host.files["/proc/cmdline"] = ModelFile()
    world.host.iommu = IommuStatus((), 0, cpu=cpu, table=table)
    world.host.cmdline = active
    evidence = site(world)
    reboot = Effect(host_effects.REBOOT_HYPERVISOR)
    arguments = KernelArguments("pve/ssh", planned, "grub", reboot)
    (finding,) = iommu_off(replace(evidence, resources=(*evidence.resources, arguments)))
    if said is None:
        assert isinstance(finding, UnknownYet)
        assert "comes with this run" in finding.reason
    else:
        assert not isinstance(finding, UnknownYet)
        assert (finding.code, finding.evidence) == ("IOMMU_OFF", (f"/proc/cmdline: {active}",))
        assert said in finding.summary
        assert finding.remedy


def test_an_iommu_that_works_is_not_looked_at(tmp_path: Path) -> None:
    evidence = site(World(tmp_path))
    assert not preflight.check(evidence)
