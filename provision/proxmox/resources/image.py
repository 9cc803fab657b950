"""Cloud images in a storage: Proxmox itself downloads them and checks their digest.

The digest is part of the file name, so another image is another volume and an old one is never overwritten.
Content type `import` wants a known extension (qcow2): an `.img` name is refused by PVE.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from provision.contracts.change import Change, Key, Op
from provision.contracts.query import Unknown
from provision.contracts.remedy import ApiCall, Request
from provision.contracts.snapshot import Snapshot
from provision.proxmox.queries import StorageContent, Volume
from provision.values.diagnostics import Source

DOWNLOAD_SECONDS = 7200.0
DELETE_SECONDS = 600.0


def _there(seen: Snapshot, storage: str, volume: str) -> bool | Unknown:
    answer = seen[StorageContent(storage)]
    if isinstance(answer, Unknown):
        return answer
    return any(isinstance(item, Volume) and item.volid == volume for item in answer)


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image is in a storage, or is not.

    Args:
        system: `pve/api`.
        node: node name in Proxmox VE.
        storage: storage with content type import.
        file: file name with the digest in it.
        url: where it is downloaded from.
        sha256: its digest in hex.
        absent: it must not be there.
        source: inventory line.
    """

    system: str
    node: str
    storage: str
    file: str
    url: str = ""
    sha256: str = ""
    absent: bool = False
    source: Source | None = None

    @property
    def key(self) -> Key:
        """Identity: the volume."""
        return Key(self.system, "image", self.volume)

    @property
    def volume(self) -> str:
        """The volume (`local:import/debian-13-1a2b3c4d.qcow2`)."""
        return f"{self.storage}:import/{self.file}"

    def queries(self) -> tuple[StorageContent, ...]:
        """Ask for the storage's content."""
        return (StorageContent(self.storage),)

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return the download or the removal."""
        there = _there(seen, self.storage, self.volume)
        if isinstance(there, Unknown):
            wanted = "absent" if self.absent else self.volume
            return (Change(Op.ATTENTION, "image", f"unknown: {there.reason}", wanted),)
        if there is not self.absent:
            return ()
        if self.absent:
            return (Change(Op.DELETE, "image", self.volume, None),)
        return (
            Change(Op.CREATE, "image", None, self.volume),
            Change(Op.CREATE, "url", None, self.url),
            Change(Op.CREATE, "sha256", None, self.sha256),
        )

    def fix(self, seen: Snapshot) -> ApiCall:  # noqa: ARG002 - the protocol's form
        """Download it, with the digest checked by Proxmox, or remove it."""
        content = f"/nodes/{self.node}/storage/{self.storage}"
        if self.absent:
            path = f"{content}/content/{quote(self.volume, safe=':')}"
            return ApiCall((Request("DELETE", path, {}, task=DELETE_SECONDS),))
        data = {
            "content": "import",
            "filename": self.file,
            "url": self.url,
            "checksum": self.sha256,
            "checksum-algorithm": "sha256",
        }
        return ApiCall((Request("POST", f"{content}/download-url", data, task=DOWNLOAD_SECONDS),))
