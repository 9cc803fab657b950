"""Debian's packages of the GPU driver installed, and their modules really built, on a guest without a card.

Only in `make story-full`: it gets 230 MB from Debian's archive. What needs a card is not proven here: a
loaded module, nvidia-smi, a reboot.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.archive import ADDRESS, PORT, SOURCES, archive, is_reachable
from tests.e2e.site import Site, brought_up, inventory

PLAYBOOK = """name: driver
description: A guest with a driver.
steps:
  - { role: image, on: hypervisors }
  - { role: dhcp_reservation, on: [hypervisors, nodes.virtual] }
  - { role: virtual_machine, on: nodes.virtual }
  - { role: address, on: nodes.virtual }
  - { role: first_contact, on: nodes.virtual }
  - { role: base_os, on: nodes }
  - { role: host_resources, on: [hypervisors, nodes] }
  - { role: gpu_driver, on: nodes }
"""


pytestmark = [
    pytest.mark.full,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and containers"),
]
GUEST = "198.18.0.11"
PACKAGES = ("nvidia-smi", "libcuda1", "nvidia-kernel-dkms", "nvidia-persistenced", "linux-headers-amd64")
SMALL = {"kind": "file", "path": "/etc/initramfs-tools/conf.d/lab", "content": "MODULES=list\n"}
SOURCE_FILE = {"kind": "file", "path": "/etc/apt/sources.list.d/debian.list", "content": SOURCES}


def declared() -> dict[str, Any]:
    site = inventory("e2e-c-driver", nodes=1)
    site["proxy"] = {"url": f"http://{ADDRESS}:{PORT}"}
    site["profiles"]["small"] |= {
        "disk": "16GiB",
        "driver": {"origin": "debian", "kind": "proprietary", "hold": True},
        # The kernel that would boot next; a container has none. Its initramfs is made four times.
        "host_resources": [SOURCE_FILE, SMALL, {"kind": "package", "name": "linux-image-amd64"}],
    }
    return site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Site]:
    if not is_reachable():
        pytest.skip("Debian's package archive is not reachable")
    site = brought_up(Site(tmp_path_factory.mktemp("driver"), declared(), deadline=3600), request)
    (site.folder / "driver.yaml").write_text(PLAYBOOK)
    with archive(site):
        yield site


def apply(site: Site) -> dict[str, str]:
    done = site.apply("--json", "--playbook", site.folder / "driver.yaml").ended(0)
    return {step["role"]: step["outcome"] for step in done.events("step_ended") if step["subject"] == "vm-1"}


def test_1_packages_are_installed_held_and_their_modules_built(site: Site) -> None:
    assert apply(site)["gpu_driver"] == "changed"
    rows = site.on(GUEST, f"dpkg-query -W -f='${{Package}} ${{Status}}\\n' {' '.join(PACKAGES)}").splitlines()
    assert {row.split(maxsplit=1)[1] for row in rows} == {"hold ok installed"}, rows
    kernel = site.on(GUEST, "ls /boot/vmlinuz-* | sed 's,.*/vmlinuz-,,' | sort -V | tail -n 1").strip()
    status = site.on(GUEST, "dkms status").splitlines()
    assert any(kernel in line and line.startswith("nvidia") and "installed" in line for line in status), (
        status
    )
    module = site.on(GUEST, f"modinfo -k {kernel} -F version nvidia-current").strip()
    library = site.on(GUEST, "ls /usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.*.*")
    assert library.strip().endswith(f"so.{module}")


def test_2_a_second_apply_changes_nothing(site: Site) -> None:
    assert set(apply(site).values()) == {"unchanged"}


def test_3_the_module_of_the_next_boot_is_proven_without_a_card(site: Site) -> None:
    done = site.provision("verify", site.file, "--json")
    assert "Traceback" not in done.said
    outcomes = {
        "The kernel that boots next has a module": "proven",
        "Neither nouveau nor nova is loaded": "proven",
        "The driver's packages are kept from upgrades": "proven",
        "Every GPU that the kernel sees has the driver": "unknown",
        "The loaded driver is of the declared version": "trivial",
    }
    checks = [check for check in done.events("check") if check["subject"] == "vm-1"]
    told = {name: check["outcome"] for name in outcomes for check in checks if check["name"].startswith(name)}
    assert told == outcomes


def test_4_nothing_of_the_lab_is_left(site: Site) -> None:
    site.down()
