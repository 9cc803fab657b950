"""Images of VMs out of a bundle: sent to the hypervisor, whose API then lists them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from provision.api.domains import load_inventory
from provision.hosts.pinned_files import bundled_blob
from provision.testing.model_host import ModelFile
from provision.values.errors import UsageError
from tests.unit.proxmox.roles.world import INVENTORY, World

IMAGE = b"cloud image" * 1000
SHA = hashlib.sha256(IMAGE).hexdigest()
FOLDER = "/var/lib/vz/import/"
CONTENT = f"local:import/debian-12-{SHA[:8]}.qcow2"
SOURCES = "name: site\nsources: { mode: bundle, bundle: ./bundle }"
STORAGES = """\
dir: local
\tpath /var/lib/vz
\tcontent iso,import,snippets

lvm: local-zfs
\tvgname pve
"""


class Listed(list[str]):
    """The volumes of `local`: those that Proxmox VE was told of, and the files of its folder."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def __iter__(self) -> Iterator[str]:
        files = (path.removeprefix(FOLDER) for path in self.world.host.files if path.startswith(FOLDER))
        yield from (*super().__iter__(), *(f"local:import/{name}" for name in files))

    def __contains__(self, volume: object) -> bool:
        return volume in tuple(self)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.pve.volumes["local"] = Listed(world)
    bundle = tmp_path / "bundle"
    place = f"images/{SHA}/debian.img"
    (bundle / place).parent.mkdir(parents=True)
    (bundle / place).write_bytes(IMAGE)
    (bundle / "manifest.json").write_text(json.dumps({"files": [{"path": place, "sha256": SHA}]}))
    world.write(INVENTORY.replace("ab" * 32, SHA).replace("name: site", SOURCES))
    world.host.files["/etc/pve/storage.cfg"] = ModelFile(STORAGES.encode())
    return world


def changes(world: World) -> list[str]:
    return [str(change.key) for step in world.plan().steps for change in step.changes]


def test_an_image_is_sent_once_and_vms_start_from_it_in_the_same_run(world: World) -> None:
    assert any(FOLDER in key for key in changes(world))
    report = world.apply()
    assert report.exit_code == 0, [(str(step.id), step.diagnostics) for step in report.steps]
    assert [path for path in world.host.files if path.startswith(FOLDER)] == [
        f"{FOLDER}debian-12-{SHA[:8]}.qcow2"
    ]
    assert set(world.pve.vms) == {101, 102}
    assert list.__len__(world.pve.volumes["local"]) == 0  # Proxmox VE itself downloaded nothing
    assert changes(world) == []


def test_what_is_sent_is_read_from_the_bundle(world: World) -> None:
    inventory = load_inventory(world.folder / "site.yaml")
    blob = bundled_blob(inventory, ("images", SHA, "debian.img"), SHA, ("images",))
    assert bytes(blob.view()) == IMAGE


def test_a_storage_without_a_folder_is_named(world: World) -> None:
    world.host.files["/etc/pve/storage.cfg"].content = b"rbd: local\n\tpool rbd\n\tcontent images\n"
    report = world.apply()
    assert report.exit_code == 1
    assert "STORAGE_NO_FOLDER" in {problem.code for step in report.steps for problem in step.diagnostics}


def test_a_storage_that_takes_no_images_is_refused_before_anything_is_sent(world: World) -> None:
    world.pve.storages["local"] = {"content": "iso,snippets"}
    assert {problem.code for problem in world.plan().refusals} == {"STORAGE_NO_IMPORT"}


def test_another_file_than_the_pinned_one_is_not_sent(world: World) -> None:
    (world.folder / "bundle" / "images" / SHA / "debian.img").write_bytes(b"another")
    with pytest.raises(UsageError) as caught:
        world.plan()
    assert caught.value.diagnostics[0].code == "BUNDLE_CHANGED"
