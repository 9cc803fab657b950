from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from provision.api import preflight
from provision.api.domains import load_inventory as load
from provision.api.preflight import evidence
from provision.connections.contracts import KeyPair
from provision.contracts.effect import Effect
from provision.contracts.resource import Resource
from provision.contracts.role import Context
from provision.contracts.rule import Evidence
from provision.contracts.snapshot import Pending, Snapshot
from provision.dhcp.preflight import mac_duplicate
from provision.dhcp.roles import dhcp_reservation
from provision.engine.generated import GeneratedValues
from provision.hosts.host_effects import REBOOT_HYPERVISOR
from provision.hosts.preflight import controller, home
from provision.hosts.queries.shell import Shell, ShellResult
from provision.hosts.resources.pci import IommuStatus, PciFunction
from provision.inventory import Inventory, Subject
from provision.proxmox import macs
from provision.proxmox.host_facts import VM_DEVICES
from provision.proxmox.preflight.claims import claimed
from provision.proxmox.queries import VmEntry, VmList
from provision.proxmox.roles import image, pci_mapping, virtual_machine
from provision.testing.model_host import ModelFile, ModelFunction, ModelHost
from provision.testing.model_proxmox import ModelVm
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.errors import Permanent
from tests.unit.proxmox.roles.world import INVENTORY, LEASES, World

ROLES: tuple[Any, ...] = (image, pci_mapping, dhcp_reservation, virtual_machine)


class Keys(GeneratedValues):
    def __init__(self) -> None:
        super().__init__(lambda: KeyPair(SecretStr(""), "", ""))

    def host_key(self, purpose: str) -> KeyPair:
        return KeyPair(SecretStr(purpose), f"ssh-ed25519 {purpose}", f"SHA256:{purpose}")


LOADED: dict[str, Inventory] = {}
"""Inventories by text, for all tests: one is frozen, and takes longer to load than the rules to judge it."""


def site(world: World, text: str = INVENTORY) -> Evidence:
    """Return what rules see: the answers of all systems and the desired states of the VM roles."""
    if text not in LOADED:
        world.write(text)
        LOADED[text] = load(world.folder / "site.yaml")
    inventory = LOADED[text]
    subjects = [Subject("hypervisor", "pve"), *(Subject("node", each) for each in inventory.nodes)]
    queries: dict[str, set[Any]] = {system: set(asked) for system, asked in evidence(inventory).items()}
    chosen = [(role, each) for each in subjects for role in ROLES if role.declared(inventory, each)]
    for role, subject in chosen:
        for system, asked in role.questions(inventory, subject).items():
            queries.setdefault(system, set()).update(asked)
    host, router = ModelHost("pve/ssh", world.host), ModelHost("router", world.router)
    host.answers[Shell] = lambda _, query: world.host_shell(query)
    router.answers[Shell] = world._router_shell
    drivers: dict[str, Any] = {"pve/api": world.pve.driver(), "pve/ssh": host, "router": router}
    snapshots = {
        system: drivers[system].answer(frozenset(asked), Cancel())
        for system, asked in queries.items()
        if system in drivers
    }
    resources: list[Resource] = []
    for role, subject in chosen:
        try:
            resources += role.resources(Context(inventory, subject, snapshots, Keys()))
        except Permanent:
            continue
    for each in resources:
        seen = snapshots.get(each.key.system, Snapshot(each.key.system))
        missing = seen.missing(each.queries())
        if missing:
            newer = drivers[each.key.system].answer(missing, Cancel())
            snapshots[each.key.system] = replace(newer, answers={**seen.answers, **newer.answers})
    return Evidence(inventory, snapshots, resources)


def found(world: World, text: str = INVENTORY, *, destroying: bool = False) -> list[Diagnostic]:
    return preflight.check(replace(site(world, text), destroying=destroying))


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.host.files["/proc/cmdline"] = ModelFile()
    return made


def test_a_sound_site_has_no_findings(world: World) -> None:
    assert found(world) == []


def share_group(world: World) -> None:
    card = world.host.functions[1].pci
    nic = PciFunction("0000:04:00.0", "8086", "1533", "020000", "", card.group)
    world.host.functions.append(ModelFunction(nic))


def no_iommu(world: World) -> None:
    world.host.iommu = IommuStatus((), 0)
    world.host.cmdline += " intel_iommu=on"


def little_memory(world: World) -> None:
    world.host.memory = 2047


def one_cpu(world: World) -> None:
    world.host.cpus = 1


def no_snippets(world: World) -> None:
    world.pve.storages["local"] = {"content": "iso,import"}
    world.host.files["/etc/pve/storage.cfg"] = ModelFile(b"dir: local\n\tpath /x\n\tcontent iso,import\n")


def no_import(world: World) -> None:
    world.pve.storages["local"] = {"content": "snippets"}
    world.host.files["/etc/pve/storage.cfg"] = ModelFile(b"dir: local\n\tpath /x\n\tcontent snippets\n")


def nothing_granted(world: World) -> None:
    world.pve.rights = {}


def no_downloads(world: World) -> None:
    for privilege in ("Sys.Modify", "Sys.AccessNetwork"):
        del world.pve.rights["/"][privilege]


def moved_card(world: World) -> None:
    first = world.host.functions[1]
    world.host.functions[1] = replace(first, pci=replace(first.pci, device="2684"))


def foreign_vm(world: World) -> None:
    world.pve.vms[101] = ModelVm(101, {"name": "windows", "memory": "1024"})


def foreign_container(world: World) -> None:
    world.pve.others = [{"vmid": 101, "node": "pve", "type": "lxc", "name": "ct", "status": "running"}]


def leased(world: World) -> None:
    world.router.files[LEASES] = ModelFile(b"1795960000 52:54:00:00:00:01 10.0.0.11 printer *\n")


def reserved(world: World) -> None:
    world.router.files["/etc/dnsmasq.d/hosts/printer"] = ModelFile(b"52-54-00-AA-00-01,10.0.0.12,printer\n")


def taken_card(world: World) -> None:
    world.pve.vms[500] = ModelVm(500, {"name": "games", "memory": "512"}, running=True)
    world.vm_files = b"/etc/pve/nodes/pve/qemu-server/500.conf:hostpci0: 0000:02:00.0,pcie=1\n"


def same_mac(world: World) -> None:
    mac = macs.made("site", "vm-1", 0).lower()
    world.vm_files = f"/etc/pve/nodes/pve/qemu-server/500.conf:net0: e1000={mac},bridge=vmbr0\n".encode()


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (share_group, "IOMMU_GROUP_SHARED"),
        (no_iommu, "IOMMU_OFF"),
        (little_memory, "HOST_MEMORY_OVERCOMMIT"),
        (one_cpu, "CORES_EXCEED_HOST"),
        (no_snippets, "STORAGE_NO_SNIPPETS"),
        (no_import, "STORAGE_NO_IMPORT"),
        (nothing_granted, "PVE_PRIV_MISSING"),
        (no_downloads, "PVE_PRIV_MISSING"),
        (moved_card, "GPU_ADDRESS_MOVED"),
        (foreign_vm, "VMID_TAKEN_FOREIGN"),
        (foreign_container, "VMID_TAKEN_FOREIGN"),
        (leased, "IP_LEASED_TO_OTHER"),
        (reserved, "IP_LEASED_TO_OTHER"),
        (same_mac, "MAC_DUPLICATE"),
        (taken_card, "GPU_CLAIMED_BY_OTHER_VM"),
    ],
)
def test_one_thing_that_is_wrong_is_one_refusal_with_its_code(
    world: World, spoil: Callable[[World], None], code: str
) -> None:
    spoil(world)
    codes = {each.code for each in found(world) if each.severity is Severity.ERROR}
    assert codes == {code}
    for each in found(world):
        assert each.remedy
        assert each.source is not None or each.code == "PVE_PRIV_MISSING"


@pytest.mark.parametrize(
    "spoil",
    [share_group, no_iommu, little_memory, one_cpu, no_snippets, moved_card, reserved, same_mac, taken_card],
)
def test_a_destroy_is_not_refused_for_what_only_a_making_needs(
    world: World, spoil: Callable[[World], None]
) -> None:
    spoil(world)
    assert found(world, destroying=True) == []


def test_a_destroy_is_refused_without_the_rights_that_it_needs(world: World) -> None:
    nothing_granted(world)
    assert [each.code for each in found(world, destroying=True)] == ["PVE_PRIV_MISSING"]


def test_vms_are_destroyed_on_a_host_that_could_not_take_them_any_more(world: World) -> None:
    world.apply()
    for spoil in (moved_card, share_group, little_memory, one_cpu, no_snippets):
        spoil(world)
    assert world.destroy().exit_code == 0
    assert not world.pve.vms


def test_a_backup_of_a_vm_hinders_only_what_would_change_it(world: World) -> None:
    world.apply()
    locked = world.pve.vms[101]
    locked.config["lock"] = "backup"
    assert found(world) == []
    text = INVENTORY.replace("vm-1: { profile: small,", "vm-1: { profile: small, cores: 1,")
    (finding,) = found(world, text)
    assert (finding.code, finding.severity, finding.subject) == ("VM_LOCKED", Severity.WARNING, "vm-1")
    locked.config["description"] = "provision: inventory=other node=vm-1"
    assert {each.code for each in found(world, text)} == {"VMID_TAKEN_FOREIGN"}


def test_a_bridge_that_is_not_there_is_refused_before_the_start(world: World) -> None:
    text = INVENTORY.replace("cores: 2,", "cores: 2, nics: [{ bridge: vmbr7 }],")
    assert {each.code for each in found(world, text)} == {"BRIDGE_MISSING"}


def test_start_at_boot_of_the_console_vm_is_refused(world: World) -> None:
    text = INVENTORY.replace("gpus: [one],", "gpus: [one], start_at_boot: true,")
    assert [each.code for each in found(world, text)] == ["ONBOOT_FORBIDDEN"]


def test_a_running_stranger_counts_for_memory_and_a_stopped_one_does_not(world: World) -> None:
    world.host.memory = 2600
    world.pve.vms[500] = ModelVm(500, {"name": "games", "memory": "1024"})
    assert found(world) == []
    world.pve.vms[500].running = True
    assert [each.code for each in found(world)] == ["HOST_MEMORY_OVERCOMMIT"]


def test_strangers_of_one_name_count_each_for_memory(world: World) -> None:
    world.host.memory = 2400
    world.pve.vms[500] = ModelVm(500, {"name": "games", "memory": "256"}, running=True)
    assert found(world) == []
    world.pve.vms[501] = ModelVm(501, {"name": "games", "memory": "256"}, running=True)
    (finding,) = found(world)
    assert finding.code == "HOST_MEMORY_OVERCOMMIT"
    assert [each for each in finding.evidence if each.startswith("games")] == ["games: 256MiB"] * 2


def cluster(world: World, *rows: str) -> Evidence:
    """Return what rules see of two declared nodes of one Proxmox cluster: each shows the VMs of both."""
    pve, _, rest = INVENTORY.partition("  pve:\n")[2].partition("profiles:\n")
    two = pve.replace("10.0.0.5", "10.0.0.6")
    nodes = "  vm-2: { profile: small, hypervisor: pve2, vmid: 103, address: 10.0.0.13 }\n"
    world.write(f"{INVENTORY.partition('profiles:')[0]}  pve2:\n{two}profiles:\n{rest}{nodes}")
    inventory = load(world.folder / "site.yaml")
    text = "".join(f"/etc/pve/nodes/{each}\n" for each in rows).encode()
    listed = tuple(
        VmEntry(vmid, node, "qemu", "x", "running") for vmid, node in ((600, "pve"), (601, "pve2"))
    )
    snapshots: dict[str, Snapshot] = {}
    for name in inventory.hypervisors:
        snapshots[f"{name}/ssh"] = Snapshot("", answers={VM_DEVICES: ShellResult(0, text, b"")})
        snapshots[f"{name}/api"] = Snapshot("", answers={VmList(): listed})
    return Evidence(inventory, snapshots, ())


def test_a_vm_of_another_declared_node_of_the_cluster_is_no_stranger(world: World) -> None:
    one, two = (macs.made("site", name, 0) for name in ("vm-1", "vm-2"))
    ours = (f"pve/qemu-server/101.conf:net0: virtio={one}", f"pve2/qemu-server/103.conf:net0: virtio={two}")
    assert mac_duplicate(cluster(world, *ours)) == []
    (finding,) = mac_duplicate(cluster(world, *ours, f"pve2/qemu-server/601.conf:net0: virtio={one}"))
    assert isinstance(finding, Diagnostic)
    assert finding.summary == f"{one} belongs to net0 of vm-1 and net0 of VM 601"


@pytest.mark.parametrize(
    ("rows", "summary"),
    [
        (["net0: e1000=MAC"], "net0 of VM 601"),
        (["net0: e1000=MAC", "[PENDING]", "delete: net0"], "net0 of VM 601 (until it stops)"),
        (["[PENDING]", "net3: virtio=MAC"], "net3 of VM 601 (after its next start)"),
        (["[before-upgrade]", "net0: virtio=MAC"], ""),
    ],
)
def test_a_mac_counts_until_its_device_is_gone(world: World, rows: list[str], summary: str) -> None:
    mac = macs.made("site", "vm-1", 0)
    lines = (f"pve2/qemu-server/601.conf:{row.replace('MAC', mac)}" for row in rows)
    found = [each for each in mac_duplicate(cluster(world, *lines)) if isinstance(each, Diagnostic)]
    assert [each.summary for each in found] == (
        [f"{mac} belongs to net0 of vm-1 and {summary}"] if summary else []
    )


def test_a_card_of_another_node_at_the_same_address_is_another_card(world: World) -> None:
    assert claimed(cluster(world, "pve2/qemu-server/601.conf:hostpci0: 0000:02:00")) == []
    (finding,) = claimed(cluster(world, "pve/qemu-server/600.conf:hostpci0: 0000:02:00"))
    assert isinstance(finding, Diagnostic)
    assert (finding.code, finding.subject) == ("GPU_CLAIMED_BY_OTHER_VM", "vm-gpu")


def test_a_silent_site_refuses_nothing(world: World) -> None:
    inventory = site(world).inventory
    assert {each.severity for each in preflight.check(Evidence(inventory, {}, ()))} == {Severity.NOTE}


def test_the_console_is_not_taken_while_the_host_is_silent(world: World) -> None:
    evidence = site(world)
    del evidence.snapshots["pve/ssh"]  # type: ignore[attr-defined]  # a dict here
    codes = [each.code for each in preflight.check(evidence) if each.severity is Severity.ERROR]
    assert codes == ["MANAGEMENT_PATH"]


def test_running_on_the_hypervisor_itself_is_a_warning(world: World) -> None:
    world.host.files["/etc/machine-id"] = ModelFile(b"0123456789abcdef\n")
    reboot = Effect(REBOOT_HYPERVISOR)
    world.host.pending[reboot] = Pending(reboot, world.host.boot_id, "r1")
    (finding,) = controller(site(world), "0123456789abcdef")
    assert isinstance(finding, Diagnostic)
    assert (finding.code, finding.severity) == ("CONTROLLER_ON_TARGET", Severity.WARNING)
    assert controller(site(world), "other") == []


def test_where_nothing_reboots_the_machine_of_this_process_is_no_risk(world: World) -> None:
    world.host.files["/etc/machine-id"] = ModelFile(b"0123456789abcdef\n")
    evidence = site(world)
    quiet = Evidence(evidence.inventory, evidence.snapshots, ())
    assert controller(quiet, "0123456789abcdef") == []


def test_who_has_to_reboot_the_machine_of_this_process_is_told_how(world: World) -> None:
    world.host.files["/etc/machine-id"] = ModelFile(b"0123456789abcdef\n")
    evidence = site(world)
    (told,) = home(evidence.inventory, evidence.snapshots, "0123456789abcdef").values()
    assert told.summary == "provision runs on pve/ssh, which has to reboot"
    assert "`systemctl reboot`" in told.remedy
    assert home(evidence.inventory, evidence.snapshots, "other") == {}


def test_a_boot_display_that_is_not_declared_so_is_a_warning(world: World) -> None:
    text = INVENTORY.replace(", drives_console: true", "")
    card = world.host.functions[1]
    world.host.functions[1] = replace(card, pci=replace(card.pci, boot_vga=True))
    (finding,) = [each for each in found(world, text) if each.code == "GPU_IS_BOOT_VGA"]
    assert finding.severity is Severity.WARNING
    assert card.pci.address in finding.evidence[0]
    assert "drives_console: true" in finding.remedy
    assert "GPU_IS_BOOT_VGA" not in [each.code for each in found(world)]
