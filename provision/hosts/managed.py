"""What the inventory declares of a host, as roles bring it about and checks compare it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from provision.hosts.apt_settings import apt_files
from provision.hosts.names import DAEMONS, checked_unit
from provision.hosts.templating import read_template, render
from provision.inventory import Inventory, Subject
from provision.inventory.models.host_resources import (
    CommandResource,
    FileResource,
    KernelModuleResource,
    PackageResource,
    ServiceResource,
    SysctlResource,
)
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class DeclaredFile:
    """A whole file; None and empty are unmanaged."""

    path: str
    content: bytes | None = field(default=None, repr=False)
    mode: str = ""
    owner: str = ""
    group: str = ""
    secret: bool = False


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


class Managed:
    """What is declared of one host, its texts filled in.

    Args:
        inventory: what was declared.
        subject: the host.

    Methods raise UsageError where a text, template or secret is wrong, and ValueError for a wrong name.
    """

    def __init__(self, inventory: Inventory, subject: Subject) -> None:
        self._inventory = inventory
        self._node = inventory.nodes.get(subject.name) if subject.kind == "node" else None
        item = item_of(inventory, subject)
        self._resources = tuple(item.host_resources) if item is not None else ()
        self._values = values_of(inventory, subject)

    def files(self) -> Iterator[DeclaredFile]:
        """Yield files with what is declared of them; of a file with declared lines, never its content."""
        if self._node is not None:
            for path, text in apt_files(self._inventory, self._node):
                yield DeclaredFile(path, text.encode(), "0644")
        for resource in self._of(FileResource):
            if resource.absent:
                continue
            secret = resource.sensitive or resource.secret is not None
            mode = resource.mode or ("0600" if secret and resource.line is None else "")
            content = None if resource.line is not None else self._content(resource)
            owner, group = resource.owner or "", resource.group or ""
            if content is not None or mode or owner or group:
                yield DeclaredFile(self._path(resource), content, mode, owner, group, secret)

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield path and line of each line that a file must have."""
        for resource in self._of(FileResource):
            if resource.line is not None and not resource.absent:
                yield self._path(resource), self._text(resource.line, resource.vars)

    def absent_files(self) -> Iterator[str]:
        """Yield the paths where nothing may be."""
        return (self._path(resource) for resource in self._of(FileResource) if resource.absent)

    def packages(self) -> Mapping[str, PackageResource | None]:
        """Return packages by name; None is one of a node's list, which must be installed."""
        own = self._node
        names: dict[str, PackageResource | None] = dict.fromkeys(own.packages if own is not None else ())
        if own is not None and own.timezone:
            names["tzdata"] = None
        return names | {self._text(resource.name): resource for resource in self._of(PackageResource)}

    def services(self) -> Iterator[tuple[str, ServiceResource]]:
        """Yield the services by full unit name."""
        for resource in self._of(ServiceResource):
            yield checked_unit(self._text(resource.name)), resource

    def sysctls(self) -> Mapping[str, str]:
        """Return the kernel parameters, words separated by single blanks."""
        values = dict(self._node.sysctl) if self._node is not None else {}
        for resource in self._of(SysctlResource):
            values[self._text(resource.key)] = self._text(resource.value)
        return {name: " ".join(value.split()) for name, value in values.items()}

    def modules(self) -> Iterator[tuple[str, KernelModuleResource]]:
        """Yield the kernel modules by name, with `_` for `-` as the kernel has them."""
        for name in self._node.modules if self._node is not None else ():
            yield name.replace("-", "_"), KernelModuleResource(kind="kernel_module", name=name)
        for resource in self._of(KernelModuleResource):
            yield self._text(resource.name).replace("-", "_"), resource

    def hosts(self) -> tuple[str, ...]:
        """Return the names that /etc/hosts must have."""
        return tuple(self._node.hosts) if self._node is not None else ()

    def commands(self) -> Iterator[tuple[str, str, str]]:
        """Yield name and both guards, `creates` and `unless`, of each command."""
        for resource in self._of(CommandResource):
            guards = (self._text(resource.creates or ""), self._text(resource.unless or ""))
            yield self._text(resource.name), *guards

    def units(self) -> frozenset[str]:
        """Return the units that are the site's: declared ones, those that it restarts, the time daemon."""
        names = {name for name, _ in self.services()}
        for resource in self._of(FileResource):
            names.update(map(checked_unit, resource.restart))
        if self._node is not None and self._node.ntp is not None:
            names.update(DAEMONS.values())
        return frozenset(names)

    def _of(self, kind: type[R]) -> Iterator[R]:
        return (resource for resource in self._resources if isinstance(resource, kind))

    def _text(self, text: str, more: Mapping[str, object] | None = None) -> str:
        return render(text, {**self._values, **(more or {})}, "host resource")

    def _path(self, resource: FileResource) -> str:
        return self._text(resource.path, resource.vars)

    def _content(self, resource: FileResource) -> bytes:
        if resource.secret is not None:
            return resource.secret.open(self._inventory.redactor).get_secret_value().encode()
        text = read_template(resource.template) if resource.template is not None else resource.content
        return self._text(text or "", resource.vars).encode()
