"""Cloud images of a hypervisor's VMs, downloaded and checked by Proxmox itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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
    content = context.answer(names.api(hypervisor.name), StorageContent(hypervisor.storage.images))
    volumes = {volume.volid for volume in content} if isinstance(content, tuple) else set()
    files = (
        file_of(context.inventory, hypervisor, image) for image in used(context.inventory, hypervisor.name)
    )
    return tuple(replace(file, downloads=file.volume not in volumes) for file in files)


def retired(context: Context) -> tuple[Resource, ...]:
    """Return the images as absent: their names carry the digest, so nothing else can be meant."""
    inventory = context.inventory
    hypervisor = inventory.hypervisors[context.subject.name]
    return tuple(
        ImageFile(
            names.api(hypervisor.name),
            hypervisor.node_name,
            hypervisor.storage.images,
            names.image_file(inventory, each),
            absent=True,
            content=names.image_content(inventory, each),
            source=inventory.source(("images", each)),
        )
        for each in used(inventory, hypervisor.name)
        if inventory.images[each].file is None
    )


def used(inventory: Inventory, hypervisor: str) -> tuple[str, ...]:
    """Return the names of the images that VMs of a hypervisor start from, each once."""
    nodes = [node for node in names.nodes_of(inventory, hypervisor) if node.manage]
    found = (image for node in nodes for image in (node.image, node.iso))
    return tuple(dict.fromkeys(each for each in found if each is not None))


def file_of(inventory: Inventory, hypervisor: Hypervisor, image: str) -> ImageFile:
    """Return an image in the storage of a hypervisor."""
    url, digest = names.image_download(inventory, image)
    return ImageFile(
        names.api(hypervisor.name),
        hypervisor.node_name,
        hypervisor.storage.images,
        names.image_file(inventory, image),
        url,
        digest,
        content=names.image_content(inventory, image),
        source=inventory.source(("images", image)),
    )


ROLE = Role(
    name="image",
    declared=declared,
    questions=questions,
    resources=resources,
    retired=retired,
)
