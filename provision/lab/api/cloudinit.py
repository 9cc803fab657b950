"""What a cloud-init drive would carry.

Facts: the keys and the instance-id (SHA-1 of user data and network data; a vendor part is not in it) as
measured on 9.2.11; network data is cloud-init's network configuration version 1.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import unquote

from provision.lab.api.core import Lab
from provision.lab.api.disks import disk_keys, is_cloud_drive
from provision.lab.api.errors import TaskError
from provision.lab.api.schema import parse_parts
from provision.lab.api.status import parts_of
from provision.lab.api.vmschema import NET
from provision.lab.contracts import CloudInit

_SNIPPETS = "/var/lib/vz/snippets"


def net_keys(values: dict[str, str]) -> list[str]:
    """Return a VM's network devices in order."""
    return sorted((key for key in values if re.fullmatch(r"net\d+", key)), key=lambda key: int(key[3:]))


def ipconfig(values: dict[str, str], net: str) -> str:
    """Return a network device's address configuration; DHCP without one."""
    return values.get(f"ipconfig{net.removeprefix('net')}", "ip=dhcp")


def user_data(vmid: int, values: dict[str, str]) -> str:
    """Return the user part."""
    name = values.get("name", f"VM{vmid}")
    lines = [
        "#cloud-config",
        f"hostname: {name.partition('.')[0]}",
        "manage_etc_hosts: true",
        f"fqdn: {name}",
    ]
    if "ciuser" in values:
        lines.append(f"user: {values['ciuser']}")
    keys = [line.strip() for line in unquote(values.get("sshkeys", "")).splitlines() if line.strip()]
    if keys:
        lines += ["ssh_authorized_keys:", *(f"  - {key}" for key in keys)]
    lines += ["chpasswd:", "  expire: False", "users:", "  - default"]
    if values.get("ciupgrade", "1") == "1":
        lines.append("package_upgrade: true")
    return "\n".join(lines) + "\n"


def network_data(values: dict[str, str]) -> str:
    """Return the network part."""
    lines = ["version: 1", "config:"]
    for index, key in enumerate(net_keys(values)):
        mac = parse_parts(NET, values[key])["macaddr"].lower()
        lines += [
            "    - type: physical",
            f"      name: eth{index}",
            f"      mac_address: '{mac}'",
            "      subnets:",
        ]
        parts = dict(part.partition("=")[::2] for part in ipconfig(values, key).split(","))
        if parts.get("ip", "") == "dhcp":
            lines.append("      - type: dhcp4")
        elif "ip" in parts:
            lines += ["      - type: static", f"        address: '{parts['ip']}'"]
            lines += [f"        gateway: '{parts['gw']}'"] if "gw" in parts else []
        if parts.get("ip6") in {"dhcp", "auto"}:
            lines.append(f"      - type: {'dhcp6' if parts['ip6'] == 'dhcp' else 'ipv6_slaac'}")
    return "\n".join(lines) + "\n"


def instance_id(vmid: int, values: dict[str, str]) -> str:
    """Return the instance-id: it changes with user and network data, not with a vendor snippet."""
    text = user_data(vmid, values) + network_data(values)
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def seed(lab: Lab, vmid: int, values: dict[str, str]) -> CloudInit | None:
    """Return the seed of a VM with a cloud-init drive.

    Raises:
        TaskError: a snippet is missing, or is of a kind that the lab does not serve.
    """
    if not any(is_cloud_drive(values[key]) for key in disk_keys(values)):
        return None
    vendor = None
    for kind, volid in parts_of("cicustom", values).items():
        storage, _, name = volid.partition(":")
        if "snippets" not in lab.storages.get(storage).content:
            raise TaskError(f"storage '{storage}' is not configured for content-type 'snippets'")
        if kind != "vendor":
            raise TaskError(f"the lab serves vendor snippets only, not '{kind}'")
        name = name.removeprefix("snippets/")
        vendor = lab.hypervisor.read_snippet(name)
        if vendor is None:
            raise TaskError(f"unable to open file '{_SNIPPETS}/{name}' - No such file or directory")
    return CloudInit(
        hostname=values.get("name", f"VM{vmid}"),
        user=values.get("ciuser", ""),
        ssh_keys=unquote(values.get("sshkeys", "")),
        instance_id=instance_id(vmid, values),
        vendor=vendor,
        ipconfig=tuple(ipconfig(values, key) for key in net_keys(values)),
    )
