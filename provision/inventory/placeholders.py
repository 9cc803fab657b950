"""Values that a command of ours will write: accepted by validate, refused by plan."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from provision.inventory.scalars import PLACEHOLDER
from provision.values.diagnostics import Diagnostic
from provision.values.fingerprints import OWN_KEY

if TYPE_CHECKING:
    from provision.inventory.models.hypervisor import Hypervisor
    from provision.inventory.models.inventory import Inventory


def bootstrap_command(name: str, host: Hypervisor, token: str = "") -> tuple[str, str]:
    """Return the command that makes a token on a hypervisor, and the inventory that it writes.

    That file is a new one beside the user's, from which a person copies: no command edits an inventory.

    Args:
        name: of the hypervisor.
        host: where it is.
        token: the token's name; empty for one that is named after the hypervisor.
    """
    plain = re.sub(r"[^a-z0-9-]", "-", name.lower())
    called = token or (plain if plain[:1].isalpha() else f"host-{plain}")
    port = f":{host.ssh.port}" if host.ssh.port is not None else ""
    file = f"{called}.new.yaml"
    secret = host.api.token
    kept = (
        f" --token-file {shlex.quote(secret.reference[0])}"
        if token and secret and secret.kind == "file"
        else ""
    )
    return f"provision bootstrap root@{host.address}{port} --name {called} --out {file}{kept}", file


def bootstrap_remedy(name: str, host: Hypervisor) -> str:
    """Return how a person gets what the inventory lacks of a hypervisor."""
    command, file = bootstrap_command(name, host)
    return f"{command}, then copy `api` and `ssh` of its hypervisor from {file}"


def is_placeholder(value: str | None) -> bool:
    """Whether a value only stands for one, like `<64 hex digits>` or `SHA256:...`."""
    return value is not None and PLACEHOLDER.fullmatch(value) is not None


def find_placeholders(inventory: Inventory) -> list[Diagnostic]:
    """Return a problem for each placeholder, with the command that writes the value."""
    problems: list[Diagnostic] = []

    def look(value: str | None, subject: str, what: str, path: tuple[str, ...], remedy: str) -> None:
        if is_placeholder(value):
            problems.append(
                Diagnostic(
                    "PLACEHOLDER",
                    f"{what} is still a placeholder",
                    subject,
                    source=inventory.source(path),
                    remedy=remedy,
                )
            )

    file = inventory.file or "INVENTORY"
    for name, image in inventory.images.items():
        if inventory.image_pin(name) is None:
            path = ("images", name, "sha256")
            look(image.sha256, "", f"the digest of image {name}", path, f"provision pin {file} writes it")
    for name, host in inventory.hypervisors.items():
        bootstrap = bootstrap_remedy(name, host)
        api = ("hypervisors", name, "api", "fingerprint")
        look(host.api.fingerprint, name, "the certificate's fingerprint", api, bootstrap)
        look(host.ssh.host_key, name, "the host key", ("hypervisors", name, "ssh", "host_key"), bootstrap)
    for name, node in inventory.nodes.items():
        trust = f"write what `{OWN_KEY}` shows on its console"
        if node.is_virtual:
            trust = "remove it: a guest's key is generated, and kept in its VM's marker"
        look(node.ssh.host_key, name, "the host key", ("nodes", name, "ssh", "host_key"), trust)
    dhcp = inventory.dhcp
    if dhcp is not None and dhcp.ssh is not None:
        ssh = ("network", "dhcp", "ssh", "host_key")
        trust = f"write what `{OWN_KEY}` shows on its console"
        look(dhcp.ssh.host_key, "router", "the router's host key", ssh, trust)
    if dhcp is not None and dhcp.api is not None:
        api = ("network", "dhcp", "api", "fingerprint")
        look(
            dhcp.api.fingerprint,
            "router",
            "the router's certificate fingerprint",
            api,
            "write what the router shows",
        )
    return problems
