"""What answers mean, and that a fact whose question has no answer says why."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import provision
from provision.contracts.query import Unknown
from provision.contracts.snapshot import Snapshot
from provision.hosts.facts import MACHINE_ID, MEMORY, PROCESSORS, HostFacts
from provision.hosts.queries.kernel import CMDLINE, BootLoader
from provision.hosts.queries.shell import Shell, ShellResult
from provision.hosts.queries.system import Bridges, ClockState, ClockStatus
from provision.hosts.resources.package import PackageState, PackageStatus
from provision.proxmox.api_facts import ApiFacts
from provision.proxmox.host_facts import STORAGES, VM_DEVICES, HypervisorFacts, VmDevice
from provision.proxmox.queries import Elsewhere, VmConfig, VmState

REASON = Unknown("the host does not say")
PRODUCT = Path(provision.__file__).parent


def host(answers: dict[Any, object]) -> HypervisorFacts:
    return HypervisorFacts(Snapshot("pve/ssh", answers=answers))


def test_memory_is_counted_in_mebibytes() -> None:
    text = b"MemTotal:       16303428 kB\nMemFree:         1000000 kB\n"
    assert host({MEMORY: text}).memory == 15921
    assert host({MEMORY: b"MemTotal: lots\n"}).memory == Unknown("no MemTotal")


@pytest.mark.parametrize(("text", "count"), [(b"0-3\n", 4), (b"0\n", 1), (b"0-3,8,10-11\n", 7)])
def test_processors_are_counted(text: bytes, count: int) -> None:
    assert host({PROCESSORS: text}).processors == count


@pytest.mark.parametrize("text", [b"", b"\n", b"many\n", b"0-x\n", b"0-3,\n"])
def test_an_invalid_list_of_processors_is_unknown(text: bytes) -> None:
    assert host({PROCESSORS: text}).processors == Unknown("no list of processors")


def test_storage_cfg_is_read_by_section() -> None:
    text = (
        b"dir: local\n\tpath /var/lib/vz\n\tcontent iso,import\n\nzfspool: z\n\tpool rpool/data\n\tsparse 1\n"
    )
    assert host({STORAGES: text}).storages == {
        "local": {"type": "dir", "path": "/var/lib/vz", "content": "iso,import"},
        "z": {"type": "zfspool", "pool": "rpool/data", "sparse": "1"},
    }
    assert host({STORAGES: None}).storages == Unknown("there is no such file")


def test_devices_of_all_vms_are_read_from_their_files() -> None:
    rows = (
        b"/etc/pve/nodes/pve/qemu-server/500.conf:net0: e1000=BC:24:11:00:00:05,bridge=vmbr0\n"
        b"/etc/pve/nodes/b/qemu-server/7.conf:hostpci12: mapping=gpu\n"
        b"grep: something else\n"
    )
    assert host({VM_DEVICES: ShellResult(0, rows, b"")}).vm_devices == (
        VmDevice("pve", 500, "net0", "e1000=BC:24:11:00:00:05,bridge=vmbr0"),
        VmDevice("b", 7, "hostpci12", "mapping=gpu"),
    )


def test_devices_say_what_the_next_stop_brings_and_snapshots_say_nothing() -> None:
    rows = (
        b"/etc/pve/nodes/pve/qemu-server/500.conf:net0: virtio=BC:24:11:00:00:05\n"
        b"/etc/pve/nodes/pve/qemu-server/500.conf:hostpci1: 0000:04:00\n"
        b"/etc/pve/nodes/pve/qemu-server/500.conf:[PENDING]\n"
        b"/etc/pve/nodes/pve/qemu-server/500.conf:delete: !net0,balloon\n"
        b"/etc/pve/nodes/pve/qemu-server/500.conf:net1: virtio=BC:24:11:00:00:06\n"
        b"/etc/pve/nodes/pve/qemu-server/500.conf:hostpci1: 0000:05:00\n"
        b"/etc/pve/nodes/pve/qemu-server/500.conf:[before-upgrade]\n"
        b"/etc/pve/nodes/pve/qemu-server/500.conf:hostpci0: 0000:02:00\n"
        b"/etc/pve/nodes/pve/qemu-server/501.conf:hostpci0: 0000:03:00\n"
    )
    devices = host({VM_DEVICES: ShellResult(0, rows, b"")}).vm_devices
    assert [(device.vmid, device.key, device.pending, device.leaving) for device in devices] == [
        (500, "net0", False, True),
        (500, "hostpci1", False, True),
        (500, "net1", True, False),
        (500, "hostpci1", True, False),
        (501, "hostpci0", False, False),
    ]


def test_a_command_that_failed_has_no_output() -> None:
    good, bad = Shell("uname -n"), Shell("pveversion")
    facts = host({good: ShellResult(0, b"pve\n", b""), bad: ShellResult(127, b"x", b"not found")})
    assert (facts.output(good), facts.output(bad), facts.output(Shell("never"))) == ("pve\n", "", "")


def test_facts_of_a_host_are_read() -> None:
    facts = host(
        {
            MACHINE_ID: b"0123abcd\n",
            CMDLINE: b"root=/dev/vda1 quiet\n",
            BootLoader(): "grub",
            Bridges(): ("vmbr0",),
            ClockState(): ClockStatus(synchronised=True, container="lxc"),
            PackageState("chrony"): PackageStatus("4.3"),
            PackageState("ntp"): PackageStatus(),
        }
    )
    assert (facts.machine_id, facts.kernel_line) == ("0123abcd", "root=/dev/vda1 quiet")
    assert (facts.loader, facts.bridges, facts.container) == ("grub", ("vmbr0",), True)


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        (Unknown("pve/ssh has not answered"), "pve/ssh has not answered"),
        (Snapshot("pve/ssh"), "pve/ssh was not asked"),
        (Snapshot("pve/ssh", answers={MEMORY: REASON, STORAGES: REASON}), REASON.reason),
    ],
)
def test_an_unknown_fact_has_a_reason(snapshot: Snapshot | Unknown, reason: str) -> None:
    facts = HypervisorFacts(snapshot)
    assert (facts.memory, facts.storages) == (Unknown(reason), Unknown(reason))


def test_a_fact_without_a_reason_is_empty_when_unknown() -> None:
    facts = host({})
    assert (facts.machine_id, facts.loader, facts.container) == ("", "unknown", False)
    assert (facts.kernel_line, facts.bridges, facts.vm_devices) == ("", (), ())


def test_a_vm_on_another_node_is_not_found() -> None:
    there = VmState(101, "vm-1", "running", {})
    answers = {VmConfig(101): there, VmConfig(102): Elsewhere("b", "lxc", "ct"), VmConfig(103): None}
    facts = ApiFacts(Snapshot("pve/api", answers=answers))
    assert [facts.vm(vmid) for vmid in (101, 102, 103, 104)] == [there, None, None, None]


@pytest.mark.parametrize("view", [HostFacts, HypervisorFacts, ApiFacts])
def test_every_fact_is_used(view: type) -> None:
    readers = [path for path in PRODUCT.rglob("*.py") if path.parent.name != "facts"]
    read = {name for reader in readers for name in re.findall(r"\.(\w+)", reader.read_text())}
    assert {name for name in vars(view) if not name.startswith("_")} <= read


@pytest.mark.parametrize("layer", ["roles", "preflight"])
def test_roles_and_rules_read_facts_instead_of_answers(layer: str) -> None:
    raw = [path.name for path in (PRODUCT / layer).glob("*.py") if ".answers" in path.read_text()]
    assert raw == []
