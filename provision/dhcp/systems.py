"""How the DHCP server is reached."""

from __future__ import annotations

from provision.connections.contracts import SshEndpoint
from provision.contracts.system import SystemSpec
from provision.hosts import names
from provision.hosts.systems import constant
from provision.inventory import Inventory
from provision.inventory.dhcp_backends import DHCP_BACKENDS
from provision.inventory.models.site import Dhcp
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError


def _speaks_ssh(dhcp: Dhcp) -> bool:
    backend = DHCP_BACKENDS[dhcp.backend]
    return backend.served and backend.reached == "ssh"


def systems(inventory: Inventory) -> tuple[SystemSpec, ...]:
    """Return the router, where it is reached by SSH."""
    dhcp = inventory.dhcp
    return (_router(inventory, dhcp),) if dhcp is not None and _speaks_ssh(dhcp) else ()


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
    return SystemSpec(names.ROUTER, "host", names.ROUTER, {}, constant(endpoint))
