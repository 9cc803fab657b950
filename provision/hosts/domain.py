"""Hosts, as the composition root sees them."""

from __future__ import annotations

from provision.contracts.domain import Domain
from provision.contracts.support import Untested
from provision.hosts.host_effects import EFFECTS
from provision.inventory import Inventory


def _has_ubuntu(inventory: Inventory) -> bool:
    return any(name.startswith("ubuntu") for name in inventory.images)


DOMAIN = Domain(
    "hosts",
    effects=EFFECTS,
    systems="provision.hosts.systems:systems",
    drivers={"host": "provision.hosts.systems:open_host"},
    query_kinds={"host": "provision.hosts.query_kinds:HOST_KINDS"},
    roles={
        "base_os": "provision.hosts.roles.base_os:ROLE",
        "host_resources": "provision.hosts.roles.host_resources:ROLE",
        "shared_storage": "provision.hosts.roles.shared_storage:ROLE",
    },
    destroy_keeps=frozenset({"base_os", "host_resources", "shared_storage"}),
    rules="provision.hosts.preflight:RULES",
    evidence="provision.hosts.preflight:evidence",
    doctor="provision.hosts.doctor:RULES",
    checks=("provision.hosts.checks",),
    unsupported="provision.hosts.unsupported:unsupported",
    untested=(Untested("Ubuntu guests", ("images",), _has_ubuntu),),
    sections=(("sources",),),
    packages="provision.hosts.package_needs:packages",
)
