"""Addresses: reserved = leased = used."""

from __future__ import annotations

import re

import pytest
from testinfra.host import Host

from provision.inventory import Subject
from provision.roles import dhcp_reservation
from provision.verify.plugin import NotDeclared, Site


@pytest.fixture
def router(site: Site, vm: str) -> Host:
    """The router by SSH, where the VM's address is reserved there."""
    dhcp = site.inventory.network.dhcp if site.inventory.network else None
    if dhcp is None or dhcp.backend != "dnsmasq":
        raise NotDeclared("the router is not reached by SSH")
    if not dhcp_reservation.declared(site.inventory, Subject("node", vm)):
        raise NotDeclared("its address is not reserved")
    return site.host("router")


def _mac(host: Host, address: str) -> str:
    """Return the MAC of the interface that holds an address."""
    text = host.check_output(
        "ip -o link show dev \"$(ip -o -4 addr show to %s | cut -d ' ' -f 2)\" "
        "| sed 's/.*link.ether \\([0-9a-f:]*\\).*/\\1/'",
        address,
    )
    return str(text).lower()


def test_address_is_used(site: Site, node: str) -> None:
    """The node holds its declared address."""
    host = site.host(f"{node}/ssh")
    address = str(site.inventory.nodes[node].address)
    seen = host.check_output("ip -o -4 addr show scope global").split()
    assert any(each.split("/")[0] == address for each in seen), " ".join(seen)


def test_address_is_leased(site: Site, vm: str, router: Host) -> None:
    """The router leased the address to the VM's own MAC."""
    address = str(site.inventory.nodes[vm].address)
    mac = _mac(site.host(f"{vm}/ssh"), address)
    rows = router.check_output("cat /var/lib/misc/dnsmasq.leases").lower().splitlines()
    assert any(row.split()[1:3] == [mac, address] for row in rows), f"no lease of {address} for {mac}"


def test_address_is_reserved(site: Site, vm: str, router: Host) -> None:
    """The router holds exactly one reservation of the address, for the VM's own MAC."""
    address = str(site.inventory.nodes[vm].address)
    mac = _mac(site.host(f"{vm}/ssh"), address)
    network = site.inventory.network
    folder = network.dhcp.file if network and network.dhcp else None
    # A folder below another one is read twice: each line counts once for its file.
    rows = router.check_output(
        "grep -rsHiE --exclude='.*' %s /etc/dnsmasq.d /etc/dnsmasq.conf %s | sort -u || true",
        f"[,=]{re.escape(address)}(,|$)",
        (folder or "/etc/dnsmasq.d").rstrip("/"),
    )
    found = [row.partition(":")[2].strip() for row in rows.lower().splitlines()]
    holders = [row for row in found if not row.startswith("#")]
    assert len(holders) == 1, f"{len(holders)} reservations: {holders}"
    assert mac in holders[0], f"reserved for another: {holders[0]}"
