"""The first inventory of a host, from what was found on it."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from provision.hosts.cards import HostCard, cards_of
from provision.proxmox.discovery import PROFILE, Discovered, key_of
from provision.proxmox.privileges import USER
from provision.proxmox.setup import ProxmoxHost, StorageChoice
from provision.proxmox.yaml_text import comment, quoted

_ALONE = 31
"""Prefix lengths from here on leave no address for a VM."""


@dataclass(frozen=True, slots=True)
class Trusted:
    """How the host is reached, once a person has confirmed it.

    Args:
        address: name or address.
        port: of SSH; None for 22.
        host_key: fingerprint of its SSH host key.
        certificate: fingerprint of its certificate.
        key: private key file of the login.
        token: the token's name.
        token_file: where its secret lies.
    """

    address: str
    port: int | None
    host_key: str
    certificate: str
    key: Path
    token: str
    token_file: Path


def first_inventory(name: str, host: ProxmoxHost, choice: StorageChoice, trusted: Trusted) -> str:
    """Return the text of an inventory that `provision plan` takes as it is: a hypervisor without nodes."""
    key = quoted(str(trusted.key))
    lines = [
        *_head(name, host, "bootstrap"),
        f"access: {{ user: debian, key: {key} }} # login of new VMs; the .pub goes into them",
        _network(host, trusted.address),
        *_hypervisor(host, choice, trusted),
    ]
    return "\n".join(lines) + "\n"


def discovered_inventory(
    name: str,
    host: ProxmoxHost,
    choice: StorageChoice,
    trusted: Trusted,
    vms: Sequence[Discovered],
    remarks: Sequence[str] = (),
) -> str:
    """Return the text of an inventory with all VMs of a host, which `provision plan` leaves as they are.

    Args:
        name: of the inventory.
        host: what the host is.
        choice: storages by use.
        trusted: how the host is reached.
        vms: its VMs as nodes.
        remarks: what else is on the host.
    """
    network = f"network: {{ cidr: {quoted(str(network_of(host, trusted.address)))} }}"
    lines = _head(name, host, "discover")
    lines += [f"access: {{ user: debian, key: {quoted(str(trusted.key))} }} # login of guests"]
    known = _network(host, trusted.address)
    lines += [known if known.startswith("network:") else network]
    lines += _hypervisor(host, choice, trusted, manage=False)
    lines += map(comment, remarks)
    if vms:
        lines += [
            "profiles:",
            f"  # Remove `manage: false`, then take the VMs over: `provision import {name}.yaml --all`",
            f"  {PROFILE}: {{ hypervisor: {key_of(host.node)}, manage: false, hostname: unmanaged }}",
            "nodes:" if any(vm.is_complete for vm in vms) else "# nodes:",
            *(line for vm in vms for line in vm.lines),
        ]
    return "\n".join(lines) + "\n"


def _head(name: str, host: ProxmoxHost, command: str) -> list[str]:
    return [
        comment(f"{host.node}: {host.version}, {host.memory // 1024} GiB of memory"),
        f"# Written by `provision {command}`.",
        "version: 1",
        f"name: {quoted(name)}",
    ]


def _hypervisor(
    host: ProxmoxHost, choice: StorageChoice, trusted: Trusted, *, manage: bool = True
) -> list[str]:
    """Return the section of the hypervisor with its display cards."""
    bridge = bridge_of(host)
    others = f" {comment('there are ' + ', '.join(host.bridges))}" if host.bridges[1:] else ""
    uses = {"images": choice.images, "disks": choice.disks, "snippets": choice.snippets}
    login = [
        "user: root",
        f"key: {quoted(str(trusted.key))}",
        *([f"host_key: {quoted(trusted.host_key)}"] if trusted.host_key else []),
        *([f"port: {trusted.port}"] if trusted.port is not None else []),
    ]
    lines = [
        "hypervisors:",
        f"  {quoted(key_of(host.node))}:",
        *([] if manage else ["    manage: false # provision changes nothing on the host itself"]),
        *([f"    node: {quoted(host.node)}"] if key_of(host.node) != host.node else []),
        f"    address: {quoted(trusted.address)}",
        "    api:",
        f"      token_id: {quoted(f'{USER}!{trusted.token}')}",
        f"      token: !secret {{ file: {quoted(str(trusted.token_file))} }}",
        f"      fingerprint: {quoted(trusted.certificate)}",
        f"    ssh: {{ {', '.join(login)} }}",
        "    storage:",
        *(f"      {use}: {quoted(storage)}" for use, storage in uses.items() if storage),
        f"    bridge: {quoted(bridge)}{others}",
    ]
    cards = [each for each in cards_of(host.node, host.functions, {}, {}, {}) if _passable(host, each)]
    lines += ["    cards:"] if cards else []
    for number, card in enumerate(cards, 1):
        lines += [f"      {comment(_remark(card))}"]
        console = ", drives_console: true" if card.console else ""
        address, ids = quoted(card.slot), quoted(card.ids[0])
        lines += [f"      gpu{number}: {{ address: {address}, id: {ids}{console} }}"]
    return lines


def bridge_of(host: ProxmoxHost) -> str:
    """Return the bridge of VMs that name none: the one that leads to the gateway, or the installer's.

    Networks of SDN, and those of a container runtime on the host, are bridges, too.
    """
    outward = [name.partition(".")[0] for text, name in host.networks.items() if _holds(text, host.gateway)]
    names = (name for name in (*outward, "vmbr0", *host.bridges) if name in host.bridges)
    return next(names, "vmbr0")


def _holds(network: str, address: str) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_interface(network).network
    except ValueError:
        return False


def network_of(host: ProxmoxHost, address: str) -> ipaddress.IPv4Network:
    """Return the network of an address of the host; one of 256 addresses where the host does not say."""
    try:
        return ipaddress.IPv4Interface(_interface(host, address)).network
    except ValueError:
        return ipaddress.IPv4Interface(f"{address}/24").network


def _interface(host: ProxmoxHost, address: str) -> str:
    """Return the host's address in the network of VMs: that itself, or the first one of its bridge.

    A routed host has an address of its own alone (/32), which is no network for VMs.
    """
    shared = [each for each in host.networks if ipaddress.IPv4Interface(each).network.prefixlen < _ALONE]
    own = (each for each in shared if each.partition("/")[0] == address)
    of_bridge = (each for each in shared if host.networks[each] == bridge_of(host))
    return next(own, "") or next(of_bridge, "")


def _network(host: ProxmoxHost, address: str) -> str:
    """Return the line of the host's network, or of its bridge's, with the gateway if that lies in it."""
    try:
        network = ipaddress.ip_interface(_interface(host, address)).network
    except ValueError:
        return "# network: { cidr: ..., gateway: ... } # not found on the host: write yours"
    gateway = ""
    with suppress(ValueError):
        if ipaddress.ip_address(host.gateway) in network:
            gateway = f", gateway: {quoted(host.gateway)}"
    return f"network: {{ cidr: {quoted(str(network))}{gateway} }}"


def _passable(host: ProxmoxHost, card: HostCard) -> bool:
    return any(each.slot == card.slot and each.is_display for each in host.functions)


def _remark(card: HostCard) -> str:
    groups = f"IOMMU group {', '.join(card.groups)}" if card.groups else "no IOMMU group (is the IOMMU on?)"
    shared = f", shared with {', '.join(card.shares)}" if card.shares else ""
    return f"{groups}{shared}; driver {' '.join(dict.fromkeys(card.drivers))}"
