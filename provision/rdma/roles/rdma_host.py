"""A node's RDMA: the modules that pods need, and how network namespaces share the devices.

Ports, addresses and MTU are the network's and are only looked at: by preflight and by the checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.contracts.resource import Resource
from provision.contracts.role import Context, Role
from provision.gpu.queries import GpuState, GpuStatus
from provision.gpu.roles.gpu_driver import managed_driver
from provision.hosts import names
from provision.hosts.change_effects import reboot_of
from provision.hosts.queries.kernel import BootLoader
from provision.hosts.resources.as_before import StatesAsBefore
from provision.hosts.resources.file import File
from provision.hosts.resources.kernel import INITRAMFS, KernelArguments, KernelModule
from provision.hosts.resources.package import Package
from provision.hosts.roles.host_resources import retires
from provision.inventory import Inventory, Subject
from provision.kube.names import is_member
from provision.rdma import cni_paths
from provision.rdma.queries import RdmaState
from provision.rdma.resources.cni import CniProgram
from provision.rdma.resources.namespaces import OPTIONS_FILE, NamespaceMode

RDMA_CORE = "rdma-core"
MODULES = ("ib_uverbs", "rdma_ucm")
"""Verbs and connections of programs: `/dev/infiniband/uverbsN` and `rdma_cm`."""


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the node has rails."""
    node = inventory.nodes.get(subject.name) if subject.kind == "node" else None
    return node is not None and node.manage and bool(node.rails)


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask for ports, for the boot loader where a mode of namespaces is declared, and for cards."""
    loader = () if inventory.rdma is None or inventory.rdma.netns is None else (BootLoader(),)
    cards = (GpuState(),) if _has_own_driver(inventory, subject.name) else ()
    return {names.ssh(subject.name): (RdmaState(), *loader, *cards)}


def _has_own_driver(inventory: Inventory, name: str) -> bool:
    """Whether a node has cards, and a driver that came with it: for ours `gpu_driver` does it."""
    return inventory.nodes[name].wants_gpu and managed_driver(inventory, name) is None


def resources(context: Context) -> tuple[Resource, ...]:
    """Return modules, the user-space part where the node has none of its own, and the mode of namespaces."""
    inventory, name = context.inventory, context.subject.name
    node, system = inventory.nodes[name], names.ssh(name)
    source = inventory.source(("nodes", name, "rails"))
    made: list[Resource] = []
    if node.ofed is None:
        # NVIDIA's own stack (`ofed`) brings packages of the same files.
        made.append(Package(system, (RDMA_CORE,), source=source))
    made += [KernelModule(system, module, source=source) for module in MODULES]
    made += _cni(inventory, name)
    if _has_own_driver(inventory, name):
        cards = context.answer(system, GpuState())
        if isinstance(cards, GpuStatus) and cards.peermem_loaded:
            # Who loaded it by hand would miss GPUDirect after the next boot.
            made.append(KernelModule(system, "nvidia_peermem", source=source))
    if inventory.rdma is None or inventory.rdma.netns is None:
        return tuple(made)
    source = inventory.source(("rdma", "netns"))
    status = context.require(system, RdmaState(), f"cannot read the RDMA ports of {name}", source)
    reboot = reboot_of(inventory, context.subject)
    mode = NamespaceMode(system, inventory.rdma.netns, reboot, status.built_in, source=source)
    made.append(mode)
    if status.built_in:
        loader = context.require(system, BootLoader(), f"cannot read the boot loader of {name}", source)
        argument = f"ib_core.{mode.option}"
        made.append(KernelArguments(system, (argument,), loader, reboot, source=source))
    return tuple(made)


def missing_programs(inventory: Inventory, name: str) -> tuple[str, ...]:
    """Return the CNI programs that a node's networks of pods need and k3s does not bring."""
    rdma, node = inventory.rdma, inventory.nodes[name]
    if rdma is None or not is_member(inventory, node):
        return ()
    if not any(network.rail in node.rails for network in rdma.networks.values()):
        return ()
    return cni_paths.MISSING[rdma.method]


def _cni(inventory: Inventory, name: str) -> list[Resource]:
    """Return the CNI programs that the node's networks of pods need, and the package that brings them.

    k3s may come later: it keeps what is in the folder already.
    """
    system, source = names.ssh(name), inventory.source(("rdma", "networks"))
    programs = [CniProgram(system, one, source=source) for one in missing_programs(inventory, name)]
    return [Package(system, (cni_paths.PACKAGE,), source=source), *programs] if programs else []


def retired(context: Context) -> tuple[Resource, ...]:
    """Return our files as absent on bare metal, and states as before; packages are named and stay."""
    system = names.ssh(context.subject.name)
    modules = (KernelModule(system, module, absent=True) for module in MODULES)
    return (StatesAsBefore(system), *modules, File(system, OPTIONS_FILE, absent=True, effects=(INITRAMFS,)))


ROLE = Role(
    retired=retired,
    retires=retires,
    name="rdma_host",
    needs=("base_os", "host_resources"),
    declared=declared,
    questions=questions,
    resources=resources,
)
