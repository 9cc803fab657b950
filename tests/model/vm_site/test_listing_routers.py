"""Kea and OpenWrt as routers of a site: reserve, prove, change nothing, give back."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.testing.model_dhcp import LISTED
from provision.values.outcomes import ExitCode
from tests.unit.proxmox.roles.world import INVENTORY, World


class ListingWorld(World):
    """A site whose router lists its reservations by a command."""

    def reserved(self) -> dict[str, str]:
        rows = [
            (file.content or b"").decode().split("\t")
            for path, file in list(self.router.files.items())
            if path.startswith(LISTED)
        ]
        return {mac: address for mac, address, _ in rows}

    def _address_of(self, mac: str) -> str:
        return self.reserved().get(mac, "10.0.0.150")


@pytest.mark.parametrize("backend", ["kea", "openwrt"])
def test_addresses_are_reserved_proved_and_given_back(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provision.proxmox.driver.FIRST_POLL", 0.0)
    world = ListingWorld(tmp_path)
    world.write(INVENTORY.replace("backend: dnsmasq", f"backend: {backend}"))
    assert world.apply().exit_code == ExitCode.DONE
    assert sorted(world.reserved().values()) == ["10.0.0.11", "10.0.0.12"]
    assert world.plan().empty
    assert world.destroy().exit_code == ExitCode.DONE
    assert world.reserved() == {}
