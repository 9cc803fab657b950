"""How the DHCP server is reached."""

from __future__ import annotations

from collections.abc import Mapping

from provision.connections.contracts import Endpoint, SshEndpoint, WebEndpoint
from provision.contracts.domain import Opening
from provision.contracts.driver import Driver
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import NotThere, SystemSpec
from provision.hosts import names
from provision.hosts.systems import constant
from provision.inventory import Inventory
from provision.inventory.models.site import Dhcp, DhcpApi
from provision.inventory.tree import KeyPath
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError


def systems(inventory: Inventory) -> tuple[SystemSpec, ...]:
    """Return the router, where it is reached by SSH or by its web API."""
    dhcp = inventory.dhcp
    backend = inventory.dhcp_backend
    if dhcp is None or backend is None:
        return ()
    if backend.reached == "api" and dhcp.api is not None:
        return (_api(inventory, dhcp.api),)
    return (_router(inventory, dhcp),) if backend.reached == "ssh" else ()


def open_api(opening: Opening) -> Driver:
    """Return the driver of a router's web API."""
    from provision.connections.web import HttpsWebConnection  # noqa: PLC0415 - late: most runs need none
    from provision.dhcp.router_driver import RouterDriver  # noqa: PLC0415 - the same
    from provision.dhcp.router_sessions import session_of  # noqa: PLC0415 - the same

    endpoint, dhcp = opening.endpoint, opening.inventory.dhcp
    if not isinstance(endpoint, WebEndpoint) or dhcp is None:
        raise TypeError(f"{opening.spec.name}: a router's API is reached by HTTPS")
    connection = HttpsWebConnection(endpoint, opening.spec.subject)
    session = session_of(dhcp.backend, connection, endpoint, opening.redactor)
    return RouterDriver(opening.spec.name, session)


def _api(inventory: Inventory, api: DhcpApi) -> SystemSpec:
    def endpoint(_snapshots: Mapping[str, Snapshot]) -> Endpoint | NotThere:
        token = api.token.open(inventory.redactor)
        return WebEndpoint(api.url, api.user or "", token, api.fingerprint or "")

    credentials = ((("network", "dhcp", "api"), api),)
    return SystemSpec(names.ROUTER, "router-api", names.ROUTER, {}, endpoint, credentials=credentials)


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
