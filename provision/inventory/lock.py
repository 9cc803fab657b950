"""`provision.lock.yaml`: the digests of everything that is downloaded."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from provision.inventory.reader import Unreadable, read_text, read_tree
from provision.inventory.tree import Item
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError
from provision.values.whole_file import write_whole

LOCK_NAME = "provision.lock.yaml"
Section = Literal["images", "binaries", "charts", "containers"]
"""A part of the lock file."""
_DIGEST = re.compile("[0-9a-f]{64}").fullmatch


@dataclass(frozen=True, slots=True)
class Pin:
    """One download.

    Args:
        url: where it comes from; `file:NAME` for a file of the controller.
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
        containers: pins of container images by name and tag.
    """

    file: str = ""
    images: dict[str, Pin] = field(default_factory=dict)
    binaries: dict[str, Pin] = field(default_factory=dict)
    charts: dict[str, Pin] = field(default_factory=dict)
    containers: dict[str, Pin] = field(default_factory=dict)

    def change_of(self, section: Section, name: str, file: Path, digest: str) -> Diagnostic | None:
        """Return the problem of a file of the controller that is not the one which was pinned, else None."""
        pins: dict[str, Pin] = getattr(self, section)
        held = pins.get(name)
        if held is None or held.url != file_url(file) or held.sha256 == digest:
            return None
        return Diagnostic(
            "DIGEST_CHANGED",
            f"{file} is not the file that was pinned",
            evidence=(f"pinned: {held.sha256}", f"now:    {digest}"),
            remedy="put the former file back, or take the new one: `provision pin INVENTORY --accept`",
        )


def file_url(file: Path) -> str:
    """Return how the lock names a file of the controller: where it is differs between machines."""
    return f"file:{file.name}"


def read_lock(path: Path) -> tuple[Lock, list[Diagnostic]]:
    """Return the lock file at a path, and its problems; an empty one where there is no file."""
    if not path.exists():
        return Lock(), []
    try:
        root, problems = read_tree(
            read_text(path, str(path), "LOCK_UNREADABLE"), str(path), str(path.parent), {}
        )
    except Unreadable as error:
        return Lock(), error.problems

    def wrong(item: Item, summary: str) -> None:
        remedy = "write this file again: `provision pin INVENTORY`"
        problems.append(Diagnostic("LOCK_INVALID", summary, source=item.source(), remedy=remedy))

    sections: dict[str, dict[str, Pin]] = {"images": {}, "binaries": {}, "charts": {}, "containers": {}}
    for section, item in _entries(root):
        if section == "version":
            if str(item.value) != "1":
                wrong(item, "the version of the lock file is not 1")
            continue
        if section not in sections or not isinstance(item.value, dict):
            wrong(item, f"unknown part {section[:80]!r} in the lock file")
            continue
        for name, pin in _entries(item):
            url, sha256 = pin.child("url"), pin.child("sha256")
            digest = str(sha256.value) if sha256 is not None else ""
            if url is None or not isinstance(url.value, str) or _DIGEST(digest) is None:
                wrong(pin, f"{section}.{name}: a pin needs url and sha256 (64 hex digits)")
                continue
            sections[section][name] = Pin(str.__str__(url.value), digest)
    return Lock(str(path), **sections), problems


def write_lock(path: Path, lock: Lock) -> None:
    """Write a lock file whole, or leave the old one.

    Raises:
        UsageError: it cannot be written.
    """
    # Quoted by hand: 64 hex digits may look like a number, and YAML libraries differ in what is one.
    lines = ["# Written by `provision pin`: a download must match its entry here.", "version: 1"]
    for section in ("images", "binaries", "charts", "containers"):
        pins: dict[str, Pin] = getattr(lock, section)
        lines += [f"{section}:"] if pins else []
        for name, pin in sorted(pins.items()):
            lines += [f"  {json.dumps(name)}:", f"    url: {json.dumps(pin.url)}"]
            lines += [f"    sha256: {json.dumps(pin.sha256)}"]
    try:
        write_whole(path, "\n".join(lines) + "\n", 0o644)
    except OSError as error:
        raise UsageError(
            Diagnostic("FILE_NOT_WRITTEN", f"{path} cannot be written: {error.strerror}")
        ) from error


def _entries(item: Item) -> list[tuple[str, Item]]:
    return list(item.value.items()) if isinstance(item.value, dict) else []
