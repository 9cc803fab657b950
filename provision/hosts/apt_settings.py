"""Files of apt that follow from what a node declares: the proxy, and unattended upgrades."""

from __future__ import annotations

from collections.abc import Iterator

from provision.inventory import Inventory
from provision.inventory.models.node import Node

PROXY_FILE = "/etc/apt/apt.conf.d/50provision-proxy"
UPGRADES_FILE = "/etc/apt/apt.conf.d/52provision-upgrades"
_KERNELS = (
    *("linux-image-", "linux-headers-", "linux-modules-", "linux-generic", "linux-virtual", "linux-kernel-"),
)
_DRIVERS = ("nvidia-", "libnvidia-", "cuda-", "libcuda")
"""A driver that we do not manage has no list of its own, and loses its cards to an upgrade as well."""
_HEADER = "// Written by provision; changes are overwritten.\n"


def apt_files(inventory: Inventory, node: Node) -> Iterator[tuple[str, str]]:
    """Yield path and content of the files of apt.conf(5) that are declared."""
    proxy = inventory.proxy.url
    if proxy is not None:
        # apt knows exceptions by host name only; networks and suffixes mean nothing to it.
        hosts = [name for name in inventory.no_proxy if "/" not in name and not name.startswith(".")]
        lines = [f'Acquire::{scheme}::Proxy "{proxy}";' for scheme in ("http", "https")]
        lines += [
            f'Acquire::{scheme}::Proxy::{host} "DIRECT";' for host in hosts for scheme in ("http", "https")
        ]
        yield PROXY_FILE, _HEADER + "".join(f"{line}\n" for line in lines)
    if node.unattended_upgrades == "off":
        yield UPGRADES_FILE, f'{_HEADER}APT::Periodic::Unattended-Upgrade "0";\n'
    elif node.unattended_upgrades == "keep_kernel":
        kept = (*_KERNELS, *(_DRIVERS if node.wants_gpu else ()))
        rows = "".join(f'  "{name}";\n' for name in kept)
        yield UPGRADES_FILE, f"{_HEADER}Unattended-Upgrade::Package-Blacklist {{\n{rows}}};\n"
