"""Where vendor snippets lie on a hypervisor."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from provision.contracts.query import Unknown
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.file import FileState
from provision.hosts.queries.left_files import MarkedFiles
from provision.inventory import Inventory
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.proxmox import names
from provision.proxmox.host_facts import STORAGES, HypervisorFacts
from provision.proxmox.resources.guest import snippet_mark

DEFAULT = "/var/lib/vz"
"""Path of the storage `local` on every Proxmox VE."""
_PLAIN = re.compile(r"[A-Za-z0-9/._-]+")


def path(inventory: Inventory, hypervisor: Hypervisor, node: Node, snapshot: Snapshot | None = None) -> str:
    """Return the path of a node's vendor snippet on its hypervisor."""
    return path_of(inventory, hypervisor, node.name, snapshot)


def path_of(inventory: Inventory, hypervisor: Hypervisor, node: str, snapshot: Snapshot | None = None) -> str:
    """Return the path of the vendor snippet of a node's name, which nobody may declare any more."""
    folder = storage_folder(hypervisor, snapshot) if snapshot is not None else f"{DEFAULT}/snippets"
    return f"{folder}/{names.snippet_file(inventory, node)}"


def questions(inventory: Inventory, hypervisor: Hypervisor, node: Node) -> tuple[Any, ...]:
    """Return what is asked of the hypervisor: its storages, and whether the snippet lies there."""
    return (STORAGES, FileState(path(inventory, hypervisor, node)))


@dataclass(frozen=True, slots=True)
class LeftSnippet:
    """A snippet of a node that this inventory does not declare, and the number that its VM was to have."""

    path: str
    node: str
    vmid: int


def marked(inventory: Inventory) -> MarkedFiles:
    """Return what finds this inventory's snippets in every storage of a hypervisor.

    storage.cfg has the paths of NFS and CIFS storages, too. `local` exists even if it is not in that file.
    """
    return MarkedFiles(f"{DEFAULT}/snippets", snippet_mark(inventory.name), STORAGES.path)


def left(inventory: Inventory, files: Iterable[tuple[str, str]]) -> tuple[LeftSnippet, ...]:
    """Return the snippets of nodes that left, of what `marked` found; copies by a person have other names."""
    snippets = []
    for path, line in files:
        node, _, vmid = line.partition(" vmid=")
        is_ours = path.rpartition("/")[2] == names.snippet_file(inventory, node) and _PLAIN.fullmatch(path)
        if is_ours and node not in inventory.nodes:
            snippets.append(LeftSnippet(path, node, int(vmid) if vmid.isdecimal() else 0))
    return tuple(snippets)


def storage_folder(hypervisor: Hypervisor, snapshot: Snapshot) -> str:
    """Return the folder of snippets in their storage; without storage.cfg, that of `local`.

    `content-dirs` names folders below the storage's path (pve-storage, `PVE/Storage/Plugin.pm`).
    """
    storages = HypervisorFacts(snapshot).storages
    keys = {} if isinstance(storages, Unknown) else storages.get(hypervisor.storage.snippets, {})
    folder = keys.get("path", "")
    root = folder.rstrip("/") if folder.startswith("/") and _PLAIN.fullmatch(folder) else DEFAULT
    folders = dict(part.strip().partition("=")[::2] for part in keys.get("content-dirs", "").split(","))
    own = folders.get("snippets", "").removeprefix(".").strip("/")
    return f"{root}/{own if own and _PLAIN.fullmatch(own) else 'snippets'}"
