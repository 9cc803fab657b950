"""What the inventory declares of a host, as roles bring it about and checks compare it."""

from __future__ import annotations

from collections.abc import Iterator

from provision.hosts.names import DAEMONS, checked_unit
from provision.hosts.templating import render
from provision.inventory import Inventory, Subject
from provision.inventory.models.host_resources import FileResource, ServiceResource
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node


def item_of(inventory: Inventory, subject: Subject) -> Hypervisor | Node | None:
    """Return the hypervisor or node that a subject is."""
    if subject.kind == "hypervisor":
        return inventory.hypervisors.get(subject.name)
    return inventory.nodes.get(subject.name) if subject.kind == "node" else None


def values_of(inventory: Inventory, subject: Subject) -> dict[str, object]:
    """Return what texts of a subject may name: its name and address, the site's name, then `vars:`."""
    item = item_of(inventory, subject)
    own = {"name": subject.name, "site": inventory.name, "address": item.address if item is not None else ""}
    return {**own, **inventory.vars_of(subject.name)}


def services(inventory: Inventory, subject: Subject) -> Iterator[tuple[str, ServiceResource]]:
    """Yield the declared services of a host by full unit name.

    Raises:
        UsageError: a name cannot be rendered.
    """
    values = values_of(inventory, subject)
    for resource in _host_resources(inventory, subject):
        if isinstance(resource, ServiceResource):
            yield checked_unit(render(resource.name, values, "service resource")), resource


def units(inventory: Inventory, subject: Subject) -> frozenset[str]:
    """Return the units that are the site's: declared ones, those that it restarts, the time daemon."""
    names = {name for name, _ in services(inventory, subject)}
    for resource in _host_resources(inventory, subject):
        if isinstance(resource, FileResource):
            names.update(map(checked_unit, resource.restart))
    node = inventory.nodes.get(subject.name) if subject.kind == "node" else None
    if node is not None and node.ntp is not None:
        names.update(DAEMONS.values())
    return frozenset(names)


def _host_resources(inventory: Inventory, subject: Subject) -> tuple[object, ...]:
    item = item_of(inventory, subject)
    return tuple(item.host_resources) if item is not None else ()
