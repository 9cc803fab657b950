"""How a hypervisor is reached: its API and its host."""

from __future__ import annotations

from collections.abc import Mapping

from provision.connections.contracts import Endpoint, HttpsEndpoint, LocalEndpoint
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import NotThere, SystemSpec
from provision.hosts import names as host_names
from provision.hosts.systems import _constant, ssh_endpoint
from provision.inventory import Inventory
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.placeholders import bootstrap_remedy
from provision.proxmox import names
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
    return SystemSpec(names.api(hypervisor.name), "proxmox", hypervisor.name, {}, endpoint, guard)


def _host(inventory: Inventory, hypervisor: Hypervisor) -> SystemSpec:
    name = host_names.ssh(hypervisor.name)
    if hypervisor.connection == "local":
        return SystemSpec(name, "host", hypervisor.name, {}, _constant(LocalEndpoint()))
    endpoint = ssh_endpoint(inventory.login(hypervisor.name))
    return SystemSpec(name, "host", hypervisor.name, {}, _constant(endpoint))
