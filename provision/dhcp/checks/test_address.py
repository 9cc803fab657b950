"""Addresses: reserved = leased = used."""

from __future__ import annotations

import http
import json
import re
import shlex
from urllib.parse import quote

import pytest
from testinfra.host import Host

from provision.contracts.check import NotDeclared, Site, Trivial
from provision.dhcp.dnsmasq_paths import CONFIGURATION, HOSTS_FOLDER, LEASE_FILE
from provision.hosts.names import ROUTER
from provision.inventory.models.site import Dhcp

UCI_LEASES = (
    "f=$(uci show dhcp | sed -n \"s/^dhcp[.].*[.]leasefile='\\(.*\\)'$/\\1/p\");"
    " cat ${f:-/tmp/dhcp.leases} 2>/dev/null || true"
)
KEA = """import json, socket, sys
def ask(command):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(sys.argv[1])
    s.sendall(json.dumps({"command": command}).encode())
    text = b""
    while True:
        part = s.recv(65536)
        text += part
        try:
            return json.loads(text).get("arguments", {})
        except ValueError:
            if not part:
                return {}
dhcp = ask("config-get").get("Dhcp4", {})
held = list(dhcp.get("reservations", []))
nets = list(dhcp.get("subnet4", []))
for shared in dhcp.get("shared-networks", []):
    nets += shared.get("subnet4", [])
for net in nets:
    held += net.get("reservations", [])
for one in held:
    print("reserved", one.get("hw-address", "-"), one.get("ip-address", "-"))
name = dhcp.get("lease-database", {}).get("name") or "kea-leases4.csv"
name = name if name.startswith("/") else "/var/lib/kea/" + name
for path in (name + ".2", name):
    try:
        for line in open(path):
            print("leased", line.strip().replace(",", " "))
    except OSError:
        pass
"""
"""Prints reservations and leases of Kea, and nothing else of its configuration."""
KEA_SOCKET = "/run/kea/kea4-ctrl-socket"
WEB = {
    "opnsense": (
        ("/api/kea/dhcpv4/searchReservation?current=1&rowCount=-1", "hw_address", "ip_address"),
        ("/api/kea/leases4/search?current=1&rowCount=-1", "hwaddr", "address"),
    ),
    "unifi": (("/api/s/{}/rest/user", "mac", "fixed_ip"), ("/api/s/{}/stat/sta", "mac", "ip")),
    "routeros": (
        ("/rest/ip/dhcp-server/lease?dynamic=false", "mac-address", "address"),
        ("/rest/ip/dhcp-server/lease?status=bound", "active-mac-address", "active-address"),
    ),
    "proxmox_sdn": (("/api2/json/cluster/sdn/ipams/pve/status", "mac", "ip"), ("", "", "")),
    "pihole": (("/api/config/dhcp/hosts", "", ""), ("/api/dhcp/leases", "hwaddr", "ip")),
}
"""Reservations and leases of routers with a web API: path, member with the MAC, member with the address.

Pi-hole's reservations are lines with commas, without members.
"""


@pytest.fixture
def router(site: Site) -> Dhcp:
    """The router that reserves addresses, where there is a check of it."""
    dhcp = site.inventory.dhcp
    if dhcp is None:
        raise NotDeclared("there is no DHCP server to look at")
    if dhcp.backend not in {"dnsmasq", "kea", "openwrt", *WEB}:
        raise NotDeclared(f"there is no check of reservations by {dhcp.backend}")
    return dhcp


def _reserved_for(site: Site, machine: str) -> tuple[str, str]:
    """Return the address that is reserved for a machine, and the machine's own MAC.

    Raises:
        NotDeclared: nothing is reserved for it.
        Trivial: a container of the lab has no bridge.
    """
    hypervisor = site.inventory.hypervisors.get(machine)
    if hypervisor is None:
        node = site.inventory.nodes[machine]
        if not node.is_virtual or not node.nics:
            raise NotDeclared("it is not a VM with a network device")
        return str(node.address), _mac(site.host(f"{machine}/ssh"), str(node.address))
    if not hypervisor.reserve_address:
        raise NotDeclared("its address is not reserved")
    address, host = str(hypervisor.address), site.host(f"{machine}/ssh")
    if hypervisor.mac:
        return address, hypervisor.mac.lower()
    if host.run("test -e %s", f"/sys/class/net/{hypervisor.bridge}/address").rc:
        raise Trivial(f"it has no bridge {hypervisor.bridge}, by whose MAC its address would be reserved")
    return address, _mac(host, address)


def _kea(host: Host, router: Dhcp, kind: str) -> list[set[str]]:
    text = host.check_output("python3 -c %s %s", KEA, router.file or KEA_SOCKET).lower()
    rows = (line.partition(" ") for line in text.splitlines())
    return [set(row.split()) for word, _, row in rows if word == kind]


def _web(site: Site, router: Dhcp, kind: int) -> list[set[str]]:
    """Return MAC and address of the reservations (0) or leases (1) of a router with a web API."""
    path, mac, address = WEB[router.backend][kind]
    reply = site.get(ROUTER, path.format(quote(router.server or "default", safe="")))
    assert reply.status == http.HTTPStatus.OK, f"{reply.status} {reply.text}"
    answer = json.loads(reply.text)
    if not mac:
        return [set(line.lower().split(",")) for line in answer["config"]["dhcp"]["hosts"]]
    lists = (
        [answer.get(name) for name in ("rows", "data", "leases")] if isinstance(answer, dict) else [answer]
    )
    rows = next((rows for rows in lists if rows is not None), None)
    assert isinstance(rows, list), f"no list: {reply.text[:200]}"
    fixed = [row for row in rows if kind or row.get("use_fixedip", True)]
    return [{str(row.get(mac)).lower().replace("-", ":"), str(row.get(address))} for row in fixed]


def _uci_reserved(host: Host, address: str) -> list[str]:
    """Return what the sections of OpenWrt with an address say, each as one line."""
    sections: dict[str, list[str]] = {}
    for line in host.check_output("uci show dhcp").lower().splitlines():
        name, _, value = line.partition("=")
        sections.setdefault(".".join(name.split(".")[:2]), []).append(value.strip("'"))
    return [" ".join(values) for values in sections.values() if "host" in values and address in values]


def _lease_words(line: str) -> set[str]:
    """Return the words of a lease; odhcpd has `bc2411000001` or `bc:24:11:0:0:1`, and `192.168.1.21/32`."""
    words = set(line.split())
    for word in line.split():
        bytes_of_mac = re.findall("..", word) if re.fullmatch("[0-9a-f]{12}", word) else word.split(":")
        words |= {":".join(byte.zfill(2) for byte in bytes_of_mac), word.removesuffix("/32")}
    return words


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


def test_address_is_leased(site: Site, vm: str, router: Dhcp) -> None:
    """The router leased the address to the VM's own MAC."""
    address, mac = _reserved_for(site, vm)
    if router.backend == "proxmox_sdn":
        raise NotDeclared("Proxmox VE lists no leases")
    if router.backend in WEB:
        assert {mac, address} in _web(site, router, 1), f"no lease of {address} for {mac}"
        return
    host = site.host(ROUTER)
    if router.backend == "kea":
        rows = _kea(host, router, "leased")
    else:
        text = (
            host.check_output(UCI_LEASES)
            if router.backend == "openwrt"
            else host.check_output("cat %s", LEASE_FILE)
        )
        rows = [_lease_words(line) for line in text.lower().splitlines()]
    assert any({mac, address} <= row for row in rows), f"no lease of {address} for {mac}"


def test_address_is_reserved(site: Site, machine: str, router: Dhcp) -> None:
    """The router holds exactly one reservation of the address, for the machine's own MAC."""
    address, mac = _reserved_for(site, machine)
    if router.backend in WEB:
        holders = [" ".join(sorted(row)) for row in _web(site, router, 0) if address in row]
    elif router.backend == "kea":
        rows = _kea(site.host(ROUTER), router, "reserved")
        holders = [" ".join(sorted(row)) for row in rows if address in row]
    elif router.backend == "openwrt":
        holders = _uci_reserved(site.host(ROUTER), address)
    else:
        holders = _dnsmasq_reserved(site.host(ROUTER), router, address)
    assert len(holders) == 1, f"{len(holders)} reservations: {holders}"
    assert mac in holders[0], f"reserved for another: {holders[0]}"


def _dnsmasq_reserved(host: Host, router: Dhcp, address: str) -> list[str]:
    folder = (router.file or HOSTS_FOLDER).rstrip("/")
    # A folder below another one is read twice, and counts once.
    row = shlex.quote(f"[,=]{re.escape(address)}(,|$)")
    places = f"{CONFIGURATION} {shlex.quote(folder)}"
    text = host.check_output(f"grep -rsHiE --exclude='.*' {row} {places} | sort -u || true")
    lines = [line.partition(":")[2].strip() for line in text.lower().splitlines()]
    return [line for line in lines if not line.startswith("#")]
