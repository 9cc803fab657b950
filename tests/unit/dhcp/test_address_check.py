"""The checks of reservations and leases on Kea and OpenWrt, on what those print."""

from __future__ import annotations

import json
import socketserver
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from provision.contracts.check import NotDeclared, Trivial
from provision.dhcp.checks import test_address as checks

MAC, OTHER, ADDRESS = "bc:24:11:00:00:01", "bc:24:11:00:00:02", "192.168.1.20"
CONFIG: dict[str, dict[str, Any]] = {
    "Dhcp4": {
        "secret-of-somebody": "hunter2",
        "reservations": [],
        "shared-networks": [{"subnet4": [{"reservations": [{"hw-address": MAC, "ip-address": ADDRESS}]}]}],
        "subnet4": [{"reservations": [{"hw-address": OTHER, "ip-address": "192.168.1.21"}]}],
    }
}
UCI = f"""\
dhcp.@dnsmasq[0]=dnsmasq
dhcp.provision_site_vm=host
dhcp.provision_site_vm.name='vm'
dhcp.provision_site_vm.mac='{MAC.upper()}'
dhcp.provision_site_vm.ip='{ADDRESS}'
dhcp.lan=dhcp
"""


@dataclass
class FakeHost:
    """What a host prints, by the beginning of the command."""

    outputs: dict[str, str] = field(default_factory=dict)

    def check_output(self, command: str, *words: object) -> str:
        del words
        return next(text for start, text in self.outputs.items() if command.startswith(start))

    def run(self, command: str, *words: object) -> SimpleNamespace:
        del words
        return SimpleNamespace(rc=0 if any(command.startswith(start) for start in self.outputs) else 1)


def site_of(backend: str, router: FakeHost) -> Any:
    guest = FakeHost({"ip -o link": MAC})
    inventory = SimpleNamespace(
        dhcp=SimpleNamespace(backend=backend, file=None),
        nodes={"vm": SimpleNamespace(address=ADDRESS, is_virtual=True, nics=(1,))},
        hypervisors={},
    )
    return SimpleNamespace(inventory=inventory, host=lambda name: guest if name == "vm/ssh" else router)


def judge(backend: str, router: FakeHost) -> None:
    site = site_of(backend, router)
    checks.test_address_is_reserved(site, "vm", site.inventory.dhcp)
    checks.test_address_is_leased(site, "vm", site.inventory.dhcp)


RESERVED = f"reserved {MAC} {ADDRESS}\n"
LEASED = f"leased address hwaddr\nleased {ADDRESS} {MAC} 01:x 3600 1795960000\n"
LEASE = f"1795960000 {MAC} {ADDRESS} vm *\n"


def openwrt(shown: str = UCI, leases: str = LEASE) -> FakeHost:
    return FakeHost({"uci show": shown, "f=$(uci": leases})


@pytest.mark.parametrize(
    ("backend", "router", "words"),
    [
        ("kea", FakeHost({"python3": RESERVED + LEASED}), ""),
        ("kea", FakeHost({"python3": LEASED}), "0 reservations"),
        ("kea", FakeHost({"python3": RESERVED.replace(MAC, OTHER) + LEASED}), "reserved for another"),
        ("kea", FakeHost({"python3": RESERVED}), "no lease"),
        ("openwrt", openwrt(), ""),
        ("openwrt", openwrt(UCI.replace(ADDRESS, "192.168.1.9")), "0 reservations"),
        ("openwrt", openwrt(UCI + UCI.replace("_vm", "_again")), "2 reservations"),
        ("openwrt", openwrt(UCI.replace(MAC.upper(), OTHER)), "reserved for another"),
        ("openwrt", openwrt(leases=""), "no lease"),
        ("openwrt", openwrt(leases=f"# lan bc2411000001 ipv4 vm 1764 c0 32 {ADDRESS}/32\n"), ""),
        ("openwrt", openwrt(leases=f"# lan bc:24:11:0:0:1 ipv4 vm -1 c0 32 {ADDRESS}/32\n"), ""),
        ("openwrt", openwrt(leases=f"# lan bc2411000002 ipv4 vm 1764 c0 32 {ADDRESS}/32\n"), "no lease"),
    ],
)
def test_a_check_is_red_for_what_is_wrong_alone(backend: str, router: FakeHost, words: str) -> None:
    if not words:
        judge(backend, router)
        return
    with pytest.raises(AssertionError, match=words):
        judge(backend, router)


@pytest.mark.parametrize(
    ("declared", "answered", "is_right"),
    [(None, MAC, True), (None, OTHER, False), (MAC.upper(), OTHER, True), (OTHER, MAC, False)],
    ids=["asked", "asked, another", "declared", "declared, another"],
)
def test_a_hypervisor_s_reservation_has_the_mac_that_is_declared_or_asked(
    declared: str | None, answered: str, is_right: bool
) -> None:
    site = site_of("kea", FakeHost({"python3": RESERVED}))
    site.inventory.hypervisors["vm"] = SimpleNamespace(
        address=ADDRESS, reserve_address=True, mac=declared, bridge="vmbr0"
    )
    site.host("vm/ssh").outputs["test -e"] = ""
    site.host("vm/ssh").outputs["ip -o link"] = answered
    if is_right:
        checks.test_address_is_reserved(site, "vm", site.inventory.dhcp)
        return
    with pytest.raises(AssertionError, match="reserved for another"):
        checks.test_address_is_reserved(site, "vm", site.inventory.dhcp)


def test_a_container_without_the_bridge_has_no_reservation_to_prove() -> None:
    site = site_of("kea", FakeHost({"python3": LEASED}))
    hypervisor = SimpleNamespace(address=ADDRESS, reserve_address=True, mac=None, bridge="vmbr0")
    site.inventory.hypervisors["vm"] = hypervisor
    with pytest.raises(Trivial, match="no bridge vmbr0"):
        checks.test_address_is_reserved(site, "vm", site.inventory.dhcp)


def test_nothing_is_claimed_of_an_address_that_nobody_reserves() -> None:
    site = site_of("kea", FakeHost({"python3": RESERVED}))
    site.inventory.hypervisors["pve"] = SimpleNamespace(address=ADDRESS, reserve_address=False)
    site.inventory.nodes["metal"] = SimpleNamespace(address=ADDRESS, is_virtual=False)
    for machine in ("pve", "metal"):
        with pytest.raises(NotDeclared):
            checks.test_address_is_reserved(site, machine, site.inventory.dhcp)


class _Kea(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        command = json.loads(self.request.recv(65536))["command"]
        answer = {"result": 0, "arguments": CONFIG if command == "config-get" else {}}
        self.request.sendall(json.dumps(answer).encode())


def test_of_kea_s_configuration_only_reservations_are_printed(tmp_path: Path) -> None:
    path = str(tmp_path / "kea.sock")
    leases = tmp_path / "leases.csv"
    leases.write_text(f"address,hwaddr\n{ADDRESS},{MAC}\n")
    CONFIG["Dhcp4"]["lease-database"] = {"name": str(leases)}
    with socketserver.UnixStreamServer(path, _Kea) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        text = subprocess.check_output([sys.executable, "-c", checks.KEA, path], text=True, timeout=60)
        server.shutdown()
    assert text.splitlines() == [
        f"reserved {OTHER} 192.168.1.21",
        f"reserved {MAC} {ADDRESS}",
        "leased address hwaddr",
        f"leased {ADDRESS} {MAC}",
    ]
