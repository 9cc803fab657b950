"""How a hypervisor is reached: its API and its host."""

from __future__ import annotations

from collections.abc import Mapping

from provision.connections.contracts import Endpoint, HttpsEndpoint, LocalEndpoint
from provision.contracts.domain import Opening
from provision.contracts.driver import Driver
from provision.contracts.query import ApiGet
from provision.contracts.role import Parent
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import NotThere, SystemSpec
from provision.hosts import names as host_names
from provision.hosts.systems import constant, login_key, ssh_endpoint
from provision.inventory import Inventory, Subject
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.placeholders import bootstrap_remedy
from provision.proxmox import names
from provision.proxmox.guest_access import guest
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError


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
    guard = host_names.ssh(hypervisor.name) if can_lock else ""
    # root's password is read when a request needs it, and not before.
    own = hypervisor.api.model_copy(update={"root_password": None})
    credentials = ((("hypervisors", hypervisor.name, "api"), own),)
    return SystemSpec(
        names.api(hypervisor.name),
        "proxmox",
        hypervisor.name,
        {},
        endpoint,
        guard,
        credentials=credentials,
        proof=ApiGet("/version"),
    )


def _host(inventory: Inventory, hypervisor: Hypervisor) -> SystemSpec:
    name = host_names.ssh(hypervisor.name)
    if hypervisor.connection == "local":
        return SystemSpec(name, "host", hypervisor.name, {}, constant(LocalEndpoint()))
    endpoint = ssh_endpoint(inventory.login(hypervisor.name))
    credentials = (login_key(inventory, hypervisor.name),)
    return SystemSpec(name, "host", hypervisor.name, {}, constant(endpoint), credentials=credentials)


def systems(inventory: Inventory) -> tuple[SystemSpec, ...]:
    """Return the API and the host of each hypervisor, then their guests."""
    specs: list[SystemSpec] = []
    for hypervisor in inventory.hypervisors.values():
        specs += [_api(inventory, hypervisor), _host(inventory, hypervisor)]
    for node in inventory.nodes.values():
        hypervisor_of_node = inventory.hypervisor_of(node)
        if hypervisor_of_node is not None:
            specs.append(guest(inventory, hypervisor_of_node, node))
    return tuple(specs)


def open_api(opening: Opening) -> Driver:
    """Return the driver of a hypervisor's API."""
    from provision.connections.https import PveConnection  # noqa: PLC0415 - slow, late
    from provision.proxmox.driver import ProxmoxDriver  # noqa: PLC0415 - slow, late

    if not isinstance(opening.endpoint, HttpsEndpoint):
        raise TypeError(f"{opening.spec.name}: an API is reached by HTTPS")
    subject = opening.spec.subject
    node = opening.inventory.hypervisors[subject].node_name
    vms = names.nodes_of(opening.inventory, subject)
    vmids = {vm.name: vm.vmid for vm in vms if vm.vmid is not None}
    connection = PveConnection(opening.endpoint, subject)
    root, password = None, opening.inventory.hypervisors[subject].api.root_password
    if password is not None:
        from provision.connections.pve_ticket import TicketConnection  # noqa: PLC0415 - rarely needed

        redactor = opening.redactor
        root = TicketConnection(opening.endpoint, lambda: password.open(redactor), redactor.add, subject)
    return ProxmoxDriver(
        opening.spec.name, connection, node, vmids=vmids, login=opening.endpoint.token_id, root=root
    )


def parents(inventory: Inventory, subject: Subject) -> tuple[Parent, ...]:
    """Return the hypervisor of a VM: all of its steps come before those of its VMs.

    A VM without a card needs of them only what its roles name: it does not wait for a reboot that the cards
    of its host need, and that nobody has allowed yet.
    """
    node = inventory.nodes.get(subject.name) if subject.kind == "node" else None
    return (Parent(node.hypervisor, bool(node.cards)),) if node is not None and node.hypervisor else ()
