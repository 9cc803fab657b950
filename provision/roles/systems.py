"""The systems of a site, and how each of them is reached by what the others answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from provision.connections.contracts import Endpoint, HttpsEndpoint, LocalEndpoint, SshEndpoint
from provision.inventory import Inventory, Login
from provision.inventory.dhcp_backends import DHCP_BACKENDS
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.inventory.models.site import Dhcp
from provision.inventory.placeholders import bootstrap_remedy
from provision.resources.contracts import Snapshot
from provision.roles import names
from provision.roles.contracts import NotThere, SystemSpec
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError


def systems(inventory: Inventory) -> dict[str, SystemSpec]:
    """Return all systems by name, in the order in which they can be reached."""
    found: list[SystemSpec] = []
    for hypervisor in inventory.hypervisors.values():
        found += [_api(inventory, hypervisor), _host(inventory, hypervisor)]
    dhcp = inventory.dhcp
    if dhcp is not None and _speaks_ssh(dhcp):
        found.append(_router(inventory, dhcp))
    for node in inventory.nodes.values():
        above = inventory.hypervisor_of(node)
        if above is None:
            found.append(_metal(inventory, node))
        else:
            from provision.roles.guests import guest  # noqa: PLC0415 - slow, and bare metal has none

            found.append(guest(inventory, above, node))
    return {each.name: each for each in found}


def _speaks_ssh(dhcp: Dhcp) -> bool:
    backend = DHCP_BACKENDS[dhcp.backend]
    return backend.served and backend.reached == "ssh"


def _constant(endpoint: Endpoint) -> Callable[[Mapping[str, Snapshot]], Endpoint | NotThere]:
    def endpoint_of(_snapshots: Mapping[str, Snapshot]) -> Endpoint | NotThere:
        return endpoint

    return endpoint_of


def ssh_endpoint(login: Login, fingerprints: tuple[str, ...] = (), wait: float = 0.0) -> SshEndpoint:
    """Return where a login leads.

    Args:
        login: address, user, port, key, jump host.
        fingerprints: accepted host keys, where the login names none.
        wait: seconds that a host which boots is waited for.
    """
    accepted = (login.host_key,) if login.host_key else fingerprints
    return SshEndpoint(
        address=login.address,
        user=login.user,
        port=login.port,
        key=login.key,
        jump=login.jump,
        known_hosts=login.known_hosts,
        fingerprints=accepted,
        wait=wait,
        sudo=login.sudo,
    )


def _api(inventory: Inventory, hypervisor: Hypervisor) -> SystemSpec:
    declared = hypervisor.api

    def endpoint(_snapshots: Mapping[str, Snapshot]) -> Endpoint | NotThere:
        values = {
            "token_id": declared.token_id,
            "token": declared.token,
            "fingerprint": declared.fingerprint,
        }
        missing = [key for key, value in values.items() if value is None]
        if declared.token_id is None or declared.token is None or declared.fingerprint is None:
            raise UsageError(
                Diagnostic(
                    "API_CREDENTIALS_MISSING",
                    f"{hypervisor.name} has no {', '.join(f'api.{each}' for each in missing)}",
                    hypervisor.name,
                    source=inventory.source(("hypervisors", hypervisor.name)),
                    remedy=bootstrap_remedy(hypervisor.name, hypervisor),
                )
            )
        token = declared.token.open(inventory.redactor)
        return HttpsEndpoint(hypervisor.api_url, declared.token_id, token, declared.fingerprint)

    login = inventory.login(hypervisor.name)
    can_lock = hypervisor.connection == "local" or login.user == "root" or login.sudo
    guard = names.ssh(hypervisor.name) if can_lock else ""
    return SystemSpec(names.api(hypervisor.name), "proxmox", hypervisor.name, {}, endpoint, guard)


def _host(inventory: Inventory, hypervisor: Hypervisor) -> SystemSpec:
    name = names.ssh(hypervisor.name)
    if hypervisor.connection == "local":
        return SystemSpec(name, "host", hypervisor.name, {}, _constant(LocalEndpoint()))
    endpoint = ssh_endpoint(inventory.login(hypervisor.name))
    return SystemSpec(name, "host", hypervisor.name, {}, _constant(endpoint))


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
    return SystemSpec(names.ROUTER, "host", names.ROUTER, {}, _constant(endpoint))


def _metal(inventory: Inventory, node: Node) -> SystemSpec:
    endpoint = ssh_endpoint(inventory.login(node.name))
    return SystemSpec(names.ssh(node.name), "host", node.name, {}, _constant(endpoint))
