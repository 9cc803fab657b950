"""Values that a command of ours will write: accepted by validate, refused by plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.inventory.scalars import PLACEHOLDER
from provision.values.diagnostics import Diagnostic

if TYPE_CHECKING:
    from provision.inventory.models.inventory import Inventory


def is_placeholder(value: str | None) -> bool:
    """Whether a value only stands for one, like `<64 hex digits>` or `SHA256:...`."""
    return value is not None and PLACEHOLDER.fullmatch(value) is not None


def find_placeholders(inventory: Inventory) -> list[Diagnostic]:
    """Return a problem for each placeholder, with the command that writes the value."""
    found: list[Diagnostic] = []

    def look(value: str | None, subject: str, what: str, path: tuple[str, ...], command: str) -> None:
        if is_placeholder(value):
            found.append(
                Diagnostic(
                    "PLACEHOLDER",
                    f"{what} is still a placeholder",
                    subject,
                    source=inventory.source(path),
                    remedy=f"{command} writes it",
                )
            )

    file = inventory.file or "INVENTORY"
    for name, image in inventory.images.items():
        if inventory.image_pin(name) is None:
            path = ("images", name, "sha256")
            look(image.sha256, "", f"the digest of image {name}", path, f"provision pin {file}")
    for name, host in inventory.hypervisors.items():
        bootstrap = f"provision bootstrap root@{host.address}"
        api = ("hypervisors", name, "api", "fingerprint")
        look(host.api.fingerprint, name, "the certificate's fingerprint", api, bootstrap)
        look(host.ssh.host_key, name, "the host key", ("hypervisors", name, "ssh", "host_key"), bootstrap)
    for name, node in inventory.nodes.items():
        trust = f"provision trust {file} {name}/ssh SHA256:..."
        look(node.ssh.host_key, name, "the host key", ("nodes", name, "ssh", "host_key"), trust)
    dhcp = inventory.network.dhcp if inventory.network is not None else None
    if dhcp is not None and dhcp.ssh is not None:
        ssh = ("network", "dhcp", "ssh", "host_key")
        trust = f"provision trust {file} router SHA256:..."
        look(dhcp.ssh.host_key, "router", "the router's host key", ssh, trust)
    if dhcp is not None and dhcp.api is not None:
        api = ("network", "dhcp", "api", "fingerprint")
        look(dhcp.api.fingerprint, "router", "the router's certificate fingerprint", api, "you")
    return found
