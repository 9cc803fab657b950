"""What an inventory may declare and no role serves yet: plan refuses it.

A role that comes deletes its lines here.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from provision.inventory.dhcp_backends import DHCP_BACKENDS
from provision.inventory.models.inventory import Inventory
from provision.inventory.models.node import Node
from provision.inventory.tree import KeyPath
from provision.values.diagnostics import Diagnostic

CLUSTER = "cluster"
K3S = ("k3s_server", "k3s_agent")


@dataclass(frozen=True, slots=True)
class Unserved:
    """Something declared that waits for a role.

    Args:
        role: the role that would serve it.
        what: as a user reads it.
        path: where it was declared first.
        subjects: whom it is about; the whole site if empty.
        steps: steps of the playbook that it bears on; all of them if empty.
    """

    role: str
    what: str
    path: KeyPath
    subjects: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()

    def concerns(self, targets: Collection[str], steps: Collection[str]) -> bool:
        """Whether a run for these targets and steps meets it; empty ones stand for all."""
        meant = not targets or not self.subjects or bool(set(self.subjects) & set(targets))
        return meant and (not steps or not self.steps or bool(set(self.steps) & set(steps)))

    def problem(self, inventory: Inventory) -> Diagnostic:
        """Return it as a user reads it, with its line of the inventory."""
        whom = f" ({', '.join(self.subjects)})" if self.subjects else ""
        wholly = not self.subjects and not self.steps
        return Diagnostic(
            "FEATURE_UNSERVED",
            f"{self.what}{whom}: no role serves this yet ({self.role})",
            self.subjects[0] if len(self.subjects) == 1 else "",
            source=inventory.source(self.path),
            remedy="take it out of the inventory"
            if wholly
            else "leave it out by --target or --step, or take it out of the inventory",
        )


class _Found(NamedTuple):
    role: str
    what: str
    path: KeyPath
    subject: str = ""
    steps: tuple[str, ...] | None = None
    """The step of the role itself if None."""


def unserved(inventory: Inventory) -> tuple[Unserved, ...]:
    """Return what the inventory declares in vain, in the order in which roles would bring it about."""
    found: dict[tuple[str, str], Unserved] = {}
    walks = (_site, _hypervisors, _nodes, _cluster, _expected)
    for each in itertools.chain.from_iterable(walk(inventory) for walk in walks):
        subjects = (each.subject,) if each.subject else ()
        steps = (each.role,) if each.steps is None else each.steps
        key = (each.role, each.what)
        old = found.setdefault(key, Unserved(each.role, each.what, each.path, subjects, steps))
        if not set(subjects) <= set(old.subjects):
            found[key] = replace(old, subjects=(*old.subjects, *subjects))
    return tuple(found.values())


def _site(inventory: Inventory) -> Iterator[_Found]:
    """Options of the site as a whole that nothing reads yet."""
    proxy, sources, network = inventory.proxy, inventory.sources, inventory.network
    if proxy.url is not None or proxy.no_proxy:
        key = "no_proxy" if proxy.url is None else "url"
        yield _Found("proxy", f"proxy.{key}", ("proxy", key), steps=())
    if sources.mode != "online":
        yield _Found(f"sources_{sources.mode}", f"sources.mode {sources.mode}", ("sources", "mode"), steps=())
    if sources.registries:
        yield _Found("sources_registries", "sources.registries", ("sources", "registries"), steps=())
    if sources.apt is not None:
        yield _Found("sources_apt", "sources.apt", ("sources", "apt"), steps=())
    if network is not None and network.dns:
        yield _Found("resolver", "network.dns", ("network", "dns"), steps=())
    if network is not None and network.domain is not None:
        yield _Found("resolver", "network.domain", ("network", "domain"), steps=())


def _hypervisors(inventory: Inventory) -> Iterator[_Found]:
    for name, host in inventory.hypervisors.items():
        if host.repositories != "unmanaged":
            what, path = f"repositories {host.repositories}", ("hypervisors", name, "repositories")
            yield _Found("repositories", what, path, name, ("hypervisor_host",))
        if host.reserve_address:
            yield from _reservation(inventory, name)


def _reservation(inventory: Inventory, subject: str) -> Iterator[_Found]:
    dhcp = inventory.dhcp
    if dhcp is None:
        return
    backend = DHCP_BACKENDS[dhcp.backend]
    path: KeyPath = ("network", "dhcp")
    steps = ("dhcp_reservation", "address")
    if not backend.served:
        what = f"address reservations by dhcp.backend {dhcp.backend}"
        yield _Found(f"dhcp_{dhcp.backend}", what, (*path, "backend"), subject, steps)
    elif dhcp.order not in backend.orders:
        what = f"dhcp.order {dhcp.order} with {dhcp.backend}"
        yield _Found(f"dhcp_{dhcp.order}", what, (*path, "order"), subject, steps)


def _nodes(inventory: Inventory) -> Iterator[_Found]:
    for name, node in inventory.nodes.items():
        path: KeyPath = ("nodes", name)
        if node.is_virtual:
            yield from _reservation(inventory, name)
        yield from _drivers(node, path)
        yield from _kubernetes(node, path)


def _drivers(node: Node, path: KeyPath) -> Iterator[_Found]:
    """Drivers that are ours, and what is wanted of those that are not."""
    name, driver, ofed, runtime = node.name, node.driver, node.ofed, node.container_runtime
    if driver is not None and driver.manage:
        yield _Found("gpu_driver", "a managed GPU driver", (*path, "driver"), name)
    elif driver is not None and (driver.minimum or driver.fabric_manager not in (None, "unmanaged")):
        yield _Found("gpu_driver", "what the GPU driver must be", (*path, "driver"), name)
    if node.gpu_cards is not None:
        yield _Found("gpu_driver", "what GPU cards must show", (*path, "gpu_cards"), name)
    if runtime is not None and (runtime.manage or runtime.minimum):
        yield _Found("container_runtime", "a container runtime", (*path, "container_runtime"), name, K3S)
    if node.rails or node.rail_addresses:
        yield _Found("rdma_host", "RDMA ports", (*path, "rails"), name)
    if ofed is not None and (ofed.manage or ofed.minimum):
        yield _Found("rdma_host", "a NIC driver stack", (*path, "ofed"), name)


def _kubernetes(node: Node, path: KeyPath) -> Iterator[_Found]:
    if node.k3s is not None:
        yield _Found(f"k3s_{node.k3s}", f"a k3s {node.k3s}", (*path, "k3s"), node.name)
        return
    for key in ("labels", "taints", "kube_name", "interfaces"):
        if getattr(node, key):
            what = f"{key} of a node that is not in the cluster"
            yield _Found("kubernetes_node", what, (*path, key), node.name, K3S)


def _cluster(inventory: Inventory) -> Iterator[_Found]:
    gpu, sharing = inventory.gpu, inventory.sharing
    for name, shared in inventory.storage.items():
        if shared.manage:
            yield _Found("shared_storage", "managed shared storage", ("storage", name), CLUSTER)
        elif shared.same_on_all is not None or shared.free is not None:
            yield _Found("shared_storage", "what shared storage must be", ("storage", name), CLUSTER)
    if gpu is not None and gpu.operator is not None:
        yield _Found("gpu_operator", "the GPU Operator", ("gpu", "operator"), CLUSTER)
    elif gpu is not None and gpu.toolkit is not None:
        yield _Found("gpu_operator", "the container toolkit", ("gpu", "toolkit"), CLUSTER)
    if inventory.rdma is not None:
        yield _Found("network_operator", "RDMA of pods", ("rdma",), CLUSTER)
    if sharing is not None and sharing.mode != "none":
        yield _Found("gpu_sharing", "GPU sharing", ("sharing", "mode"), CLUSTER)
    if inventory.dynamo is not None:
        yield _Found("dynamo", "NVIDIA Dynamo", ("dynamo",), CLUSTER)


def _expected(inventory: Inventory) -> Iterator[_Found]:
    """What verification shall find, where no check looks yet."""
    expect = inventory.expect
    for alias in expect.gpu_cards:
        for node in inventory.nodes.values():
            if alias in node.gpus:
                path = ("expect", "gpu_cards", alias)
                yield _Found("gpu_driver", "what GPU cards must show", path, node.name)
    for key in ("rdma", "nccl"):
        if getattr(expect, key) is not None:
            yield _Found(f"verify_{key}", f"expect.{key}", ("expect", key), CLUSTER, ("verify",))
