"""The privileges that this tool ever asks of a token: one list for preflight and for `provision bootstrap`.

Source: Proxmox VE's manual, "User Management", table of privileges; by call, the permission checks of
qemu-server and pve-storage.
"""

from __future__ import annotations

from collections.abc import Iterable

USER = "provision@pve"
"""The user that `provision bootstrap` makes, and gives the role to."""
CONFIG = ("CPU", "Memory", "HWType", "Options", "Disk", "Network", "CDROM", "Cloudinit")
"""Parts of `VM.Config.*`."""
VM = ("VM.Allocate", "VM.Audit", "VM.PowerMgmt", *(f"VM.Config.{each}" for each in CONFIG))
STORAGE = ("Datastore.Audit", "Datastore.AllocateSpace", "Datastore.AllocateTemplate")
NETWORK = ("SDN.Use",)
MAPPING = ("Mapping.Audit", "Mapping.Use", "Mapping.Modify")
DOWNLOAD = "Sys.AccessNetwork"
"""What a download needs on a node, where the version knows it."""
DOWNLOAD_BROAD = ("Sys.Audit", "Sys.Modify")
"""What it needs on `/` otherwise."""


def role(known: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the privileges of our role among those that a version knows, and those of ours that it lacks.

    Args:
        known: all privileges of the host's version (those of its role Administrator).
    """
    there = set(known)
    wanted = [*VM, *STORAGE, *NETWORK, *MAPPING, DOWNLOAD]
    if DOWNLOAD not in there:
        wanted = [*wanted[:-1], *DOWNLOAD_BROAD]
    have = tuple(each for each in wanted if each in there)
    return have, tuple(each for each in wanted if each not in there)


def paths(node: str, storages: Iterable[str], *, broad: bool = False) -> tuple[str, ...]:
    """Return the paths on which the role is given: no wider than what is used.

    Args:
        node: node name in Proxmox VE.
        storages: names of the storages that are used.
        broad: the version has no DOWNLOAD: the root path, too.
    """
    used = tuple(f"/storage/{each}" for each in dict.fromkeys(storages))
    return ("/vms", *used, "/sdn/zones/localnetwork", "/mapping/pci", "/" if broad else f"/nodes/{node}")
