"""Container images that an inventory and its rendered charts name.

Source: Kubernetes (containers of pods); the custom resources of NVIDIA's operators, which name an operand by
`repository`, `image` and `version`, and their deployments, which name more in variables that end with
`IMAGE`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from provision.inventory import Inventory
from provision.inventory.check_images import check_image, unpinned
from provision.values.image_reference import ImageReference, parse_image


def declared_images(inventory: Inventory) -> tuple[str, ...]:
    """Return the images that the inventory itself names: of checks, and `sources.images`."""
    checks = [check_image(inventory, purpose) for purpose in type(inventory.verify.images).model_fields]
    return (
        *(name for name in checks if name),
        *(reference.name for _, reference in unpinned(inventory)),
        *inventory.sources.images,
    )


def kubernetes_version(inventory: Inventory) -> str:
    """Return the declared version of Kubernetes (`v1.35.7`); empty where the cluster exists already."""
    return inventory.k3s.version.partition("+")[0] if inventory.k3s is not None else ""


def images_of(objects: Iterable[object]) -> tuple[str, ...]:
    """Return the images that Kubernetes objects name, sorted; operands that are off are left out."""
    return tuple(sorted(set(_images(list(objects)))))


def _images(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for element in value:
            yield from _images(element)
    if not isinstance(value, Mapping) or value.get("enabled") is False:
        return
    image, repository, version = (value.get(key) for key in ("image", "repository", "version"))
    if isinstance(image, str) and isinstance(repository, str) and isinstance(version, str) and version:
        separator = "@" if version.startswith("sha256:") else ":"
        yield f"{repository}/{image}{separator}{version}"
    elif isinstance(image, str) and _is_image(image):
        yield image
    name, text = value.get("name"), value.get("value")
    if isinstance(name, str) and name.upper().endswith("IMAGE") and isinstance(text, str) and _is_image(text):
        yield text
    for inner in value.values():
        yield from _images(inner)


def _is_image(text: str) -> bool:
    return parse_image(text) is not None


def parsed(names: Iterable[str]) -> tuple[tuple[ImageReference, ...], tuple[str, ...]]:
    """Return the images of names, each once, and the names that are none."""
    references: dict[str, ImageReference] = {}
    others: list[str] = []
    for name in names:
        reference = parse_image(name)
        if reference is None:
            others.append(name)
        else:
            references.setdefault(f"{reference.name}@{reference.sha256}", reference)
    return tuple(references.values()), tuple(others)
