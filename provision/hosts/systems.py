"""How machines are reached by SSH."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from provision.connections.contracts import Endpoint, SshEndpoint
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import NotThere, SystemSpec
from provision.hosts import names
from provision.inventory import Inventory, Login
from provision.inventory.models.node import Node


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


def _metal(inventory: Inventory, node: Node) -> SystemSpec:
    endpoint = ssh_endpoint(inventory.login(node.name))
    return SystemSpec(names.ssh(node.name), "host", node.name, {}, _constant(endpoint))
