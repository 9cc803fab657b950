"""Declared features and the roles that serve them: plan refuses what no role serves yet."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from provision.inventory.models.inventory import Inventory
from provision.inventory.models.node import Node
from provision.values.diagnostics import Diagnostic

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Feature:
    """Something declared that needs a role.

    Args:
        role: the role that serves it.
        what: as a user reads it.
        path: where it was declared first.
        subjects: whom it is about.
    """

    role: str
    what: str
    path: Path
    subjects: tuple[str, ...]


def declared_features(inventory: Inventory) -> tuple[Feature, ...]:
    """Return what the inventory declares, in the order in which roles bring it about."""
    found: dict[str, Feature] = {}
    for role, what, path, subject in (*_hypervisors(inventory), *_nodes(inventory), *_cluster(inventory)):
        old = found.get(role)
        if old is None:
            found[role] = Feature(role, what, path, (subject,))
        elif subject not in old.subjects:
            found[role] = Feature(role, old.what, old.path, (*old.subjects, subject))
    return tuple(found.values())


_Found = tuple[str, str, Path, str]


def _hypervisors(inventory: Inventory) -> Iterator[_Found]:
    dhcp = inventory.network.dhcp if inventory.network is not None else None
    for name, host in inventory.hypervisors.items():
        path: Path = ("hypervisors", name)
        yield "hypervisor_host", "a hypervisor", path, name
        if host.cards:
            yield "pci_mapping", "cards for VMs", (*path, "cards"), name
        if dhcp is not None and host.reserve_address:
            yield "dhcp_reservation", "address reservations", ("network", "dhcp"), name
        if host.host_resources:
            yield "host_resources", "host resources", (*path, "host_resources"), name


def _nodes(inventory: Inventory) -> Iterator[_Found]:
    for name, node in inventory.nodes.items():
        path: Path = ("nodes", name)
        if node.is_virtual:
            yield from _virtual(inventory, node, path)
        if _has_base_os(inventory, name):
            yield "base_os", "settings of the operating system", path, name
        if node.host_resources:
            yield "host_resources", "host resources", (*path, "host_resources"), name
        if node.wants_gpu and node.driver is not None and node.driver.manage:
            yield "gpu_driver", "a managed GPU driver", (*path, "driver"), name
        if node.rails or node.rail_addresses or (node.ofed is not None and node.ofed.manage):
            yield "rdma_host", "RDMA ports", (*path, "rails"), name
        if node.k3s is not None:
            yield f"k3s_{node.k3s}", f"a k3s {node.k3s}", (*path, "k3s"), name


def _virtual(inventory: Inventory, node: Node, path: Path) -> Iterator[_Found]:
    if node.image is not None:
        yield "image", "cloud images", (*path, "image"), node.hypervisor or node.name
    if inventory.network is not None and inventory.network.dhcp is not None:
        yield "dhcp_reservation", "address reservations", ("network", "dhcp"), node.name
    yield "virtual_machine", "VMs", path, node.name
    yield "address", "addresses of VMs", (*path, "address"), node.name


def _has_base_os(inventory: Inventory, name: str) -> bool:
    node = inventory.nodes[name]
    if not node.manage:
        return False
    declared = (node.managed_hostname, node.timezone, node.ntp, node.swap, inventory.access.authorized_keys)
    return node.grows_root or any(each is not None for each in declared) or bool(node.packages or node.sysctl)


def _cluster(inventory: Inventory) -> Iterator[_Found]:
    gpu, rdma, sharing = inventory.gpu, inventory.rdma, inventory.sharing
    for name, shared in inventory.storage.items():
        if shared.manage:
            yield "shared_storage", "managed shared storage", ("storage", name), "cluster"
    if gpu is not None and gpu.operator is not None:
        yield "gpu_operator", "the GPU Operator", ("gpu", "operator"), "cluster"
    if rdma is not None and (rdma.operator is not None or rdma.networks):
        yield "network_operator", "RDMA networks of pods", ("rdma",), "cluster"
    if sharing is not None and sharing.mode != "none":
        yield "gpu_sharing", "GPU sharing", ("sharing", "mode"), "cluster"
    if inventory.dynamo is not None:
        yield "dynamo", "NVIDIA Dynamo", ("dynamo",), "cluster"


def features_unserved(inventory: Inventory, served_roles: Collection[str]) -> list[Diagnostic]:
    """Return a problem for each declared feature that no role serves yet.

    Args:
        inventory: what the user declared.
        served_roles: names of the roles that exist.
    """
    return [
        Diagnostic(
            "FEATURE_UNSERVED",
            f"{feature.what} ({', '.join(feature.subjects)}): no role serves this yet ({feature.role})",
            feature.subjects[0] if len(feature.subjects) == 1 else "",
            source=inventory.source(feature.path),
            remedy="leave it out by --target or --step, or take it out of the inventory",
        )
        for feature in declared_features(inventory)
        if feature.role not in served_roles
    ]
