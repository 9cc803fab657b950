"""The record of a running lab: settings and images for its daemon, and the inventory overlay."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from provision.lab.images import Image, Images
from provision.lab.settings import API_PORT, GUEST_USER, IMAGE_PORT, Card, LabError, LabSettings
from provision.values.whole_file import write_whole

FILE = "machine.json"


@dataclass(frozen=True, slots=True)
class Record:
    """Settings and images of a lab, as kept in its folder."""

    settings: LabSettings
    images: Images
    accelerator: tuple[str, ...]


def save(record: Record) -> None:
    """Write the record atomically."""
    data = {
        "settings": {**asdict(record.settings), "hypervisors": dict(record.settings.hypervisors)},
        "rootfs": str(record.images.rootfs),
        "vm": str(record.images.vm) if record.images.vm else None,
        "served": [{**asdict(image), "path": str(image.path)} for image in record.images.served],
        "accelerator": record.accelerator,
    }
    write_whole(record.settings.folder / FILE, json.dumps(data, indent=1) + "\n", 0o644)


def load(folder: Path) -> Record:
    """Read the record.

    Raises:
        LabError: it is missing or invalid.
    """
    try:
        data: dict[str, Any] = json.loads((folder / FILE).read_text())
        given = data["settings"]
        given["cards"] = tuple(Card(**card) for card in given["cards"])
        given["images"] = tuple(given["images"])
        served = tuple(Image(image["name"], Path(image["path"]), image["sha256"]) for image in data["served"])
        images = Images(Path(data["rootfs"]), Path(data["vm"]) if data["vm"] else None, served)
        return Record(LabSettings(**given), images, tuple(data["accelerator"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        summary = f"{folder} has no valid record of a lab ({type(error).__name__})"
        raise LabError(summary, "remove its remains: `provision lab down INVENTORY`") from error


def overlay(record: Record, *, api_fingerprint: str, token_id: str, host_keys: dict[str, str]) -> str:
    """Return the inventory overlay `site.yaml`.

    Args:
        record: the lab.
        api_fingerprint: SHA-256 fingerprint of the API's certificate.
        token_id: id of the API token, whose secret is in `keys/token`.
        host_keys: SHA-256 fingerprints by machine: `router` and `hypervisor`.
    """
    settings = record.settings
    keys = settings.folder / "keys"
    name, address = settings.hypervisor
    lines = [
        f"# Written by 'provision lab up' for the lab {settings.name}; lies over the inventory.",
        "access:",
        f"  user: {GUEST_USER}",
        f"  key: {_quote(keys / 'guest')}",
        "hypervisors:",
        f"  {name}:",
        "    api:",
        f"      url: https://{address}:{API_PORT}",
        f"      token_id: {_quote(token_id)}",
        f"      token: !secret {{ file: {_quote(keys / 'token')} }}",
        f"      fingerprint: {_quote(api_fingerprint)}",
        "    ssh:",
        "      user: root",
        f"      key: {_quote(keys / 'site')}",
        f"      host_key: {_quote(host_keys['hypervisor'])}",
        "network:",
        "  dhcp:",
        f"    address: {settings.gateway}",
        "    ssh:",
        "      user: root",
        f"      key: {_quote(keys / 'site')}",
        f"      host_key: {_quote(host_keys['router'])}",
        "images:",
    ]
    for image in record.images.served:
        url = f"http://{settings.host_address}:{IMAGE_PORT}/images/{image.name}.qcow2"
        lines += [f"  {image.name}:", f"    url: {url}", f"    sha256: {_quote(image.sha256)}"]
    return "\n".join(lines) + "\n"


def note_name(lab: Path, vmid: int, name: str) -> None:
    """Write the name of a guest that is started; its console has the same name."""
    write_whole(lab / "guests" / str(vmid) / "name", name, 0o644)


def name_of(lab: Path, vmid: int) -> str:
    """Return a guest's name, or its number if it was never started."""
    try:
        return (lab / "guests" / str(vmid) / "name").read_text()
    except OSError:
        return str(vmid)


def _quote(value: object) -> str:
    """Write a YAML double-quoted string (a JSON string is one)."""
    return json.dumps(str(value))
