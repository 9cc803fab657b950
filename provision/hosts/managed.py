"""What checks may claim of a host: what the inventory declares there and the roles bring about."""

from __future__ import annotations

from collections.abc import Iterator

from provision.hosts.resources.base import checked_unit
from provision.hosts.resources.system import DAEMONS
from provision.hosts.roles import host_resources
from provision.hosts.templating import render
from provision.inventory import Inventory, Subject
from provision.inventory.models.host_resources import FileResource, ServiceResource


def services(inventory: Inventory, subject: Subject) -> Iterator[tuple[str, ServiceResource]]:
    """Yield the declared services of a host by full unit name, as the role reads them.

    Raises:
        UsageError: a name cannot be rendered.
    """
    values = host_resources.values_of(inventory, subject)
    for each in _declared(inventory, subject):
        if isinstance(each, ServiceResource):
            yield checked_unit(render(each.name, values, "service resource")), each


def units(inventory: Inventory, subject: Subject) -> frozenset[str]:
    """Return the units that are the site's: declared ones, those that it restarts, the time daemon."""
    found = {name for name, _ in services(inventory, subject)}
    for each in _declared(inventory, subject):
        if isinstance(each, FileResource):
            found.update(map(checked_unit, each.restart))
    node = inventory.nodes.get(subject.name) if subject.kind == "node" else None
    if node is not None and node.ntp is not None:
        found.update(DAEMONS.values())
    return frozenset(found)


def _declared(inventory: Inventory, subject: Subject) -> tuple[object, ...]:
    section = inventory.hypervisors if subject.kind == "hypervisor" else inventory.nodes
    return tuple(section[subject.name].host_resources)
