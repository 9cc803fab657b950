"""A guest that a person installs from a medium: `iso:`."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.values.errors import UsageError
from tests.unit.proxmox.roles.world import INVENTORY, World

ISO = "https://images.example/install.iso"
MEDIUM = "local:iso/installer-cdcdcdcd.iso"
NODE = "  box: { hypervisor: pve, vmid: 103, address: 10.0.0.13, iso: installer, disk: 8GiB }\n"
TEXT = (
    INVENTORY.replace(
        "hypervisors:\n", f'  installer: {{ url: "{ISO}", sha256: "{"cd" * 32}" }}\nhypervisors:\n', 1
    )
    + NODE
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.write(TEXT)
    return world


def changes(world: World) -> list[str]:
    return [str(change.key) for step in world.plan().steps for change in step.changes]


def test_it_starts_from_the_medium_while_its_disk_is_empty(world: World) -> None:
    report = world.apply()
    assert report.exit_code == 0, [(str(step.id), step.diagnostics) for step in report.steps]
    assert MEDIUM in world.pve.volumes["local"]
    downloads = [data for _, path, data in world.pve.log if path.endswith("/download-url")]
    assert {"iso", "import"} == {data["content"] for data in downloads}
    config = world.pve.vms[103].config
    assert config["ide2"] == f"{MEDIUM},media=cdrom"
    assert config["boot"] == "order=scsi0;ide2"
    assert config["scsi0"].endswith("size=8G")
    assert not {"ciuser", "sshkeys", "cicustom"} & set(config)


def test_what_the_person_does_with_the_drive_later_is_no_drift(world: World) -> None:
    assert world.apply().exit_code == 0
    assert changes(world) == []
    world.pve.vms[103].config.update(ide2="none,media=cdrom", boot="order=scsi0")
    assert changes(world) == []
    world.write(TEXT.replace(" iso: installer,", ""))
    assert changes(world) == []


def test_its_medium_is_there_before_it_is_created(world: World) -> None:
    world.pve.storages["local"] = {"content": "import,snippets,images"}
    codes = {problem.code for problem in world.plan().refusals}
    assert codes == {"STORAGE_NO_ISO"}


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (NODE.replace("iso: installer", "iso: debian-12"), "debian-12 of box is not an installation medium"),
        (NODE.replace("iso: installer", "image: installer"), "installer of box is an installation medium"),
        (
            NODE.replace("iso: installer", "iso: installer, image: debian-12"),
            "cannot start from an image and",
        ),
        (NODE.replace(", disk: 8GiB", ""), "lacks the key 'disk'"),
        (NODE.replace("iso: installer", "iso: other"), "other"),
        (
            NODE.replace("disk: 8GiB", "disk: 8GiB, disks: [{ size: 1GiB, slot: ide2 }]"),
            "is the CD-ROM drive",
        ),
        ("  metal: { address: 10.0.0.14, iso: installer }\n", "metal has no hypervisor"),
    ],
)
def test_a_medium_that_cannot_be_is_refused_with_its_reason(world: World, node: str, words: str) -> None:
    world.write(TEXT.replace(NODE, node))
    with pytest.raises(UsageError, match=words):
        load(world.folder / "site.yaml")
