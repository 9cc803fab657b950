"""The first inventory of a host, from what was found on it."""

from __future__ import annotations

import ipaddress
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from provision.hosts.cards import HostCard, cards_of
from provision.proxmox.privileges import USER
from provision.proxmox.setup import ProxmoxHost, StorageChoice


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
    port = f", port: {trusted.port}" if trusted.port is not None else ""
    bridge = host.bridges[0] if host.bridges else "vmbr0"
    others = f" # there are {', '.join(host.bridges)}" if host.bridges[1:] else ""
    uses = {"images": choice.images, "disks": choice.disks, "snippets": choice.snippets}
    key = _text(str(trusted.key))
    lines = [
        f"# {host.node}: {host.version}, {host.memory // 1024} GiB of memory",
        "# Written by `provision bootstrap`.",
        "version: 1",
        f"name: {_text(name)}",
        f"access: {{ user: debian, key: {key} }} # login of new VMs; the .pub goes into them",
        _network(host, bridge, trusted.address),
        "hypervisors:",
        f"  {_text(key_of(host.node))}:",
        *([f"    node: {_text(host.node)}"] if key_of(host.node) != host.node else []),
        f"    address: {_text(trusted.address)}",
        "    api:",
        f"      token_id: {_text(f'{USER}!{trusted.token}')}",
        f"      token: !secret {{ file: {_text(str(trusted.token_file))} }}",
        f"      fingerprint: {_text(trusted.certificate)}",
        f"    ssh: {{ user: root, key: {key}, host_key: {_text(trusted.host_key)}{port} }}",
        "    storage:",
        *(f"      {use}: {_text(storage)}" for use, storage in uses.items() if storage),
        f"    bridge: {_text(bridge)}{others}",
    ]
    cards = [each for each in cards_of(host.node, host.functions, {}, {}, {}) if _passable(host, each)]
    lines += ["    cards:"] if cards else []
    for number, card in enumerate(cards, 1):
        lines += [f"      # {_remark(card)}"]
        console = ", drives_console: true" if card.console else ""
        lines += [f"      gpu{number}: {{ address: {_text(card.slot)}, id: {_text(card.ids[0])}{console} }}"]
    return "\n".join(lines) + "\n"


def key_of(node: str) -> str:
    """Return our own name for a node: Proxmox VE takes capitals, and a key of the inventory does not."""
    return re.sub(r"[^a-z0-9-]", "-", node.lower()).strip("-")[:63] or "pve"


def _network(host: ProxmoxHost, bridge: str, address: str) -> str:
    """Return the line of the host's network, or of its bridge's, with the gateway if that lies in it."""
    own = (each for each in host.networks.values() if each.partition("/")[0] == address)
    interface = next(own, "") or host.networks.get(bridge, "")
    try:
        network = ipaddress.ip_interface(interface).network
    except ValueError:
        return "# network: { cidr: ..., gateway: ... } # not found on the host: write yours"
    gateway = ""
    with suppress(ValueError):
        if ipaddress.ip_address(host.gateway) in network:
            gateway = f", gateway: {_text(host.gateway)}"
    return f"network: {{ cidr: {_text(str(network))}{gateway} }}"


def _passable(host: ProxmoxHost, card: HostCard) -> bool:
    return any(each.slot == card.slot and each.is_display for each in host.functions)


def _remark(card: HostCard) -> str:
    groups = f"IOMMU group {', '.join(card.groups)}" if card.groups else "no IOMMU group (is the IOMMU on?)"
    shared = f", shared with {', '.join(card.shares)}" if card.shares else ""
    return f"{groups}{shared}; driver {' '.join(dict.fromkeys(card.drivers))}"


def _text(value: str) -> str:
    """Return a value as quoted YAML text."""
    return json.dumps(value)
