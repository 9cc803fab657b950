"""A router that is no dnsmasq, served by one class and its registration: no role knows the difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from provision.api.domains import domains
from provision.contracts.domain import Domain
from provision.contracts.snapshot import Snapshot
from provision.dhcp.contract import Capabilities, Lease, Reservation
from provision.hosts.queries.file import FileText
from provision.hosts.resources.file import File
from provision.inventory.models.site import Dhcp
from provision.inventory.vocabulary import DhcpBackend
from provision.testing.model_host import ModelFile
from provision.values.diagnostics import Source
from provision.values.outcomes import ExitCode
from tests.unit.proxmox.roles.world import INVENTORY, LEASES, World

OURS = "/etc/ethers.d/"
OTHERS = FileText("/etc/ethers")


@dataclass(frozen=True, slots=True)
class Ethers:
    """Reads `mac address name` from files; ours are named after their hosts."""

    capabilities: ClassVar[Capabilities] = Capabilities(acts_at_once=False, in_range=True, persists=True)
    system: str
    prefix: str

    @classmethod
    def declared(cls, system: str, prefix: str, dhcp: Dhcp) -> Ethers:
        assert dhcp.backend == "ethers"
        return cls(system, prefix)

    def queries(self) -> tuple[Any, ...]:
        return (OTHERS, FileText(LEASES))

    def reservations(self, snapshot: Snapshot, /) -> tuple[Reservation, ...]:
        return tuple(
            Reservation(mac, address, name, OTHERS.path) for mac, address, name in rows(snapshot[OTHERS])
        )

    def leases(self, snapshot: Snapshot, /) -> tuple[Lease, ...]:
        return tuple(Lease(mac, address) for _, mac, address, *_ in rows(snapshot[FileText(LEASES)]))

    def place(self, name: str) -> str:
        return f"{OURS}{self.prefix}{name}"

    def entry(self, reservation: Reservation, *, absent: bool, source: Source | None) -> File:
        line = f"{reservation.mac} {reservation.address} {reservation.name}\n".encode()
        return File(
            self.system, self.place(reservation.name), None if absent else line, absent=absent, source=source
        )


def rows(answer: bytes | None) -> Iterator[list[str]]:
    for line in (answer or b"").decode().splitlines():
        yield line.split()


class OtherWorld(World):
    """A site whose router reads other files."""

    def reserved(self) -> dict[str, str]:
        rows = [file.content.decode().split() for path, file in self.router.files.items() if OURS in path]
        return {mac: address for mac, address, _ in rows}

    def _address_of(self, mac: str) -> str:
        return self.reserved().get(mac, "10.0.0.150")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OtherWorld:
    backend = DhcpBackend(
        "ssh", ("address",), orders=("reserve_first",), router=f"{__name__}:Ethers.declared"
    )
    added = Domain("ethers", backends={"ethers": backend})
    monkeypatch.setattr("provision.api.domains.domains", lambda: (*domains(), added))
    monkeypatch.setattr("provision.proxmox.driver.FIRST_POLL", 0.0)
    made = OtherWorld(tmp_path)
    made.write(INVENTORY.replace("backend: dnsmasq", "backend: ethers"))
    return made


def test_addresses_are_reserved_proved_and_given_back(world: OtherWorld) -> None:
    assert world.apply().exit_code == ExitCode.DONE
    assert sorted(world.reserved().values()) == ["10.0.0.11", "10.0.0.12"]
    assert world.plan().empty
    assert world.destroy().exit_code == ExitCode.DONE
    assert world.reserved() == {}


def test_address_reserved_for_another_client_is_refused_before_any_change(
    world: OtherWorld,
) -> None:
    world.router.files[OTHERS.path] = ModelFile(b"52:54:00:00:00:01 10.0.0.11 printer\n")
    refused = world.plan().refusals
    assert [each.code for each in refused] == ["IP_LEASED_TO_OTHER"]
    assert world.reserved() == {}
