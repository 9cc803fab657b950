"""Where an image that is sent over SSH goes: by what storage.cfg of the host says, whoever wrote that."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from provision.connections.upload import opening
from provision.contracts.remedy import Blob
from provision.contracts.snapshot import Snapshot
from provision.proxmox.host_facts import STORAGES, HypervisorFacts, storage_folder
from provision.proxmox.names import file_of_url, image_file
from provision.proxmox.resources.image import SentImage
from tests.unit.proxmox.roles.world import INVENTORY, World

FOLDERS = (
    # keys of the storage, the folder of images
    ("path /var/lib/vz", "/var/lib/vz/import"),
    ("path /srv/images/", "/srv/images/import"),
    ("path /srv//images", "/srv/images/import"),
    ("path /srv/with blank", "/srv/with blank/import"),
    ("path /srv/gr\u00fcn", "/srv/gr\u00fcn/import"),
    ("path /srv\n\tcontent-dirs import=disks", "/srv/disks"),
    ("path /srv\n\tcontent-dirs iso=cd, import = a/b/ ", "/srv/a/b"),
    ("path /srv\n\tcontent-dirs import=./x/", "/srv/x"),
    ("path /srv\n\tcontent-dirs import=/x", "/srv/x"),
    ("path /srv\n\tcontent-dirs iso=cd", "/srv/import"),
    ("path /srv/$(id)`id`;'x", "/srv/$(id)`id`;'x/import"),  # a name like any other
    ("path relative", None),
    ("pool rpool/data", None),
    ("path", None),
    ("path /srv/../etc", None),
    ("path /srv\n\tcontent-dirs import=../../etc/cron.d", None),
    ("path /srv\n\tcontent-dirs import=a/../../x", None),
    ("path /srv/\x1b[31mred", None),
    ("path /srv/a\\b", None),
    ("path /srv/a\x07b", None),
    ("path /srv\n\tcontent-dirs import=a\x7fb", None),
)


def test_the_folder_of_images_is_a_plain_one_or_none() -> None:
    for keys, folder in FOLDERS:
        text = f"dir: local\n\t{keys}\n\tcontent import\n".encode()
        facts = HypervisorFacts(Snapshot("pve/ssh", answers={STORAGES: text}))
        assert storage_folder(facts, "local", "import") == folder, keys
        if folder is not None:
            SentImage("pve/ssh", f"{folder}/a.qcow2", Blob("0" * 64, b"x"), "0644")


URLS = (
    ("https://x/debian-13.qcow2", "debian-13.qcow2"),
    ("https://x/a/b/c.img?x=/etc/passwd#/d", "c.img"),
    ("https://x/../../etc/passwd", "passwd"),
    ("https://x/a%2F..%2Fb.img", "a%2F..%2Fb.img"),
    ("https://x/a/", "a"),
    ("https://x/", ""),
    ("https://x", ""),
    ("https://x/..", ".."),
    ("https://x/-rf", "-rf"),
    ("https://x/a;b", "a;b"),
    ("https://x/.hidden", ".hidden"),
)


@pytest.mark.parametrize("image", ["debian", "a b", "-rf", "..", "../../x", "$(id)", "gr\u00fcn", "a/b"])
def test_the_name_of_an_image_is_one_plain_file(tmp_path: Path, image: str) -> None:
    world = World(tmp_path)
    world.write(INVENTORY)
    inventory = world.site().inventory
    (name,) = inventory.images
    named = inventory.model_copy(update={"images": {image: inventory.images[name]}})
    file = image_file(named, image)
    assert "/" not in file
    assert file.isprintable()
    assert file not in {".", ".."}


def test_the_file_of_an_address_is_its_last_part() -> None:
    assert [file_of_url(url) for url, _ in URLS] == [name for _, name in URLS]


def test_what_is_sent_says_its_path_as_one_line_of_input() -> None:
    path = "/srv/$(id) `id`;'\"/a b.qcow2"
    functions, *lines = opening(path, 7, "/run/lock").split(b"\n")
    assert b"provision_upload" in base64.b64decode(functions)
    assert lines == [path.encode(), b"7", b"/run/lock", b"", b""]
    for hostile in ("/srv/a\nb", "/srv/a\n"):
        with pytest.raises(ValueError, match="line"):
            opening(hostile, 7)
