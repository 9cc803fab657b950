"""Cloud images of a hypervisor's VMs: downloaded and checked by Proxmox itself, or sent out of a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from provision.contracts.resource import Resource
from provision.contracts.role import Context, Role
from provision.hosts import names as host_names
from provision.hosts.pinned_files import bundled_blob
from provision.inventory import Inventory, Subject
from provision.inventory.models.hypervisor import Hypervisor
from provision.proxmox import names
from provision.proxmox.host_facts import STORAGES, HypervisorFacts, storage_folder
from provision.proxmox.queries import Permissions, StorageContent
from provision.proxmox.resources.image import ImageFile, SentImage
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent


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
    """Return every image that a VM of this hypervisor starts from.

    Raises:
        NotYet: an image is to be sent, and the storages of the host are not known.
        Permanent: the storage has no folder that it could be sent to.
        UsageError: the bundle has no such image, or another one.
    """
    inventory = context.inventory
    hypervisor = inventory.hypervisors[context.subject.name]
    api, question = names.api(hypervisor.name), StorageContent(hypervisor.storage.images)
    is_sent = inventory.sources.mode == "bundle"
    content = context.require(api, question) if is_sent else context.answer(api, question)
    volumes = {volume.volid for volume in content} if isinstance(content, tuple) else set()
    resources: list[Resource] = []
    for image in used(inventory, hypervisor.name):
        file = file_of(inventory, hypervisor, image)
        is_missing = file.volume not in volumes
        sent = is_sent and is_missing
        resources.append(
            _sent(context, hypervisor, image, file) if sent else replace(file, downloads=is_missing)
        )
    return tuple(resources)


def _sent(context: Context, hypervisor: Hypervisor, image: str, file: ImageFile) -> SentImage:
    """Return the image as a file that the controller sends."""
    system, keys = host_names.ssh(hypervisor.name), ("images", image)
    context.require(system, STORAGES, f"cannot read the storages of {hypervisor.name}")
    folder = storage_folder(HypervisorFacts(context.seen(system)), file.storage, file.content)
    if folder is None:
        raise Permanent(
            Diagnostic(
                "STORAGE_NO_FOLDER",
                f"the storage {file.storage} has no folder on {hypervisor.name}: no image can be sent there",
                hypervisor.name,
                source=context.inventory.source(("hypervisors", hypervisor.name, "storage")),
                untouched="Nothing was changed.",
                remedy="declare a storage of type dir, nfs or cifs as `storage.images`",
            )
        )
    pin = context.inventory.image_pin(image)
    place = ("images", file.sha256, names.file_of_url(pin.url) if pin is not None else "")
    blob = bundled_blob(context.inventory, place, file.sha256, keys)
    return SentImage(
        system,
        f"{folder}/{file.file}",
        blob,
        "0644",
        f"image {image}",
        api=file.system,
        storage=file.storage,
        content=file.content,
        source=file.source,
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
    images = (image for node in nodes for image in (node.image, node.iso))
    return tuple(dict.fromkeys(each for each in images if each is not None))


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
