"""How the DHCP server is reached."""

from __future__ import annotations

from provision.connections.contracts import SshEndpoint
from provision.contracts.system import SystemSpec
from provision.hosts import names
from provision.hosts.systems import constant
from provision.inventory import Inventory
from provision.inventory.models.site import Dhcp
from provision.inventory.tree import KeyPath
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError


def systems(inventory: Inventory) -> tuple[SystemSpec, ...]:
    """Return the router, where it is reached by SSH."""
    dhcp = inventory.dhcp
    backend = inventory.dhcp_backend
    if dhcp is None or backend is None or not backend.is_supported or backend.reached != "ssh":
        return ()
    return (_router(inventory, dhcp),)


def _router(inventory: Inventory, dhcp: Dhcp) -> SystemSpec:
    address = dhcp.address or (inventory.network.gateway if inventory.network is not None else None)
    if address is None:
        raise UsageError(
            Diagnostic(
                "ROUTER_ADDRESS_MISSING",
                "the router has no address",
                source=inventory.source(("network", "dhcp")),
                remedy="Write network.gateway, or network.dhcp.address where they differ.",
            )
        )
    own = dhcp.ssh
    endpoint = SshEndpoint(
        address=address,
        user=(own.user if own else None) or "root",
        port=own.port if own else None,
        key=(own.key if own else None) or inventory.access.key,
        jump=own.jump if own else None,
        known_hosts=(own.known_hosts if own else None) or inventory.access.known_hosts,
        fingerprints=(own.host_key,) if own and own.host_key else (),
        sudo=own.sudo if own else True,
    )
    own_key = own.key if own else None
    path: KeyPath = ("access", "key") if own_key is None else ("network", "dhcp", "ssh", "key")
    credentials = ((path, own_key or inventory.access.key),)
    return SystemSpec(names.ROUTER, "host", names.ROUTER, {}, constant(endpoint), credentials=credentials)
