"""Addresses: reserved = leased = used."""

from __future__ import annotations

import re
import shlex

import pytest
from testinfra.host import Host

from provision.contracts.check import NotDeclared, Site
from provision.dhcp.dnsmasq_paths import CONFIGURATION, HOSTS_FOLDER, LEASE_FILE
from provision.hosts.names import ROUTER


@pytest.fixture
def folder(site: Site, vm: str) -> str:
    """The dhcp-hostsdir of a router with dnsmasq, where the VM's address is reserved there."""
    dhcp = site.inventory.dhcp
    if dhcp is None:
        raise NotDeclared("there is no DHCP server to look at")
    if dhcp.backend != "dnsmasq":
        raise NotDeclared(f"there is no check of reservations by {dhcp.backend}")
    if not site.inventory.nodes[vm].nics:
        raise NotDeclared("it has no network device")
    return (dhcp.file or HOSTS_FOLDER).rstrip("/")


def _mac(host: Host, address: str) -> str:
    """Return the MAC of the interface that holds an address."""
    text = host.check_output(
        "ip -o link show dev \"$(ip -o -4 addr show to %s | cut -d ' ' -f 2)\" "
        "| sed 's/.*link.ether \\([0-9a-f:]*\\).*/\\1/'",
        address,
    )
    assert text, f"no interface holds {address}"
    return str(text).lower()


def test_address_is_used(site: Site, node: str) -> None:
    """The node holds its declared address."""
    declared = site.inventory.nodes[node]
    address = str(declared.address)
    if declared.connection == "local" and address.startswith("127."):
        raise NotDeclared("the machine itself, by its loopback")
    host = site.host(f"{node}/ssh")
    fields = host.check_output("ip -o -4 addr show scope global").split()
    assert any(field.split("/")[0] == address for field in fields), " ".join(fields)


@pytest.mark.usefixtures("folder")
def test_address_is_leased(site: Site, vm: str) -> None:
    """The router leased the address to the VM's own MAC."""
    host = site.host(ROUTER)
    address = str(site.inventory.nodes[vm].address)
    mac = _mac(site.host(f"{vm}/ssh"), address)
    rows = host.check_output("cat %s", LEASE_FILE).lower().splitlines()
    assert any({mac, address} <= set(row.split()) for row in rows), f"no lease of {address} for {mac}"


def test_address_is_reserved(site: Site, vm: str, folder: str) -> None:
    """The router holds exactly one reservation of the address, for the VM's own MAC."""
    host = site.host(ROUTER)
    address = str(site.inventory.nodes[vm].address)
    mac = _mac(site.host(f"{vm}/ssh"), address)
    # A folder below another one is read twice, and counts once.
    row = shlex.quote(f"[,=]{re.escape(address)}(,|$)")
    places = f"{CONFIGURATION} {shlex.quote(folder)}"
    text = host.check_output(f"grep -rsHiE --exclude='.*' {row} {places} | sort -u || true")
    lines = [line.partition(":")[2].strip() for line in text.lower().splitlines()]
    holders = [line for line in lines if not line.startswith("#")]
    assert len(holders) == 1, f"{len(holders)} reservations: {holders}"
    assert mac in holders[0], f"reserved for another: {holders[0]}"
