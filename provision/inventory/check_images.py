"""Images of checks: written with their digest, or with a placeholder whose digest `provision pin` finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from provision.inventory.placeholders import is_placeholder
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.image_reference import ImageReference, parse_image

if TYPE_CHECKING:
    from provision.inventory.models.inventory import Inventory


def check_image(inventory: Inventory, purpose: str) -> str | None:
    """Return the image of a check with its digest; None where it is not named, or its digest is not known.

    Args:
        inventory: what is declared.
        purpose: key of `verify.images`.
    """
    declared: str | None = getattr(inventory.verify.images, purpose)
    if declared is None:
        return None
    name, _, digest = declared.rpartition("@sha256:")
    if not is_placeholder(digest):
        return declared
    reference = parse_image(name)
    pin = inventory.lock.containers.get(reference.name) if reference is not None else None
    return f"{name}@sha256:{pin.sha256}" if pin is not None else None


def unpinned(inventory: Inventory) -> Iterator[tuple[str, ImageReference]]:
    """Yield purpose and name of the images that have a placeholder instead of a digest."""
    for purpose in type(inventory.verify.images).model_fields:
        declared: str | None = getattr(inventory.verify.images, purpose)
        name, _, digest = (declared or "").rpartition("@sha256:")
        reference = parse_image(name) if is_placeholder(digest) else None
        if reference is not None:
            yield purpose, reference


def unknown_digests(inventory: Inventory) -> list[Diagnostic]:
    """Return a note for each image whose check is not run until its digest is known."""
    file = inventory.file or "INVENTORY"
    return [
        Diagnostic(
            "IMAGE_NOT_PINNED",
            f"the digest of {reference.name} is not known: checks with it are not run",
            severity=Severity.NOTE,
            source=inventory.source(("verify", "images", purpose)),
            remedy=f"`provision pin {file}` writes it",
        )
        for purpose, reference in unpinned(inventory)
        if check_image(inventory, purpose) is None
    ]


def unnamed_images(inventory: Inventory) -> list[Diagnostic]:
    """Return a note for each image that is not named, with what therefore is not proven by pods."""
    return [
        Diagnostic(
            "CHECK_IMAGE_MISSING",
            f"verify.images.{purpose} is not named: checks of {what} are not run",
            severity=Severity.NOTE,
            source=inventory.source(("verify",)),
            remedy=f"write `verify.images.{purpose}: IMAGE:TAG@sha256:<64 hex digits>`, then `provision pin`",
        )
        for purpose, what in _needed(inventory)
        if getattr(inventory.verify.images, purpose) is None
    ]


def _needed(inventory: Inventory) -> Iterator[tuple[str, str]]:
    """Yield the images that checks of the declared things need, and what these prove."""
    own = inventory.k3s is not None and any(node.k3s for node in inventory.nodes.values())
    if not inventory.verify.pods or not (own or inventory.cluster.kubeconfig is not None):
        return
    gpu, rdma, sharing, expect = inventory.gpu, inventory.rdma, inventory.sharing, inventory.expect
    yield "network", "the network of pods between nodes"
    if (gpu is not None and gpu.operator is not None) or (sharing is not None and sharing.mode == "hami"):
        yield "cuda", "CUDA in pods, on each card and each share"
    if inventory.verify.dcgm is not None:
        yield "dcgm", "DCGM's diagnostics"
    if rdma is not None and rdma.operator is not None and rdma.networks:
        yield "rdma", "rping, bandwidth and counters between pods"
        yield "nixl", "the transport that UCX and NIXL choose between pods"
    if expect.nccl is not None:
        yield "nccl", "the all-reduce of NCCL"
