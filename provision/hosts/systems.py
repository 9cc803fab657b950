"""How machines are reached by SSH."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from provision.connections.contracts import Endpoint, LocalEndpoint, ShellConnection, SshEndpoint
from provision.contracts.domain import Opening
from provision.contracts.driver import Driver
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import InventoryValue, NotThere, SystemSpec
from provision.hosts import names
from provision.inventory import Inventory, Login
from provision.inventory.models.node import Node
from provision.inventory.tree import KeyPath


def constant(endpoint: Endpoint) -> Callable[[Mapping[str, Snapshot]], Endpoint | NotThere]:
    """Return how a system is reached whose endpoint follows from no answers."""

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


def bare_metal(inventory: Inventory, node: Node) -> SystemSpec:
    """Return the system of a machine that no hypervisor carries."""
    if node.connection == "local":
        return SystemSpec(names.ssh(node.name), "host", node.name, {}, constant(LocalEndpoint()))
    endpoint = ssh_endpoint(inventory.login(node.name))
    credentials = (login_key(inventory, node.name),)
    return SystemSpec(
        names.ssh(node.name), "host", node.name, {}, constant(endpoint), credentials=credentials
    )


def login_key(inventory: Inventory, subject: str) -> InventoryValue:
    """Return the private key of a hypervisor's or node's login, and where it is declared."""
    section = "hypervisors" if subject in inventory.hypervisors else "nodes"
    own = getattr(inventory, section)[subject].ssh.key
    path: KeyPath = ("access", "key") if own is None else (section, subject, "ssh", "key")
    return path, inventory.login(subject).key


def systems(inventory: Inventory) -> tuple[SystemSpec, ...]:
    """Return the machines that no hypervisor of ours carries."""
    return tuple(bare_metal(inventory, node) for node in inventory.nodes.values() if not node.is_virtual)


def open_host(opening: Opening) -> Driver:
    """Return the driver of a host."""
    # Transports are slow to import, and only some of them are needed: hence the late imports.
    from provision.hosts.driver import HostDriver  # noqa: PLC0415 - slow, late

    connection: ShellConnection
    if isinstance(opening.endpoint, SshEndpoint):
        from provision.connections.ssh import SshConnection  # noqa: PLC0415 - slow, late

        connection = SshConnection(opening.endpoint, opening.spec.name, opening.ssh_pool)
    elif isinstance(opening.endpoint, LocalEndpoint):
        from provision.connections.local import LocalConnection  # noqa: PLC0415 - slow, late

        connection = LocalConnection()
    else:
        raise TypeError(f"{opening.spec.name}: a host is reached by SSH or locally")
    return HostDriver(
        opening.spec.name,
        connection,
        opening.query_kinds,
        who=opening.who,
        redactor=opening.redactor,
        effects=opening.effects,
    )
