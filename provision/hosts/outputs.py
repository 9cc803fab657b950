"""What other programs read of a site: its hosts as JSON, for Ansible, and for OpenSSH's client."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping

from provision.inventory import Inventory

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./~-]+")


def hosts(inventory: Inventory) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Yield name, group (`hypervisors`, `nodes`) and how each host is reached; no secrets."""
    for group, names in (("hypervisors", inventory.hypervisors), ("nodes", inventory.nodes)):
        for name in names:
            login = inventory.login(name)
            values: dict[str, object] = {
                "address": login.address,
                "user": login.user,
                "port": login.port,
                "key": str(login.key) if login.key is not None else None,
                "jump": login.jump,
                "known_hosts": str(login.known_hosts) if login.known_hosts is not None else None,
            }
            yield name, group, {key: value for key, value in values.items() if value is not None}


def as_json(inventory: Inventory) -> str:
    """Return the hosts as one JSON object: group, then name, then how it is reached."""
    groups: dict[str, dict[str, object]] = {}
    for name, group, values in hosts(inventory):
        groups.setdefault(group, {})[name] = values
    return json.dumps({"name": inventory.name, **groups}, indent=2) + "\n"


def as_ansible(inventory: Inventory) -> str:
    """Return a YAML inventory of Ansible; its JSON subset, so that no value changes its type.

    Source: Ansible's user guide, "Connecting to hosts: behavioral inventory parameters".
    """
    groups: dict[str, dict[str, dict[str, object]]] = {}
    for name, group, values in hosts(inventory):
        own: dict[str, object] = {"ansible_host": values["address"], "ansible_user": values["user"]}
        if "port" in values:
            own["ansible_port"] = values["port"]
        if "key" in values:
            own["ansible_ssh_private_key_file"] = values["key"]
        options = [("ProxyJump", "jump"), ("UserKnownHostsFile", "known_hosts")]
        words = [word for name_, key in options if key in values for word in ("-o", f"{name_}={values[key]}")]
        if words:
            own["ansible_ssh_common_args"] = shlex.join(words)
        groups.setdefault(group, {})[name] = own
    children = {group: {"hosts": members} for group, members in groups.items()}
    return json.dumps({"all": {"children": children}}, indent=2) + "\n"


def as_ssh_config(inventory: Inventory) -> str:
    """Return `Host` blocks, for a file that `Include` names (ssh_config(5))."""
    words = {
        "address": "HostName",
        "user": "User",
        "port": "Port",
        "key": "IdentityFile",
        "jump": "ProxyJump",
        "known_hosts": "UserKnownHostsFile",
    }
    blocks = []
    for name, _, values in hosts(inventory):
        lines = [f"Host {name}", *(f"  {words[key]} {_quoted(str(value))}" for key, value in values.items())]
        if "key" in values:
            lines.append("  IdentitiesOnly yes")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _quoted(value: str) -> str:
    return value if _PLAIN.fullmatch(value) else '"' + value.replace('"', '\\"') + '"'


FORMATS: Mapping[str, Callable[[Inventory], str]] = {
    "json": as_json,
    "ansible": as_ansible,
    "ssh-config": as_ssh_config,
}
"""Outputs by their name on the command line."""
