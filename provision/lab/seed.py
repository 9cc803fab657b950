"""The NoCloud seed of a guest, as Proxmox VE writes it (`qemu-server`, PVE::QemuServer::Cloudinit)."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provision.lab.contracts import CloudInit, GuestError, Nic


@dataclass(frozen=True, slots=True)
class HostKey:
    """A host key from a vendor snippet (`kind` is rsa, ecdsa or ed25519)."""

    kind: str
    private: str
    public: str


def files(cloud_init: CloudInit, nics: tuple[Nic, ...]) -> dict[str, str]:
    """Return the files of the seed: user-data, meta-data, network-config and, with a snippet, vendor-data."""
    seed_files = {
        "user-data": user_data(cloud_init),
        "meta-data": f"instance-id: {cloud_init.instance_id}\n",
        "network-config": network_config(cloud_init, nics),
    }
    if cloud_init.vendor is not None:
        seed_files["vendor-data"] = cloud_init.vendor
    return seed_files


def authorized_keys(cloud_init: CloudInit) -> tuple[str, ...]:
    """Return the public keys, from plain text or from Proxmox's URL encoding."""
    text = cloud_init.ssh_keys
    decoded = urllib.parse.unquote(text) if "%20" in text else text
    return tuple(line.strip() for line in decoded.splitlines() if line.strip())


def user_data(cloud_init: CloudInit) -> str:
    """Return the user part."""
    lines = [
        "#cloud-config",
        f"hostname: {cloud_init.hostname}",
        "manage_etc_hosts: true",
        f"fqdn: {cloud_init.hostname}",
        f"user: {cloud_init.user}",
    ]
    keys = authorized_keys(cloud_init)
    if keys:
        lines += ["ssh_authorized_keys:", *(f"  - {key}" for key in keys)]
    lines += ["chpasswd:", "  expire: False", "users:", "  - default", ""]
    return "\n".join(lines)


def network_config(cloud_init: CloudInit, nics: tuple[Nic, ...]) -> str:
    """Return the network part, version 1; NICs are matched by hardware address."""
    lines = ["version: 1", "config:"]
    for index, nic in enumerate(nics):
        lines += [
            "- type: physical",
            f"  name: eth{index}",
            f"  mac_address: '{nic.mac.lower()}'",
            "  subnets:",
        ]
        address = subnet(cloud_init, index)
        if address is None:
            lines.append("  - type: dhcp4")
        else:
            lines += ["  - type: static", f"    address: '{address['ip']}'"]
            if "gw" in address:
                lines.append(f"    gateway: '{address['gw']}'")
    return "\n".join(lines) + "\n"


def subnet(cloud_init: CloudInit, index: int) -> Mapping[str, str] | None:
    """Return `ip` and `gw` of a NIC with a fixed address, or None for DHCP."""
    text = cloud_init.ipconfig[index] if index < len(cloud_init.ipconfig) else "ip=dhcp"
    words = dict(word.split("=", 1) for word in text.split(",") if "=" in word)
    return None if words.get("ip", "dhcp") == "dhcp" else words


def vendor(cloud_init: CloudInit) -> dict[str, Any]:
    """Return the vendor snippet's settings.

    Raises:
        GuestError: it is not a cloud-config.
    """
    if cloud_init.vendor is None:
        return {}
    import yaml  # noqa: PLC0415 - slow to import

    try:
        parsed = yaml.safe_load(cloud_init.vendor)
    except yaml.YAMLError as error:
        raise GuestError(f"the vendor snippet is invalid YAML: {error}") from error
    if not isinstance(parsed, dict) or not cloud_init.vendor.startswith("#cloud-config"):
        raise GuestError("the vendor snippet is not a cloud-config")
    return parsed


def host_keys(settings: Mapping[str, Any]) -> tuple[HostKey, ...]:
    """Return the host keys of a vendor snippet's `ssh_keys`."""
    given = settings.get("ssh_keys") or {}
    kinds = sorted({str(name).rpartition("_")[0] for name in given})
    return tuple(
        HostKey(kind, str(given[f"{kind}_private"]), str(given[f"{kind}_public"]))
        for kind in kinds
        if f"{kind}_private" in given and f"{kind}_public" in given
    )
