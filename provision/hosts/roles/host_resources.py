"""Site-specific resources of hypervisors and nodes, as the inventory declares them: the last host step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from provision.contracts.effect import Effect
from provision.contracts.resource import Resource
from provision.contracts.role import Context, Role
from provision.contracts.system import InventoryValue
from provision.hosts import names
from provision.hosts.change_effects import effects_of_path, reboot_of, restart
from provision.hosts.managed import item_of, values_of
from provision.hosts.names import checked_unit
from provision.hosts.queries.file import FileText
from provision.hosts.resources.as_before import StatesAsBefore
from provision.hosts.resources.command import Command
from provision.hosts.resources.file import File, FileLine
from provision.hosts.resources.kernel import KernelModule, ModprobeBlacklist
from provision.hosts.resources.package import Package
from provision.hosts.resources.service import Service
from provision.hosts.resources.sysctl import Sysctl
from provision.hosts.shell_syntax import syntax_error
from provision.hosts.templating import read_template, render
from provision.inventory import Inventory, Subject
from provision.inventory.models.host_resources import (
    CommandResource,
    FileResource,
    HostResource,
    KernelModuleResource,
    PackageResource,
    ServiceResource,
    SysctlResource,
)
from provision.values.diagnostics import Diagnostic, Source
from provision.values.errors import UsageError
from provision.values.redaction import Redactor
from provision.values.references import load_object

HOSTS = "/etc/hosts"
HOSTS_TEMPLATE = "/etc/cloud/templates/hosts.debian.tmpl"
"""What cloud-init makes /etc/hosts from at each boot, on Debian and Ubuntu (cloud-init, update_etc_hosts)."""
MADE_BY_CLOUD_INIT = "manage_etc_hosts"
"""Stands in the file that cloud-init made; Proxmox VE's user data asks it to."""


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether there are any, on a host that may be changed."""
    item = item_of(inventory, subject)
    return item is not None and item.manage and bool(item.host_resources)


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask whose /etc/hosts it is, where something of it is declared; the rest follows from the inventory."""
    item = item_of(inventory, subject)
    declared_items = item.host_resources if item is not None else ()
    asked = any(isinstance(each, FileResource) and each.path == HOSTS for each in declared_items)
    return {names.ssh(subject.name): (FileText(HOSTS),) if asked else ()}


@dataclass(frozen=True, slots=True)
class HostSite:
    """What all resources of one subject share.

    Args:
        system: the host.
        values: what texts may name in `{{ }}`.
        reboot: the effect of the host's reboot.
        redactor: learns the secrets that are opened.
        inventory: what was declared.
    """

    system: str
    values: Mapping[str, object]
    reboot: Effect
    redactor: Redactor
    inventory: Inventory

    def text(self, text: str, what: str, source: Source | None, more: Mapping[str, object]) -> str:
        """Return a text with its `{{ names }}` filled in, of the subject or of `more`."""
        return render(text, {**self.values, **more} if more else self.values, what, source)

    def filled(self, declaration: HostResource, source: Source | None, text: str | None) -> str:
        """Return a text of a declared resource with its `{{ names }}` filled in."""
        return self.text(text or "", f"{declaration.kind} resource", source, {})


def resources(context: Context) -> tuple[Resource, ...]:
    """Return them in the order in which they are declared.

    Raises:
        UsageError: a template, secret or value is wrong, with its position.
    """
    return tuple(_lasting(_each(context, _made), context))


def _each(
    context: Context, make: Callable[[HostSite, HostResource, Source | None], Iterator[Resource]]
) -> Iterator[Resource]:
    inventory, subject = context.inventory, context.subject
    item = item_of(inventory, subject)
    if item is None:
        return
    values, reboot = values_of(inventory, subject), reboot_of(inventory, subject)
    site = HostSite(names.ssh(subject.name), values, reboot, inventory.redactor, inventory)
    section = "hypervisors" if subject.kind == "hypervisor" else "nodes"
    path = (section, subject.name, "host_resources")
    sources = inventory.element_sources(path)
    for index, declaration in enumerate(item.host_resources):
        source = sources[index] if index < len(sources) else inventory.source((*path, index))
        try:
            yield from make(site, declaration, source)
        except ValueError as error:
            raise UsageError(
                Diagnostic("HOST_RESOURCE_INVALID", str(error), subject=subject.name, source=source)
            ) from None


def _hosts_file(context: Context) -> bytes | None:
    content: bytes | None = context.require(
        names.ssh(context.subject.name), FileText(HOSTS), may_be_absent=True
    )
    return content


def _lasting(resources: Iterator[Resource], context: Context) -> Iterator[Resource]:
    """Yield the resources; what is of /etc/hosts goes into what that is made from at each boot, too."""
    for resource in resources:
        if isinstance(resource, File | FileLine) and resource.path == HOSTS:
            hosts = context.known(lambda: _hosts_file(context), None)
            if MADE_BY_CLOUD_INIT.encode() in (hosts or b""):
                yield replace(resource, path=HOSTS_TEMPLATE)
        yield resource


def retired(context: Context) -> tuple[Resource, ...]:
    """Return whole files, kernel parameters and modules as they were before, on machines that stay.

    A file that was there before is put back, the others go. Services, holds and live kernel parameters are
    as they were. Packages and modules are named and stay, lines and commands stay: others may have come to
    need them.

    Raises:
        UsageError: a path or name is wrong, with its position.
    """
    # First, because a unit that only our file made is stopped while it has that file.
    before = StatesAsBefore(names.ssh(context.subject.name))
    return (before, *reversed(tuple(_lasting(_each(context, _gone), context))))


def retires(inventory: Inventory, subject: Subject) -> bool:
    """Whether the machine stays: a VM goes as a whole."""
    node = inventory.nodes.get(subject.name)
    return subject.kind == "hypervisor" or (node is not None and not node.is_virtual)


def _made(site: HostSite, declaration: HostResource, source: Source | None) -> Iterator[Resource]:
    if isinstance(declaration, FileResource):
        yield from _file(site, declaration, source)
        return
    filled = partial(site.filled, declaration, source)
    if isinstance(declaration, PackageResource):
        name, hold = filled(declaration.name), declaration.hold
        yield Package(site.system, (name,), absent=declaration.absent, hold=hold, source=source)
    elif isinstance(declaration, ServiceResource):
        name = filled(declaration.name)
        yield Service(site.system, name, declaration.running, declaration.enabled, source=source)
    elif isinstance(declaration, SysctlResource):
        yield Sysctl(site.system, filled(declaration.key), filled(declaration.value), source=source)
    elif isinstance(declaration, KernelModuleResource):
        yield _module(site, declaration, filled(declaration.name), filled(declaration.options), source)
    elif isinstance(declaration, CommandResource):
        yield _command(site, declaration, filled, source)
    elif (kind := site.inventory.resource_kind(declaration.kind)) is not None:
        yield from load_object(kind.resources)(site, declaration, source)


def _gone(site: HostSite, declaration: HostResource, source: Source | None) -> Iterator[Resource]:
    """Yield one as absent by its path or name alone: its secret or template may be gone already."""
    filled = partial(site.filled, declaration, source)
    if isinstance(declaration, FileResource):
        if declaration.line is None and not declaration.absent:
            path, effects = _place(site, declaration, source)
            yield File(site.system, path, absent=True, restores=True, effects=effects, source=source)
    elif isinstance(declaration, SysctlResource):
        yield Sysctl(site.system, filled(declaration.key), None, source=source)
    elif isinstance(declaration, KernelModuleResource):
        name = filled(declaration.name)
        if declaration.blacklisted:
            yield ModprobeBlacklist(site.system, f"no-{name}", (), source=source)
        else:
            yield KernelModule(site.system, name, absent=True, source=source)
    elif (kind := site.inventory.resource_kind(declaration.kind)) is not None and kind.removed:
        yield from load_object(kind.removed)(site, declaration, source)


def _module(
    site: HostSite, declaration: KernelModuleResource, name: str, options: str, source: Source | None
) -> Resource:
    if declaration.blacklisted:
        return ModprobeBlacklist(site.system, f"no-{name}", (name,), site.reboot, source=source)
    return KernelModule(site.system, name, options, reboot=site.reboot, source=source)


def _command(site: HostSite, declaration: CommandResource, filled: Any, source: Source | None) -> Command:
    name, run, unless = filled(declaration.name), filled(declaration.run), filled(declaration.unless)
    for key, text in (("run", run), ("unless", unless)):
        if "\0" not in text and (error := syntax_error(text)):
            raise ValueError(f"command {name!r}: `{key}` is not valid shell text: {error}")
    return Command(site.system, name, run, creates=filled(declaration.creates), unless=unless, source=source)


def _place(
    site: HostSite, declaration: FileResource, source: Source | None
) -> tuple[str, tuple[Effect, ...]]:
    """Return a file's path, and what must happen after a change of it."""
    path = site.text(declaration.path, "path", source, declaration.vars)
    units = tuple(restart(checked_unit(each)) for each in declaration.restart)
    return path, (*effects_of_path(path, site.reboot), *units)


def _file(site: HostSite, declaration: FileResource, source: Source | None) -> Iterator[Resource]:
    path, effects = _place(site, declaration, source)
    owner, group = declaration.owner or "", declaration.group or ""
    if declaration.absent:
        yield File(site.system, path, absent=True, effects=effects, source=source)
        return
    if declaration.line is not None:
        line = site.text(declaration.line, f"line of {path}", source, declaration.vars)
        yield FileLine(site.system, path, line, effects=effects, source=source)
        if declaration.mode or owner or group:
            yield File(site.system, path, None, declaration.mode or "", owner, group, source=source)
        return
    secret = declaration.sensitive or declaration.secret is not None
    yield File(
        site.system,
        path,
        _content(site, declaration, path, source),
        declaration.mode or ("0600" if secret else ""),
        owner,
        group,
        secret=secret,
        effects=effects,
        source=source,
    )


def _content(site: HostSite, declaration: FileResource, path: str, source: Source | None) -> bytes:
    if declaration.secret is not None:
        return declaration.secret.open(site.redactor).get_secret_value().encode()
    if declaration.template is not None:
        text, what = read_template(declaration.template, source), f"template {declaration.template}"
    else:
        text, what = declaration.content or "", f"content of {path}"
    return site.text(text, what, source, declaration.vars).encode()


def local_inputs(inventory: Inventory, subject: Subject) -> tuple[InventoryValue, ...]:
    """Return templates and secrets of the files that are written."""
    section = "hypervisors" if subject.kind == "hypervisor" else "nodes"
    item = item_of(inventory, subject)
    return (((section, subject.name, "host_resources"), item.host_resources if item is not None else ()),)


ROLE = Role(
    local_inputs=local_inputs,
    name="host_resources",
    needs=("virtual_machine", "first_contact"),
    declared=declared,
    questions=questions,
    resources=resources,
    retired=retired,
    retires=retires,
)
