"""Cloud images in a storage: Proxmox itself downloads them and checks their digest, or its host gets them.

The digest is part of the file name, so another image is another volume and an old one is never overwritten.
PVE accepts only known extensions (qcow2) for content type `import`, and refuses an `.img` name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

from provision.contracts.change import Change, Op
from provision.contracts.remedy import ApiCall, Request
from provision.contracts.resource import AnswerId, KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.hosts.resources.upload import Upload
from provision.proxmox.queries import NodeStorages, StorageContent

DOWNLOAD_SECONDS = 7200.0
DELETE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class ImageFile(KeyedResource):
    """An image is in a storage, or is not.

    Args:
        node: node name in Proxmox VE.
        storage: storage with the content type.
        file: file name with the digest in it.
        url: where it is downloaded from.
        sha256: its digest in hex.
        absent: it must not be there.
        downloads: it is not there yet: rules look at the node's storages.
        content: `import`, or `iso` for an installation medium.
    """

    kind: ClassVar[str] = "image"

    node: str
    storage: str
    file: str
    url: str = ""
    sha256: str = ""
    absent: bool = False
    downloads: bool = False
    content: str = "import"

    def _key_name(self) -> str:
        return self.volume

    @property
    def volume(self) -> str:
        """The volume (`local:import/debian-13-1a2b3c4d.qcow2`)."""
        return f"{self.storage}:{self.content}/{self.file}"

    def queries(self) -> tuple[Any, ...]:
        """Ask for the storage's content and, before a download, for what the storages take."""
        return (StorageContent(self.storage), *((NodeStorages(),) if self.downloads else ()))

    def optional_queries(self) -> tuple[Any, ...]:
        """Return what rules look at, and the comparison does not."""
        return (NodeStorages(),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the download or the removal."""
        exists = any(volume.volid == self.volume for volume in snapshot[StorageContent(self.storage)])
        if exists is not self.absent:
            return ()
        if self.absent:
            return (Change(Op.DELETE, "image", self.volume, None),)
        return (
            Change(Op.CREATE, "image", None, self.volume),
            Change(Op.CREATE, "url", None, self.url),
            Change(Op.CREATE, "sha256", None, self.sha256),
        )

    def fix(self, snapshot: Snapshot, /) -> ApiCall:
        """Download it, with the digest checked by Proxmox, or remove it."""
        del snapshot
        if self.absent:
            path = f"/nodes/{self.node}/storage/{self.storage}/content/{quote(self.volume, safe=':')}"
            return ApiCall((Request("DELETE", path, {}, task=DELETE_SECONDS),))
        return ApiCall((self.download,))

    @property
    def download(self) -> Request:
        """The request that downloads it.

        Of a file that is there Proxmox VE compares the digest, downloads nothing, and fails if it is another
        one (pve-common, `PVE/Tools.pm`, download_file_from_url).
        """
        data = {
            "content": self.content,
            "filename": self.file,
            "url": self.url,
            "checksum": self.sha256,
            "checksum-algorithm": "sha256",
        }
        path = f"/nodes/{self.node}/storage/{self.storage}/download-url"
        return Request("POST", path, data, task=DOWNLOAD_SECONDS)


@dataclass(frozen=True, slots=True)
class SentImage(Upload):
    """An image of a bundle is in the folder of a storage, where Proxmox VE finds it as a volume.

    Args:
        api: the system that lists the storage's content.
        storage: the storage.
        content: `import`, or `iso` for an installation medium.
    """

    kind: ClassVar[str] = "image-file"

    api: str = ""
    storage: str = ""
    content: str = "import"

    def affects(self, changes: Sequence[Change], /) -> frozenset[AnswerId]:
        """Return the content of the storage, which has another volume then."""
        return frozenset({(self.api, StorageContent(self.storage))} if changes else ())

    def _seconds(self) -> float:
        return DOWNLOAD_SECONDS
