"""Addresses: reserved = leased = used."""

from __future__ import annotations

import pytest
from testinfra.host import Host

from provision.contracts.check import NotDeclared, Site
from provision.dhcp.contract import SshRouter
from provision.dhcp.roles import dhcp_reservation
from provision.inventory import Subject


@pytest.fixture
def router(site: Site, vm: str) -> SshRouter:
    """The router by SSH, where the VM's address is reserved there."""
    found = dhcp_reservation.router(site.inventory)
    if not isinstance(found, SshRouter):
        raise NotDeclared("the router is not reached by SSH")
    if not dhcp_reservation.declared(site.inventory, Subject("node", vm)):
        raise NotDeclared("its address is not reserved")
    return found


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


def test_address_is_leased(site: Site, vm: str, router: SshRouter) -> None:
    """The router leased the address to the VM's own MAC."""
    host = site.host(router.system)
    address = str(site.inventory.nodes[vm].address)
    mac = _mac(site.host(f"{vm}/ssh"), address)
    rows = host.check_output(router.lease_rows()).lower().splitlines()
    assert any({mac, address} <= set(row.split()) for row in rows), f"no lease of {address} for {mac}"


def test_address_is_reserved(site: Site, vm: str, router: SshRouter) -> None:
    """The router holds exactly one reservation of the address, for the VM's own MAC."""
    host = site.host(router.system)
    address = str(site.inventory.nodes[vm].address)
    mac = _mac(site.host(f"{vm}/ssh"), address)
    rows = host.check_output(router.reservation_rows(address))
    found = [row.partition(":")[2].strip() for row in rows.lower().splitlines()]
    holders = [row for row in found if not row.startswith("#")]
    assert len(holders) == 1, f"{len(holders)} reservations: {holders}"
    assert mac in holders[0], f"reserved for another: {holders[0]}"
