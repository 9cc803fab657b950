"""`provision.lock.yaml`: the digests of everything that is downloaded."""

from __future__ import annotations

from dataclasses import dataclass, field

LOCK_NAME = "provision.lock.yaml"


@dataclass(frozen=True, slots=True)
class Pin:
    """One download.

    Args:
        url: where it comes from.
        sha256: its digest in hex.
    """

    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Lock:
    """What `provision pin` wrote beside the inventory.

    Args:
        file: its name, or empty when there is none.
        images: pins by image name.
        binaries: pins by name (`k3s`).
        charts: pins by chart name.
    """

    file: str = ""
    images: dict[str, Pin] = field(default_factory=dict)
    binaries: dict[str, Pin] = field(default_factory=dict)
    charts: dict[str, Pin] = field(default_factory=dict)
