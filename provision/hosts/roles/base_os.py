"""A node's operating system: name, root filesystem, packages, time, swap, kernel parameters, keys.

What is unset is unmanaged. Packages come before what needs them; the clock comes after its daemon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provision.contracts.resource import Resource
from provision.contracts.role import Context, Role
from provision.contracts.system import InventoryValue
from provision.hosts import names
from provision.hosts.apt_settings import apt_files
from provision.hosts.package_source import (
    has_package_source,
    package_source,
    retired_source,
    source_questions,
)
from provision.hosts.public_keys import login_keys, public_key_file
from provision.hosts.queries.file import FileText
from provision.hosts.queries.system import ClockState
from provision.hosts.resources.as_before import as_before
from provision.hosts.resources.file import File, authorized_keys
from provision.hosts.resources.filesystem import RootFilesystem
from provision.hosts.resources.hosts_file import HostsEntry
from provision.hosts.resources.kernel import KernelModule
from provision.hosts.resources.package import Package, PackageState
from provision.hosts.resources.sysctl import Sysctl
from provision.hosts.resources.system import Hostname, SwapIsOff, TimeSync, Timezone
from provision.hosts.roles.host_resources import HOSTS, HOSTS_TEMPLATE, MADE_BY_CLOUD_INIT, retires
from provision.hosts.systems import login_key
from provision.inventory import Inventory, Subject
from provision.inventory.models.node import Node
from provision.values.diagnostics import Source

CHRONY = "chrony"
TIME_ZONES = "tzdata"
_TIMESYNCD = "systemd-timesyncd"


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the node declares anything of its operating system."""
    node = inventory.nodes.get(subject.name) if subject.kind == "node" else None
    if node is None or not node.manage:
        return False
    return bool(
        node.managed_hostname
        or node.grows_root
        or node.timezone
        or node.ntp is not None
        or node.swap == "off"
        or node.packages
        or node.sysctl
        or node.modules
        or node.hosts
        or any(apt_files(inventory, node))
        or has_package_source(inventory, node)
        or inventory.access.authorized_keys is not None
    )


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask, where time servers or chrony are declared, which daemon there is and whose clock it is."""
    node = inventory.nodes[subject.name]
    asked = (ClockState(), PackageState(CHRONY), PackageState(_TIMESYNCD))
    asked_for = asked if node.ntp is not None or CHRONY in node.packages else ()
    hosts = (FileText(HOSTS),) if node.hosts else ()
    return {names.ssh(node.name): (*asked_for, *hosts, *source_questions(inventory, node))}


def resources(context: Context) -> tuple[Resource, ...]:
    """Return what the node declares."""
    inventory = context.inventory
    node = inventory.nodes[context.subject.name]
    system = names.ssh(node.name)
    where = ("nodes", node.name)
    desired: list[Resource] = []
    if node.managed_hostname:
        source = inventory.source((*where, "hostname"))
        desired.append(Hostname(system, node.managed_hostname, source=source))
    if node.grows_root:
        desired.append(RootFilesystem(system, source=inventory.source((*where, "grow_root"))))
    for path, text in apt_files(inventory, node):
        desired.append(File.of_text(system, path, text, inventory.source(where)))
    desired += context.known(lambda: tuple(package_source(context, node)), ())
    daemon = context.known(lambda: _daemon(context, node), "")
    source = inventory.source((*where, "packages"))
    desired += _packages(context, node, daemon, source)
    if node.timezone:
        desired.append(Timezone(system, node.timezone, source=inventory.source((*where, "timezone"))))
    if daemon:
        source = inventory.source((*where, "ntp"))
        desired.append(TimeSync(system, daemon, node.ntp or (), source=source))
    if node.swap == "off":
        desired.append(SwapIsOff(system, source=inventory.source((*where, "swap"))))
    for name, value in node.sysctl.items():
        desired.append(Sysctl(system, name, value, source=inventory.source((*where, "sysctl", name))))
    for module in node.modules:
        desired.append(KernelModule(system, module, source=inventory.source((*where, "modules"))))
    desired += context.known(lambda: tuple(_hosts(context, node)), ())
    desired += _keys(inventory, node, system)
    return tuple(desired)


def _hosts(context: Context, node: Node) -> Iterator[HostsEntry]:
    """Yield the entries of /etc/hosts, and of what cloud-init makes it from at each boot."""
    if not node.hosts:
        return
    system = names.ssh(node.name)
    content = context.require(system, FileText(HOSTS), may_be_absent=True)
    paths = (HOSTS_TEMPLATE, HOSTS) if MADE_BY_CLOUD_INIT.encode() in (content or b"") else (HOSTS,)
    for name, address in node.hosts.items():
        source = context.inventory.source(("nodes", node.name, "hosts", name))
        for path in paths:
            yield HostsEntry(system, path, name, address, source=source)


def _packages(context: Context, node: Node, daemon: str, source: Source | None) -> Iterator[Package]:
    """Yield what is installed; Debian has one time daemon at a time: for chrony the other one goes."""
    system = names.ssh(node.name)
    packages = dict.fromkeys(node.packages)
    if daemon == CHRONY:
        packages[CHRONY] = None
    if node.timezone:
        packages[TIME_ZONES] = None
    if CHRONY in packages and context.known(lambda: _has_package(context, _TIMESYNCD), False):
        yield Package(system, (_TIMESYNCD,), absent=True, source=source)
    if packages:
        yield Package(system, tuple(packages), source=source)


def _has_package(context: Context, name: str) -> bool:
    return bool(context.require(names.ssh(context.subject.name), PackageState(name)).installed)


def _daemon(context: Context, node: Node) -> str:
    """Return the time daemon: the one that is there, else chrony; empty where none is wanted."""
    if node.ntp is None or context.require(names.ssh(node.name), ClockState()).container:
        return ""  # a container's clock is its machine's
    other = _has_package(context, _TIMESYNCD) and not _has_package(context, CHRONY)
    return "timesyncd" if other and CHRONY not in node.packages else "chrony"


def _keys(inventory: Inventory, node: Node, system: str) -> tuple[Resource, ...]:
    """Return the managed list of public keys."""
    if inventory.access.authorized_keys is None:
        return ()
    source = inventory.source(("access", "authorized_keys"))
    user = inventory.login(node.name).user
    return authorized_keys(system, user, login_keys(inventory, node), source=source)


def local_inputs(inventory: Inventory, subject: Subject) -> tuple[InventoryValue, ...]:
    """Return the public key of the login where the list of keys is managed: it must be in that list."""
    path, key = login_key(inventory, subject.name)
    if inventory.access.authorized_keys is None or key is None:
        return ()
    return ((path, public_key_file(key)),)


def retired(context: Context) -> tuple[Resource, ...]:
    """Return our files as absent on bare metal, and what else was changed as before.

    The hostname, entries of /etc/hosts, swap and login keys stay: without them nobody may get in.
    """
    inventory, system = context.inventory, names.ssh(context.subject.name)
    node = inventory.nodes[context.subject.name]
    # What host_resources has changed is noted in the same place, and it is the first to end.
    states, own = as_before(system)
    gone: list[Resource] = [states]
    gone += [KernelModule(system, module, absent=True) for module in node.modules]
    gone += [Sysctl(system, name, None) for name in node.sysctl]
    gone += [
        File(system, path, absent=True, restores=True) for path, text in apt_files(inventory, node) if text
    ]
    if has_package_source(inventory, node):
        gone.append(retired_source(node))
    return (*gone, own)


ROLE = Role(
    retired=retired,
    retires=retires,
    local_inputs=local_inputs,
    name="base_os",
    needs=("virtual_machine", "first_contact"),
    declared=declared,
    questions=questions,
    resources=resources,
)
