"""The DHCP servers that an inventory may name: a line each."""

from __future__ import annotations

from collections.abc import Mapping

from provision.inventory.vocabulary import DhcpBackend

BACKENDS: Mapping[str, DhcpBackend] = {
    "manual": DhcpBackend("by hand", orders=("reserve_first", "boot_first"), tested=True),
    "static": DhcpBackend("nowhere", orders=("reserve_first",), tested=True),
    "dnsmasq": DhcpBackend(
        "ssh",
        ("address", "file"),
        orders=("reserve_first",),
        tested=True,
        router="provision.dhcp.backends.dnsmasq:Dnsmasq.declared",
    ),
    "openwrt": DhcpBackend(
        "ssh",
        ("address",),
        orders=("reserve_first",),
        router="provision.dhcp.backends.openwrt:OpenWrt.declared",
    ),
    "opnsense": DhcpBackend(
        "api",
        orders=("reserve_first",),
        router="provision.dhcp.backends.opnsense:OpnSense.declared",
    ),
    "unifi": DhcpBackend(
        "api",
        ("server",),
        orders=("reserve_first",),
        router="provision.dhcp.backends.unifi:UniFi.declared",
    ),
    "routeros": DhcpBackend(
        "api",
        ("server",),
        orders=("reserve_first",),
        router="provision.dhcp.backends.routeros:RouterOs.declared",
    ),
    "pihole": DhcpBackend(
        "api",
        orders=("reserve_first",),
        router="provision.dhcp.backends.pihole:PiHole.declared",
    ),
    "proxmox_sdn": DhcpBackend(
        "api",
        ("server",),
        orders=("reserve_first",),
        router="provision.dhcp.backends.proxmox_sdn:ProxmoxSdn.declared",
    ),
    "kea": DhcpBackend(
        "ssh",
        ("address", "file"),
        orders=("reserve_first",),
        tested=True,
        router="provision.dhcp.backends.kea:Kea.declared",
    ),
}
