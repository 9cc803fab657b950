"""VMs that get their addresses from cloud-init, without a DHCP server."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.proxmox import formats
from provision.values.outcomes import ExitCode
from tests.unit.proxmox.roles.world import INVENTORY, World

STATIC = INVENTORY.replace("backend: dnsmasq, ssh: { user: root },", "backend: static,")


class StaticWorld(World):
    """A site whose guests take the address of their cloud-init drive."""

    def _address_of(self, mac: str) -> str:
        for vm in self.pve.vms.values():
            if vm.config["net0"].lower().find(mac) >= 0:
                return formats.parse(vm.config["ipconfig0"])["ip"].partition("/")[0]
        return ""


def test_new_vms_get_their_declared_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provision.proxmox.driver.FIRST_POLL", 0.0)
    world = StaticWorld(tmp_path)
    world.write(STATIC)
    assert world.apply().exit_code == ExitCode.DONE
    configs = [vm.config for vm in world.pve.vms.values() if "ipconfig0" in vm.config]
    assert sorted(config["ipconfig0"] for config in configs) == [
        "ip=10.0.0.11/24,gw=10.0.0.1",
        "ip=10.0.0.12/24,gw=10.0.0.1",
    ]
    assert {config["nameserver"] for config in configs} == {"10.0.0.1"}
    assert world.plan().empty
    assert world.destroy().exit_code == ExitCode.DONE
