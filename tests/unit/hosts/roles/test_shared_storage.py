"""Storage that nodes share: how it is mounted, marked, and what is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.contracts.remedy import Impossible
from provision.contracts.resource import changes_of, remedy_of
from provision.hosts.resources.mount import NfsMount
from provision.hosts.roles import shared_storage
from provision.inventory import Inventory, Subject
from provision.testing.model_host import ModelHost, guest_state
from tests.unit.hosts.converge import converge, killed_everywhere, snapshot_of
from tests.unit.hosts.roles.test_shipped_inventories import resources_of

NODE = Subject("node", "n1")
MOUNTED = "path: /srv/models, manage: true, server: 'nas:/models'"
LINE = "nas:/models /srv/models nfs defaults,_netdev,nofail 0 0"


def inventory_of(folder: Path, storage: str) -> Inventory:
    (folder / "site.yaml").write_text(
        "version: 1\nname: site\naccess: { user: root }\nnodes: { n1: { address: 10.0.0.9 } }\n"
        f"storage: {{ s: {{ {storage} }} }}\n"
    )
    return load(folder / "site.yaml", environ={})


def host() -> ModelHost:
    return ModelHost("n1/ssh", guest_state())


def apply(inventory: Inventory, machine: ModelHost) -> bool:
    return converge(machine, resources_of(shared_storage, inventory, NODE, machine))


def test_an_export_is_mounted_now_and_at_boot_and_marked(tmp_path: Path) -> None:
    inventory, machine = inventory_of(tmp_path, MOUNTED), host()
    assert apply(inventory, machine)
    assert machine.state.mounts == {"/srv/models": "nas:/models"}
    assert LINE in machine.state.text("/etc/fstab").split("\n")
    assert machine.state.text("/srv/models/.provision-n1") == "site\n"
    assert not apply(inventory, machine)
    machine.state.mounts = {}
    assert apply(inventory, machine)


@pytest.mark.parametrize(
    ("storage", "kinds"),
    [
        ("path: /s, same_on_all: true", ["file"]),
        ("path: /s, free: 1GiB", []),
        (f"{MOUNTED}, options: 'ro,nofail'", ["package", "nfs-mount"]),
        (MOUNTED, ["package", "nfs-mount", "file"]),
    ],
)
def test_nothing_is_mounted_or_written_that_is_not_declared(
    tmp_path: Path, storage: str, kinds: list[str]
) -> None:
    inventory = inventory_of(tmp_path, storage)
    assert shared_storage.declared(inventory, NODE) is bool(kinds)
    made = resources_of(shared_storage, inventory, NODE, host())
    assert [resource.key.kind for resource in made] == kinds


@pytest.mark.parametrize("where", ["mounted", "at boot"])
def test_what_others_mounted_there_is_left_alone(tmp_path: Path, where: str) -> None:
    machine = host()
    if where == "mounted":
        machine.state.mounts = {"/srv/models": "other:/x"}
    else:
        machine.state.files["/etc/fstab"].content += b"other:/x /srv/models nfs defaults 0 0\n"
    resources = resources_of(shared_storage, inventory_of(tmp_path, MOUNTED), NODE, machine)
    (mount,) = [resource for resource in resources if isinstance(resource, NfsMount)]
    snapshot = snapshot_of(machine, resources)
    assert changes_of(mount, snapshot)
    remedy = remedy_of(mount, snapshot)
    assert isinstance(remedy, Impossible)
    assert remedy.diagnostic.code == "MOUNT_TAKEN"


def test_an_interrupted_mount_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, MOUNTED)
    assert killed_everywhere(host, lambda machine: resources_of(shared_storage, inventory, NODE, machine)) > 4
