"""The same inventory on each release: one apply brings it about, a second one changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.gpu.roles.gpu_driver import meta_of
from provision.hosts.resources.pci import PciFunction
from provision.testing.model_gpu import archive_drivers
from provision.testing.model_host import ModelFunction
from provision.testing.model_releases import RELEASES, release_state
from tests.model.k3s_site import K3sSite

NODE = """
  s1:
    address: 198.51.100.1
    k3s: server
    hostname: s1
    timezone: Europe/Berlin
    ntp: [198.51.100.250]
    swap: off
    packages: [jq]
    sysctl: { vm.swappiness: 1 }
    modules: [br_netfilter]
    hosts: { registry.lab: 198.51.100.3 }
    unattended_upgrades: keep_kernel
    driver: { origin: ORIGIN, hold: true }
    gpu_cards: { count: 1 }
"""


def site_of(folder: Path, name: str) -> K3sSite:
    release = RELEASES[name]
    origin = "debian" if release.id == "debian" else "ubuntu, branch: 580-server"
    site = K3sSite(folder, NODE.replace("ORIGIN", origin))
    host = site.hosts["s1/ssh"]
    link = host.state.commands["link"]
    host.state = release_state(name)
    host.state.commands["link"] = link
    card = PciFunction("0000:01:00.0", "10de", "2204", "030200")
    host.state.functions = [ModelFunction(card, ("nouveau",), "nouveau")]
    host.state.modules.add("nouveau")
    archive_drivers(host.state, release.id)
    host.state.archive[release.headers] = (("1", release.id.capitalize()),)
    object.__setattr__(site.inventory.policy, "allow", ("restart-k3s", "reboot-node"))
    return site


@pytest.mark.parametrize("name", RELEASES)
def test_each_release_becomes_a_node(tmp_path: Path, name: str) -> None:
    site, release = site_of(tmp_path, name), RELEASES[name]
    report = site.apply()
    assert report.exit_code == 0, [(d.code, d.summary) for step in report.steps for d in step.diagnostics]
    state = site.hosts["s1/ssh"].state
    # The daemon that is there is used: no release gets a second one.
    assert ("chrony" in state.packages) is (release.daemon == "chrony")
    assert ("systemd-timesyncd" in state.packages) is (release.daemon == "systemd-timesyncd")
    if release.id == "debian":  # Ubuntu's modules are prebuilt and need no headers
        assert release.headers in state.packages
    else:
        assert "linux-modules-nvidia-580-server-open-generic" in state.packages
    assert state.loaded_driver
    second = site.apply()
    assert {str(step.outcome) for step in second.steps} == {"unchanged"}
    assert second.trips["s1/ssh"] == 1


KERNELS = [
    # origin, meta packages that are installed, kernel, suffix of modules and headers
    ("debian", (), "6.1.0-37-amd64", "amd64"),
    ("debian", (), "6.12.43+deb13-cloud-amd64", "cloud-amd64"),
    ("debian", (), "6.12.32-amd64", "amd64"),
    ("debian", (), "6.12.43+bpo-amd64", "amd64"),
    ("debian", (), "6.5.0-0.deb12.4-amd64", "amd64"),
    ("nvidia", (), "6.12.43+deb13-amd64", "amd64"),
    ("ubuntu", (), "6.8.0-79-generic", "generic"),
    ("ubuntu", (), "6.17.0-1029-nvidia", "nvidia"),
    ("ubuntu", ("linux-image-nvidia-hwe-24.04",), "6.17.0-1029-nvidia", "nvidia-hwe-24.04"),
    ("ubuntu", ("linux-image-virtual-hwe-26.04",), "7.2.0-3-generic", "generic-hwe-26.04"),
    ("ubuntu", ("linux-image-lowlatency",), "6.8.0-79-lowlatency", "lowlatency"),
    ("ubuntu", ("linux-image-virtual",), "6.8.0-79-generic", "generic"),
]  # fmt: skip


@pytest.mark.parametrize(("origin", "installed", "kernel", "suffix"), KERNELS)
def test_modules_follow_the_kernel_of_each_release(
    origin: str, installed: tuple[str, ...], kernel: str, suffix: str
) -> None:
    assert meta_of(origin, dict.fromkeys(installed, True), kernel) == suffix
