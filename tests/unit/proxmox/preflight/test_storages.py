"""Storages, pools and bridges that a plan needs: the node says what there is, whatever a token may see."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.connections.contracts import ApiError
from provision.testing.model_host import ModelFile
from provision.values.diagnostics import Diagnostic, Severity
from tests.unit.proxmox.preflight.test_rules import found
from tests.unit.proxmox.roles.world import INVENTORY, World

STORAGE_CFG = """\
dir: local
\tdisable
\tpath /var/lib/vz
\tcontent iso,vztmpl,import,backup,snippets
\tprune-backups keep-all=1

dir: snips
\tpath /mnt/snips
\tcontent snippets,import
\tnodes pve2,pve3
\tshared 0

zfspool: local-zfs
\tpool rpool/data
\tcontent rootdir
\tsparse 1

cifs: nas
\tpath /mnt/pve/nas
\tserver 192.0.2.9
\tshare vms
\tcontent images,import,snippets

dir: here
\tpath /srv/here
\tnodes pve,pve2
\tcontent images,import,snippets

dir: on
\tpath /srv/on
\tdisable 0
\tcontent images,import,snippets

esxi: vcenter
\tserver 192.0.2.10
\tusername root
\tcontent import

drbd: drbd
\tcontroller 192.0.2.11
\tresourcegroup rg
\tcontent images,rootdir

pbs: pbs-1
\tdatastore a
\tserver 192.0.2.12
\tcontent backup

iscsi: none
\tportal 192.0.2.13
\ttarget iqn.2003-01.org:x
\tcontent none

rbd: ceph.vms_2
\tcontent images
\tpool vms
\tkrbd 0

rbd: ceph-ct
\tcontent rootdir
\tpool ct
\tkrbd 1

cephfs: cephfs
\tpath /mnt/pve/cephfs
\tcontent vztmpl,import,snippets
\tfs-name cephfs

iscsi:lun
	portal 192.0.2.14
	target iqn.2003-01.org:y
	content images

TrueNAS-iSCSI: tn
	dataset tank/pool
	content images

lvm: san
\tvgname san
\tcontent images
\tdisable 1
"""
LISTED: dict[str, dict[str, object]] = {
    "local": {"content": "iso,vztmpl,import,backup,snippets", "enabled": 0, "active": 0},
    "snips": {"content": "snippets,import", "enabled": 0, "active": 0},
    "local-zfs": {"content": "rootdir", "type": "zfspool"},
    "nas": {"content": "images,import,snippets"},
    "here": {"content": "images,import,snippets"},
    "on": {"content": "images,import,snippets"},
    "vcenter": {"content": "import", "type": "esxi"},
    "drbd": {"content": "images,rootdir", "type": "drbd"},
    "pbs-1": {"content": "backup", "type": "pbs"},
    "none": {"content": "none", "type": "iscsi"},
    "ceph.vms_2": {"content": "images", "type": "rbd"},
    "ceph-ct": {"content": "rootdir", "type": "rbd"},
    "cephfs": {"content": "vztmpl,import,snippets", "type": "cephfs"},
    "lun": {"content": "images", "type": "iscsi"},
    "tn": {"content": "images", "type": "truenas-iscsi"},
    "san": {"content": "images", "enabled": 0, "active": 0, "type": "lvm"},
}
"""What `/nodes/pve/storage` answers on that host."""
CASES: list[tuple[str, str, str, set[str]]] = [
    # images, disks, snippets, codes
    ("nas", "nas", "nas", set()),
    ("here", "here", "on", set()),
    ("local", "nas", "nas", {"STORAGE_UNAVAILABLE"}),
    ("nas", "nas", "local", {"STORAGE_UNAVAILABLE"}),
    ("snips", "nas", "nas", {"STORAGE_UNAVAILABLE"}),
    ("nas", "nas", "snips", {"STORAGE_UNAVAILABLE"}),
    ("nas", "local-zfs", "nas", {"STORAGE_NO_IMAGES"}),
    ("nas", "local", "nas", {"STORAGE_UNAVAILABLE", "STORAGE_NO_IMAGES"}),
    ("nas", "local-lvm", "nas", {"STORAGE_MISSING"}),
    ("gone", "nas", "nas", {"STORAGE_MISSING"}),
    ("nas", "nas", "gone", {"STORAGE_MISSING"}),
    ("local-zfs", "nas", "nas", {"STORAGE_NO_IMPORT"}),
    ("nas", "nas", "local-zfs", {"STORAGE_NO_SNIPPETS"}),
    ("local", "local-lvm", "snips", {"STORAGE_UNAVAILABLE", "STORAGE_MISSING"}),
    # kinds of public reports: go-proxmox#229, linstor-proxmox#64, community.proxmox#260, #408, lae#299
    ("vcenter", "nas", "nas", {"STORAGE_UNAVAILABLE"}),
    ("nas", "drbd", "nas", set()),
    ("drbd", "drbd", "nas", {"STORAGE_NO_IMPORT"}),
    ("nas", "drbd", "drbd", {"STORAGE_NO_SNIPPETS"}),
    ("nas", "pbs-1", "nas", {"STORAGE_NO_IMAGES"}),
    ("pbs-1", "nas", "pbs-1", {"STORAGE_NO_IMPORT", "STORAGE_NO_SNIPPETS"}),
    ("nas", "none", "nas", {"STORAGE_UNAVAILABLE", "STORAGE_NO_IMAGES"}),
    ("nas", "lun", "nas", {"STORAGE_UNAVAILABLE"}),  # bpg#2050: "can't allocate space in iscsi storage"
    ("nas", "tn", "nas", set()),
    ("tn", "nas", "nas", {"STORAGE_NO_IMPORT"}),
    ("nas", "ceph.vms_2", "nas", set()),
    ("cephfs", "ceph.vms_2", "cephfs", set()),
    ("nas", "ceph-ct", "nas", {"STORAGE_NO_IMAGES"}),
    ("nas", "Nas", "nas", {"STORAGE_MISSING"}),
    ("nas", "san", "nas", {"STORAGE_UNAVAILABLE"}),
]
ALL = {"Datastore.Audit": 1, "Datastore.AllocateSpace": 1, "Datastore.AllocateTemplate": 1}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A host with the storages of a public report; the node's list says the same."""
    world = World(tmp_path)
    world.host.files["/etc/pve/storage.cfg"] = ModelFile(STORAGE_CFG.encode())
    world.pve.storages = {name: dict(flags) for name, flags in LISTED.items()}
    world.pve.volumes = {name: [] for name in LISTED}
    return world


def errors(world: World, text: str) -> list[Diagnostic]:
    return [problem for problem in found(world, text) if problem.severity is Severity.ERROR]


def using(images: str, disks: str, snippets: str) -> str:
    return INVENTORY.replace(
        "images: local, disks: local-zfs, snippets: local",
        f"images: {images}, disks: {disks}, snippets: {snippets}",
    )


@pytest.mark.parametrize(("images", "disks", "snippets", "codes"), CASES)
def test_what_the_node_says_of_its_storages_decides(
    world: World, images: str, disks: str, snippets: str, codes: set[str]
) -> None:
    problems = errors(world, using(images, disks, snippets))
    assert {problem.code for problem in problems} == codes
    for problem in problems:
        assert problem.source is not None
        assert "`pvesm " in problem.remedy


@pytest.mark.parametrize(("images", "disks", "snippets", "codes"), CASES)
def test_a_token_that_sees_no_storages_is_told_the_same(
    world: World, images: str, disks: str, snippets: str, codes: set[str]
) -> None:
    world.pve.faults[("GET", "/nodes/pve/storage")] = ApiError(403, "Permission check failed")
    assert {problem.code for problem in errors(world, using(images, disks, snippets))} == codes


def test_reasons_name_what_hinders_and_what_helps(world: World) -> None:
    problems = errors(world, using("snips", "local-zfs", "local"))
    assert [problem.summary for problem in problems] == [
        "storage snips of pve is only on pve2, pve3, not on pve",
        "storage local of pve is disabled",
        "storage local-zfs of pve does not take content of type images",
    ]
    assert "pvesm set snips --nodes pve2,pve3,pve" in problems[0].remedy
    assert "pvesm set local --disable 0" in problems[1].remedy
    assert "pvesm set local-zfs --content rootdir,images" in problems[2].remedy


@pytest.mark.parametrize(
    ("images", "disks", "snippets", "word"),
    [
        ("local-zfs", "nas", "nas", "type: zfspool"),
        ("nas", "nas", "ceph.vms_2", "type: rbd"),
        ("nas", "cephfs", "nas", "type: cephfs"),
        ("nas", "pbs-1", "nas", "type: pbs"),
    ],
)
def test_content_that_a_type_cannot_take_is_not_to_be_allowed(
    world: World, images: str, disks: str, snippets: str, word: str
) -> None:
    (problem,) = errors(world, using(images, disks, snippets))
    assert problem.evidence[0] == word
    assert "cannot take content" in problem.summary
    assert problem.remedy == "write another storage; list them on the host: `pvesm status`"
    world.pve.faults[("GET", "/nodes/pve/storage")] = ApiError(403, "Permission check failed")
    assert errors(world, using(images, disks, snippets)) == [problem]


def test_a_type_of_a_plugin_is_taken_at_its_word(world: World) -> None:
    (problem,) = errors(world, using("tn", "nas", "nas"))
    assert "pvesm set tn --content images,import" in problem.remedy


def test_a_storage_that_the_node_does_not_reach_is_refused(world: World) -> None:
    world.pve.storages["nas"]["active"] = 0
    (problem,) = errors(world, using("here", "nas", "here"))
    assert problem.summary == "storage nas of pve is not active on pve: it cannot be reached"


def test_disks_firmware_and_tpm_of_other_storages_are_looked_at_too(world: World) -> None:
    firmware = "bios: ovmf, efi: { storage: gone1 }, tpm: { storage: gone2, version: v2.0 }"
    more = f"{firmware}, disks: [{{ size: 1GiB, storage: gone3 }}]"
    text = using("nas", "nas", "nas").replace("vmid: 101,", f"vmid: 101, {more},")
    assert sorted(problem.summary for problem in errors(world, text)) == [
        f"pve has no storage gone{number}" for number in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("gib", "codes"), [(None, set()), (100, set()), (8, set()), (7, {"STORAGE_FULL"}), (0, {"STORAGE_FULL"})]
)
def test_a_storage_with_too_little_space_is_a_warning(world: World, gib: int | None, codes: set[str]) -> None:
    if gib is not None:  # two VMs have a disk of 4 GiB each
        world.pve.storages["nas"]["avail"] = gib * 1024**3
    problems = found(world, using("nas", "nas", "nas"))
    assert {problem.code for problem in problems} == codes
    assert {problem.severity for problem in problems} <= {Severity.WARNING}


def test_a_vm_that_needs_nothing_new_asks_for_no_storages(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.apply().exit_code == 0
    world.pve.log.clear()
    assert world.plan().empty
    assert not [path for _, path, _ in world.pve.log if path in {"/nodes/pve/storage", "/nodes/pve/network"}]


# ---------------------------------------------------------------- pools


@pytest.mark.parametrize(
    ("pools", "severities"),
    [
        (("lab",), []),
        (("prod", "lab"), []),
        (("prod",), [Severity.ERROR]),
        (("lab2", "a-lab"), [Severity.ERROR]),
        ((), [Severity.ERROR]),
        (None, [Severity.NOTE]),
    ],
)
def test_a_pool_is_looked_up_on_the_host_whatever_the_token_sees(
    tmp_path: Path, pools: tuple[str, ...] | None, severities: list[Severity]
) -> None:
    world = World(tmp_path)
    world.pools = pools
    problems = found(world, INVENTORY.replace("vmid: 101,", "vmid: 101, pool: lab,"))
    assert [problem.severity for problem in problems] == severities
    assert {problem.code for problem in problems} <= {"POOL_MISSING"}


def test_a_plan_shows_pool_and_tpm_of_a_new_vm(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(INVENTORY.replace("vmid: 101,", "vmid: 101, pool: lab, tpm: { version: v2.0 },"))
    shown = {
        change.path: change.new
        for step in world.plan().steps
        for resource in step.changes
        for change in resource.changes
        if str(resource.key) == "pve/api:vm:vm-1"
    }
    assert (shown["pool"], shown["tpmstate0"]) == ("lab", "local-zfs:1,version=v2.0")


# ---------------------------------------------------------------- bridges


@pytest.mark.parametrize(
    ("host", "listed", "links", "severities"),
    [
        (("vmbr0",), {}, (), []),
        ((), {}, (), []),  # nothing to compare with
        (("vmbr1",), {"vmbr0": "OVSBridge"}, (), []),
        (("vmbr1",), {"vmbr0": "vnet"}, (), []),
        (("vmbr1",), {"vmbr0": "bridge", "vmbr1": "bridge"}, (), []),
        (("vmbr1",), {"vmbr1": "bridge"}, ("vmbr0",), [Severity.NOTE, Severity.NOTE]),
        (("vmbr1",), {}, ("vmbr0",), [Severity.NOTE, Severity.NOTE]),
        (("vmbr1",), {}, (), [Severity.ERROR, Severity.ERROR]),
        ((), {"vmbr1": "OVSBridge"}, (), [Severity.ERROR, Severity.ERROR]),
        # names that look alike, ports of a bridge, a bridge that the token does not see
        (("vmbr01", "VMBR0"), {"vmbr0.10": "vlan"}, (), [Severity.ERROR, Severity.ERROR]),
        (("vmbr1",), {"vmbr0v10": "bridge"}, ("vmbr0v10",), [Severity.ERROR, Severity.ERROR]),
        (("vmbr0",), {"vmbr1": "bridge"}, ("vmbr0", "tap101i0"), []),
        (("vmbr1",), {"vmbr0": "any_bridge"}, ("vmbr0",), []),
        ((), {}, ("vmbr0", "eno1"), []),
    ],
)
def test_a_bridge_is_one_whoever_made_it(
    tmp_path: Path,
    host: tuple[str, ...],
    listed: dict[str, str],
    links: tuple[str, ...],
    severities: list[Severity],
) -> None:
    world = World(tmp_path)
    world.host.bridges, world.host.links, world.pve.bridges = host, links, listed
    problems = [problem for problem in found(world) if problem.code == "BRIDGE_MISSING"]
    assert [problem.severity for problem in problems] == severities


@pytest.mark.parametrize(
    ("keys", "folder"),
    [
        ("path /srv/snips", "/srv/snips/snippets"),
        ("path /srv/snips/", "/srv/snips/snippets"),
        ("path /srv/snips\n\tcontent-dirs snippets=/cloud-init", "/srv/snips/cloud-init"),
        ("path /srv/snips\n\tcontent-dirs iso=/a/iso,snippets=b/c", "/srv/snips/b/c"),
        ("path /srv/snips\n\tcontent-dirs snippets=./x/", "/srv/snips/x"),
        ("path /srv/snips\n\tcontent-dirs iso=/isos", "/srv/snips/snippets"),
        ("path /srv/snips\n\tcontent-dirs snippets=/", "/srv/snips/snippets"),
        ("path relative", "/var/lib/vz/snippets"),
    ],
)
def test_snippets_lie_where_proxmox_looks_for_them(tmp_path: Path, keys: str, folder: str) -> None:
    world = World(tmp_path)
    world.host.files["/etc/pve/storage.cfg"] = ModelFile(
        f"dir: local\n\t{keys}\n\tcontent images,import,snippets\n\nzfspool: local-zfs\n\tpool a\n"
        "\tcontent images\n".encode()
    )
    keys_of = [
        change.key.name
        for step in world.plan().steps
        for change in step.changes
        if "provision-site-vm-1" in change.key.name and change.key.kind == "file"
    ]
    assert keys_of == [f"{folder}/provision-site-vm-1.yaml"]
