"""A guest whose root filesystem lies on a logical volume: it grows from partition to filesystem."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from tests.e2e.site import Site, brought_up

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and virtual machines"),
]
LAB = Path(__file__).parents[2] / "inventories/lab.yaml"
ADDRESS = "198.18.0.11"
DISK_GIB = 8


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Site:
    declared = yaml.safe_load(LAB.read_text())
    declared |= {"name": "e2e-lvm", "images": {"debian-12-lvm": {}}}
    for each in ("cards", "host_resources"):
        del declared["hypervisors"]["pve"][each]
    del declared["lab"]["hypervisor"]["cards"]
    small = declared["profiles"]["small"]
    small |= {"image": "debian-12-lvm", "disk": f"{DISK_GIB}GiB", "host_resources": []}
    small["swap"] = "off"  # which YAML 1.1 takes for false
    declared["nodes"] = {"vm-1": {"profile": "small", "vmid": 201, "address": ADDRESS}}
    return brought_up(Site(tmp_path_factory.mktemp("lvm"), declared, deadline=2400), request)


def test_the_volume_and_its_filesystem_fill_the_disk(site: Site) -> None:
    site.apply().ended(0)
    script = "findmnt -no SOURCE /; df -B1 --output=size / | tail -n 1; vgs --noheadings -o vg_free --units b"
    said = site.on(ADDRESS, script)
    source, size, free = said.split()
    assert source.startswith("/dev/mapper/")
    assert int(size) > (DISK_GIB - 1) << 30
    assert int(free.rstrip("B")) < 16 << 20


def test_it_stays_as_it_is(site: Site) -> None:
    site.provision("plan", site.file, "--detailed-exitcode").ended(0)
    site.provision("verify", site.file, "--strict").ended(0)
