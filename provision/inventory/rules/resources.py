"""Host resources: one content, a guard, no resource twice."""

from __future__ import annotations

from collections.abc import Sequence

from provision.inventory.models.host_resources import (
    CommandResource,
    FileResource,
    HostResource,
    ServiceResource,
    SysctlResource,
)
from provision.inventory.models.inventory import Inventory
from provision.inventory.rules.findings import Findings
from provision.inventory.tree import KeyPath

_CONTENTS = ("content", "template", "secret", "line")


def check(inventory: Inventory, findings: Findings) -> None:
    """Find problems of host resources; a list that nodes share is looked at once."""
    checked: set[int] = set()
    for section, items in (
        ("hypervisors", inventory.hypervisors),
        ("profiles", inventory.profiles),
        ("nodes", inventory.nodes),
    ):
        for name, item in items.items():
            if item.host_resources and id(item.host_resources) not in checked:
                checked.add(id(item.host_resources))
                _list(item.host_resources, (section, name, "host_resources"), findings)


def _list(resources: Sequence[HostResource], path: KeyPath, findings: Findings) -> None:
    names: dict[tuple[str, ...], int] = {}
    for index, resource in enumerate(resources):
        here = (*path, index)
        name = _identity(resource)
        if name in names:
            summary = f"the {resource.kind} {name[1]} is declared twice in this list"
            findings.add("INVENTORY_DUPLICATE", summary, here)
        names[name] = index
        if isinstance(resource, FileResource):
            _file(resource, here, findings)
        elif isinstance(resource, CommandResource):
            if (resource.creates is None) == (resource.unless is None):
                summary = f"the command {resource.name!r} needs one guard: creates or unless"
                findings.add("INVENTORY_VALUE", summary, here)
        elif isinstance(resource, ServiceResource) and resource.running is None and resource.enabled is None:
            summary = f"the service {resource.name!r} declares neither running nor enabled"
            findings.add("INVENTORY_VALUE", summary, here)


def _identity(resource: HostResource) -> tuple[str, ...]:
    if isinstance(resource, FileResource):
        return (resource.kind, resource.path, resource.line or "")
    if isinstance(resource, SysctlResource):
        return (resource.kind, resource.key)
    return (resource.kind, resource.name)


def _file(resource: FileResource, path: KeyPath, findings: Findings) -> None:
    given = [key for key in _CONTENTS if getattr(resource, key) is not None]
    if resource.absent and given:
        findings.conflict(
            f"the file {resource.path} is declared absent and has {given[0]!r}", (*path, given[0])
        )
    elif not resource.absent and len(given) != 1:
        contents = " and ".join(given) or "nothing"
        summary = f"the file {resource.path} needs one of {', '.join(_CONTENTS)}; found {contents}"
        findings.add("INVENTORY_VALUE", summary, path)
    if resource.sensitive and resource.line is not None:
        summary = (
            f"a line of {resource.path} cannot be sensitive: the file around it is read, and shown in plans;"
            " declare the whole file, or a file of its own for what is secret"
        )
        findings.conflict(summary, (*path, "sensitive"))
    if resource.vars and resource.template is None and not resource.absent:
        findings.conflict(f"the file {resource.path} has vars but no template", (*path, "vars"))
