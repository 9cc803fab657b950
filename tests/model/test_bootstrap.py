"""Set up access to a Proxmox VE host: rights, choices, and the first inventory."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.hosts.resources.pci import PciFunction
from provision.proxmox import privileges
from provision.proxmox.first_inventory import Trusted, bridge_of, first_inventory
from provision.proxmox.setup import ProxmoxHost, ProxmoxStorage, StorageChoice, choose, enable, grant
from provision.testing.model_proxmox import ALL_RIGHTS
from tests.model.model_site import ModelSite
from tests.unit.proxmox.roles.world import INVENTORY, World

SECRET = "11111111-2222-3333-4444-555555555555"
KEY = "SHA256:" + "k" * 43
CERTIFICATE = ":".join(["AB"] * 32)
ALL = [*privileges.role(ALL_RIGHTS)[0], "Sys.Audit", "Sys.Modify", "Sys.Console"]
OLD = [*(each for each in ALL if each != "Sys.AccessNetwork"), "VM.Monitor"]
GPU = PciFunction("0000:02:00.0", "10de", "2204", "030000", "vfio-pci", "14", boot_vga=True)
FOUND = ProxmoxHost(
    node="pve",
    version="pve-manager/9.0.10",
    roles={"Administrator": tuple(ALL)},
    users=("root@pam",),
    tokens=(),
    storages=(
        ProxmoxStorage("local", "dir", ("iso", "vztmpl", "backup")),
        ProxmoxStorage("local-zfs", "zfspool", ("images", "rootdir")),
    ),
    bridges=("vmbr0", "vmbr1"),
    functions=(GPU, PciFunction("0000:02:00.1", "10de", "1aef", "040300", "", "14")),
    memory=65536,
    networks={"192.168.1.5/24": "vmbr0"},
    gateway="192.168.1.1",
)
CHOICE = StorageChoice("local", "local-zfs", "local")


# ---------------------------------------------------------------- privileges


def rights_of_bootstrap(known: list[str]) -> dict[str, dict[str, int]]:
    """Return what a token may do after the script of `grant`."""
    used = {
        path: dict.fromkeys(privileges.role(known)[0], 1)
        for path in privileges.paths("pve", ["local", "local-zfs"])
    }
    return {**used, "/": dict.fromkeys(privileges.role(known, root=True)[0], 0)}


@pytest.mark.parametrize("known", [ALL, OLD], ids=["9", "8"])
def test_the_roles_of_bootstrap_are_enough_for_a_whole_life(tmp_path: Path, known: list[str]) -> None:
    world = World(tmp_path)
    world.write(INVENTORY.replace("cores: 2,", "cores: 2, startup: { order: 1 },"))
    world.pve.rights = rights_of_bootstrap(known)
    assert world.apply().exit_code == 0
    world.write(INVENTORY.replace("debian.img", "other.img").replace("abab", "cdcd"))
    assert world.apply(prune=True).exit_code == 0
    assert world.destroy().exit_code == 0
    del world.pve.rights["/vms"]
    assert [each.code for each in world.plan().refusals] == ["PVE_PRIV_MISSING"]


def test_versions_differ_in_what_a_download_needs() -> None:
    assert privileges.role(ALL)[1] == privileges.role(OLD)[1] == ()
    assert "Sys.AccessNetwork" not in privileges.role(OLD)[0]
    assert set(privileges.role(OLD, root=True)[0]) == {"Sys.Audit", "Sys.Modify"}
    assert privileges.role(ALL, root=True)[0] == ("Sys.Modify",)
    assert "VM.Monitor" not in privileges.role(OLD)[0]
    assert "/" not in privileges.paths("pve", ["local"])


# ---------------------------------------------------------------- pure parts


def test_storages_are_chosen_by_what_they_can() -> None:
    assert choose(FOUND) == CHOICE
    assert CHOICE.missing(FOUND) == {"local": ("import", "snippets")}
    ready = (*FOUND.storages, ProxmoxStorage("nas", "nfs", ("import", "snippets", "images")))
    assert choose(replace(FOUND, storages=ready)) == StorageChoice("nas", "local-zfs", "nas")
    only = (ProxmoxStorage("local", "dir", ("images", "import", "snippets")),)
    assert choose(replace(FOUND, storages=only)) == StorageChoice("local", "local", "local")
    volumes = ProxmoxStorage("lun", "iscsi", ("images",))  # it lists disks, and none can be made there
    assert choose(replace(FOUND, storages=(volumes, *FOUND.storages))) == CHOICE
    assert choose(replace(FOUND, storages=(volumes, ProxmoxStorage("local", "dir", ("iso",))))).disks == ""
    script = enable(FOUND, CHOICE.missing(FOUND))
    assert "pvesm set local --content iso,vztmpl,backup,import,snippets" in script


@pytest.mark.parametrize(
    ("networks", "line"),
    [
        # a second address of the bridge, as of keepalived or of a second network, hides no first one
        (
            {"192.168.1.5/24": "vmbr0", "192.168.1.9/32": "vmbr0", "10.10.0.1/24": "vmbr0"},
            'network: { cidr: "192.168.1.0/24", gateway: "192.168.1.1" }',
        ),
        # routed hosts of a provider: the address is alone, and VMs are behind a bridge of their own
        ({"192.168.1.5": "eno1", "10.10.10.1/24": "vmbr0"}, 'network: { cidr: "10.10.10.0/24" }'),
        ({"192.168.1.5/32": "eno1", "10.10.10.1/24": "vmbr0"}, 'network: { cidr: "10.10.10.0/24" }'),
        ({"192.168.1.5/32": "vmbr0"}, "# network: { cidr: ..., gateway: ... } # not found on the host"),
        ({"172.17.0.1/16": "docker0"}, "# network: { cidr: ..., gateway: ... } # not found on the host"),
    ],
)
def test_the_network_is_one_that_vms_can_be_in(networks: dict[str, str], line: str) -> None:
    trusted = Trusted("192.168.1.5", None, KEY, CERTIFICATE, Path("/key"), "site", Path("/token"))
    text = first_inventory("site", replace(FOUND, networks=networks), CHOICE, trusted)
    assert next(row for row in text.splitlines() if "network:" in row).startswith(line)


@pytest.mark.parametrize(
    ("bridges", "networks", "bridge"),
    [
        (("cni0", "dmz", "vmbr0"), {"192.168.1.5/24": "vmbr0", "10.42.0.1/24": "cni0"}, "vmbr0"),
        (("dmz", "vmbr0", "vmbr1"), {"10.0.0.5/24": "vmbr0", "192.168.1.5/24": "vmbr1"}, "vmbr1"),
        (("dmz", "vmbr1"), {"192.168.1.5/24": "vmbr1.20"}, "vmbr1"),
        (("dmz", "vmbr0"), {"192.168.1.5": "eno1", "10.10.10.1/24": "vmbr0"}, "vmbr0"),
        (("lan",), {"192.168.1.5/24": "eno1"}, "lan"),
        ((), {"192.168.1.5/24": "eno1"}, "vmbr0"),
        (("dmz", "vmbr0"), {"garbage": "dmz"}, "vmbr0"),
    ],
)
def test_the_bridge_of_vms_is_the_one_to_the_gateway(
    bridges: tuple[str, ...], networks: dict[str, str], bridge: str
) -> None:
    assert bridge_of(replace(FOUND, bridges=bridges, networks=networks)) == bridge


def test_the_token_is_separated_and_given_on_what_is_used_only() -> None:
    script = grant(FOUND, CHOICE, "site")
    assert "pveum role add Provision" in script
    assert "pveum user token add provision@pve site --privsep 1" in script
    paths = set(re.findall(r"acl modify (\S+) --roles Provision --tokens 'provision@pve!site'", script))
    assert paths == {
        "/vms",
        "/storage/local",
        "/storage/local-zfs",
        "/sdn/zones/localnetwork",
        "/mapping/pci",
        "/mapping/usb",
        "/nodes/pve",
    }
    assert "acl modify / --roles ProvisionHost --propagate 0 --tokens" in script
    assert "pveum role add ProvisionHost --privs Sys.Modify" in script


def test_repeating_keeps_the_token_unless_it_is_renewed() -> None:
    there = replace(FOUND, roles={**FOUND.roles, "Provision": ()}, users=("provision@pve",), tokens=("site",))
    again = grant(there, CHOICE, "site")
    assert "role modify Provision" in again
    assert "user add" not in again
    assert "token add" not in again
    renewed = grant(there, CHOICE, "site", rotate=True)
    assert renewed.index("token remove provision@pve site") < renewed.index("token add provision@pve site")


def first_file(folder: Path, found: ProxmoxHost = FOUND) -> Path:
    """Write the first inventory of a host, with the files that it names."""
    for name in ("id", "id.pub", "t"):
        (folder / name).write_text("ssh-ed25519 AAAA me\n")
    trusted = Trusted("192.168.1.5", 2222, KEY, CERTIFICATE, folder / "id", "site", folder / "t")
    file = folder / "site.yaml"
    file.write_text(first_inventory("site", found, CHOICE, trusted))
    return file


@pytest.mark.parametrize("functions", [FOUND.functions, ()], ids=["a card", "no cards"])
def test_the_first_inventory_is_planned_as_it_is(functions: tuple[PciFunction, ...], tmp_path: Path) -> None:
    inventory = load(first_file(tmp_path, replace(FOUND, functions=functions)))
    assert len(inventory.hypervisors["pve"].cards) == len(functions) // 2
    plan = ModelSite(inventory, tmp_path / "state").plan()
    assert plan.refusals == ()
    assert [each.problem for each in plan.steps if each.problem] == []
    assert ("hypervisor_host" in {each.step.id.role for each in plan.steps}) is bool(functions)


def test_the_first_inventory_is_valid_and_says_what_was_found(tmp_path: Path) -> None:
    file = first_file(tmp_path)
    inventory = load(file)
    host = inventory.hypervisors["pve"]
    assert (host.api.token_id, host.api.fingerprint) == ("provision@pve!site", CERTIFICATE)
    assert (host.ssh.host_key, host.ssh.port) == (KEY, 2222)
    assert (host.storage.images, host.storage.disks, host.storage.snippets) == ("local", "local-zfs", "local")
    assert host.cards["gpu1"].drives_console
    assert host.cards["gpu1"].id == "10de:2204"
    assert "IOMMU group 14" in file.read_text()
    assert inventory.placeholders() == []
    assert inventory.network is not None
    assert (str(inventory.network.cidr), inventory.network.gateway) == ("192.168.1.0/24", "192.168.1.1")
