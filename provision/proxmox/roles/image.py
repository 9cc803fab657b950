"""Cloud images of a hypervisor's VMs, downloaded and checked by Proxmox itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from provision.contracts.resource import Resource
from provision.contracts.role import Context, Role
from provision.hosts import names as host_names
from provision.inventory import Inventory, Subject
from provision.inventory.models.hypervisor import Hypervisor
from provision.proxmox import names
from provision.proxmox.host_facts import STORAGES
from provision.proxmox.queries import Permissions, StorageContent
from provision.proxmox.resources.image import ImageFile
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether any VM of the hypervisor starts from an image."""
    return subject.kind == "hypervisor" and bool(used(inventory, subject.name))


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask for the image storage's content, and what the host says that it takes.

    A host that does not answer gets no image either: nothing on it could be refused in time.
    """
    storage = inventory.hypervisors[subject.name].storage.images
    return {
        names.api(subject.name): (Permissions(), StorageContent(storage)),
        host_names.ssh(subject.name): (STORAGES,),
    }


def resources(context: Context) -> tuple[Resource, ...]:
    """Return every image that a VM of this hypervisor starts from."""
    hypervisor = context.inventory.hypervisors[context.subject.name]
    return tuple(
        _file(context.inventory, hypervisor, each) for each in used(context.inventory, hypervisor.name)
    )


def retired(context: Context) -> tuple[Resource, ...]:
    """Return the images as absent: their names carry the digest, so nothing else can be meant."""
    inventory = context.inventory
    hypervisor = inventory.hypervisors[context.subject.name]
    return tuple(
        ImageFile(
            names.api(hypervisor.name),
            hypervisor.node_name,
            hypervisor.storage.images,
            file_of(inventory, each),
            absent=True,
            source=inventory.source(("images", each)),
        )
        for each in used(inventory, hypervisor.name)
        if inventory.images[each].file is None
    )


def used(inventory: Inventory, hypervisor: str) -> tuple[str, ...]:
    """Return the names of the images that VMs of a hypervisor start from, each once."""
    found = (each.image for each in names.nodes_of(inventory, hypervisor) if each.manage)
    return tuple(dict.fromkeys(each for each in found if each is not None))


def download_of(inventory: Inventory, image: str) -> tuple[str, str]:
    """Return URL and SHA-256 of an image, from the inventory or from its lock file.

    Raises:
        UsageError: one of them is missing.
    """
    pin = inventory.image_pin(image)
    if pin is None:
        raise UsageError(
            Diagnostic(
                "IMAGE_UNPINNED",
                f"image {image} has no URL or no SHA-256: what is downloaded must be pinned",
                source=inventory.source(("images", image)),
                remedy=f"pin it: `provision pin {inventory.file or 'INVENTORY'}`",
            )
        )
    return pin.url, pin.sha256.lower()


def file_of(inventory: Inventory, image: str) -> str:
    """Return the file name of an image in its storage.

    Digits of its digest are always in it: the API tells no digest of a volume, so only another name shows
    that another image is wanted.
    """
    digest = download_of(inventory, image)[1][:8]
    name = re.sub(r"[^A-Za-z0-9._-]", "-", image)
    wanted = PurePosixPath(inventory.images[image].file or f"{name}.qcow2")
    if digest in wanted.name.lower():
        return wanted.name
    return f"{wanted.name.removesuffix(wanted.suffix)}-{digest}{wanted.suffix}"


def volume_of(inventory: Inventory, hypervisor: Hypervisor, image: str) -> str:
    """Return the volume of an image on a hypervisor."""
    return f"{hypervisor.storage.images}:import/{file_of(inventory, image)}"


def _file(inventory: Inventory, hypervisor: Hypervisor, image: str) -> ImageFile:
    url, digest = download_of(inventory, image)
    return ImageFile(
        names.api(hypervisor.name),
        hypervisor.node_name,
        hypervisor.storage.images,
        file_of(inventory, image),
        url,
        digest,
        source=inventory.source(("images", image)),
    )


ROLE = Role(
    name="image",
    declared=declared,
    questions=questions,
    resources=resources,
    retired=retired,
)
