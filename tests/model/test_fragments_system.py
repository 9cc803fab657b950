"""Fragments about the system in real shells: as they are where harmless, else with stand-ins for the tools.

Stand-ins: apt-get, apt-mark, dpkg, dpkg-query, systemctl, modprobe (scripts of a few lines that keep a list).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provision.contracts.query import Unknown
from provision.contracts.remedy import Fix
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.file import FileText
from provision.hosts.queries.kernel import BootLoader, ModuleState
from provision.hosts.queries.left_files import MarkedFiles
from provision.hosts.queries.shell import Shell, ShellResult
from provision.hosts.queries.system import Bridges, ClockState, HostKeys, NetworkLinks
from provision.hosts.query_kinds import HOST_KINDS
from provision.hosts.resources.filesystem import RootChain
from provision.hosts.resources.package import Package, PackageState
from provision.hosts.resources.pci import IommuState, ModuleCandidates, PciFunctions
from provision.hosts.resources.service import Service, UnitState
from provision.hosts.resources.sysctl import SysctlValue
from provision.proxmox.host_facts import VM_DEVICES, HypervisorFacts, VmDevice
from provision.proxmox.nic_facts import HOST_NICS
from provision.proxmox.reboot_facts import REBOOT_FACTS, reboot_facts
from provision.proxmox.usb_facts import USB_DEVICES
from provision.testing.model_host import HostState, ModelFile
from provision.testing.model_pve_host import reboot_text
from tests.model.shells import SHELLS, answers, run, snapshot_of

pytestmark = pytest.mark.parametrize("shell", SHELLS)

STUBS = {
    "dpkg-query": (
        "shift 3\nfor n do if [ -e \"$STATE/pkg-$n\" ]; then s='ii '; "
        "if [ -e \"$STATE/hold-$n\" ]; then s='hi '; fi\n"
        'printf \'p|%s|amd64|%s|%s\\n\' "$n" "$s" "$(cat "$STATE/pkg-$n")"; fi; done\n'
    ),
    "dpkg": 'echo "dpkg $*" >>"$STATE/log"\n',
    "apt-get": (
        'echo "apt-get $*" >>"$STATE/log"\n'
        "case \" $* \" in *' update '*|*' update') : >\"$STATE/lists\"; exit 0;; esac\n"
        "[ -e \"$STATE/lists\" ] || { echo 'E: Unable to locate package' >&2; exit 100; }\n"
        "verb=install; case \" $* \" in *' remove '*) verb=remove;; esac\n"
        "only=; case \" $* \" in *' -s '*) only=1;; esac\n"
        "keep=; case \" $* \" in *' --no-remove '*) keep=1;; esac\n"
        'while [ "$1" != -- ]; do shift; done; shift\n'
        "if [ $verb = remove ]; then\n"
        'for n do set -- "$@" $(cat "$STATE/with-$n" 2>/dev/null); done\n'
        'for n do if [ -n "$only" ]; then echo "Remv $n [1]"; else rm -f "$STATE/pkg-$n"; fi; done\n'
        "exit 0; fi\n"
        'for n do for c in $(cat "$STATE/not-with-$n" 2>/dev/null); do if [ -e "$STATE/pkg-$c" ]; then\n'
        "[ -z \"$keep\" ] || { echo 'E: Packages need to be removed' >&2; exit 100; }\n"
        'rm -f "$STATE/pkg-$c"; fi; done; printf 1.0 >"$STATE/pkg-$n"; done\n'
    ),
    "apt-mark": (
        'verb=$1; shift 2\nfor n do if [ $verb = hold ]; then : >"$STATE/hold-$n"; '
        'else rm -f "$STATE/hold-$n"; fi; done\n'
    ),
    "systemctl": (
        "verb=$1; shift\n"
        "get() { cat \"$STATE/unit-$1\" 2>/dev/null || echo 'not-found inactive'; }\n"
        "if [ $verb = show ]; then shift 3\n"
        'for u do set -- $(get "$u"); l=loaded\n'
        "if [ $1 = not-found ]; then l=not-found; set -- '' inactive; fi\n"
        "printf 'LoadState=%s\\nActiveState=%s\\nSubState=%s\\nUnitFileState=%s\\n\\n' "
        '$l "$2" "${3:-x}" "$1"; done; exit 0; fi\n'
        'shift; u=$1; set -- $(get "$u")\n'
        "case $verb in enable) set -- enabled $2;; disable|unmask) set -- disabled $2;; "
        "start) [ $1 != masked ] || exit 1; set -- $1 active;; stop) set -- $1 inactive;; esac\n"
        'echo "$1 $2" >"$STATE/unit-$u"\n'
    ),
    "modprobe": ('case $1 in -S) case "$4" in pci:*bc03*) echo bochs;; *) echo something;; esac;; esac\n'),
}


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, object]:
    folder, state = tmp_path / "bin", tmp_path / "state"
    folder.mkdir()
    state.mkdir()
    for name, text in STUBS.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}", encoding="ascii")
        (folder / name).chmod(0o755)
    return {"path": folder, "env": {"STATE": str(state)}}


HARMLESS = (
    PciFunctions(),
    IommuState(),
    BootLoader(),
    HostKeys(),
    Bridges(),
    ModuleState("vfio_pci"),
    SysctlValue("net.ipv4.ip_forward"),
    SysctlValue("net.ipv4.tcp_rmem"),
    SysctlValue("kernel.no_such_parameter"),
    FileText("/proc/cmdline"),
    FileText("/proc/swaps"),
    Shell("echo out; echo err >&2; exit 3"),
    HOST_NICS,
    USB_DEVICES,
)


@pytest.mark.parametrize("query", HARMLESS, ids=repr)
def test_this_machine_answers_alike_in_every_shell(shell: str, query: object) -> None:
    answer = answers(shell, [query])[query]
    assert not isinstance(answer, Unknown), answer
    assert answer == answers("dash", [query])[query]


@pytest.mark.parametrize("query", [RootChain(), ClockState()], ids=repr)
def test_queries_that_a_container_cannot_answer_are_unknown(shell: str, query: object) -> None:
    assert type(answers(shell, [query])[query]) is type(answers("dash", [query])[query])


def test_a_sysctl_with_several_values_is_read_whole(shell: str) -> None:
    value = answers(shell, [SysctlValue("net.ipv4.tcp_rmem")])[SysctlValue("net.ipv4.tcp_rmem")]
    assert len(value.split(" ")) == 3


@pytest.mark.parametrize(
    ("installed", "package"),
    [
        ({}, Package("x/ssh", ("curl", "jq"))),
        ({"curl": "1.0"}, Package("x/ssh", ("curl", "jq"), hold=True)),
        ({"curl": "1.0", "jq": "1.0"}, Package("x/ssh", ("curl", "jq", "wget"), absent=True)),
    ],
    ids=["new", "held", "absent"],
)
def test_packages_converge_with_stand_ins(
    shell: str, tools: dict[str, object], tmp_path: Path, installed: dict[str, str], package: Package
) -> None:
    for name, version in installed.items():
        (tmp_path / "state" / f"pkg-{name}").write_text(version, encoding="ascii")
    if package.absent:
        (tmp_path / "state" / "lists").touch()
    snapshot = snapshot_of(shell, [package], **tools)
    assert package.changes(snapshot)
    fix = package.fix(snapshot)
    assert isinstance(fix, Fix)
    frame = run(shell, fix.script, **tools)  # type: ignore[arg-type]  # a fixture's keywords
    assert frame.rc == 0, frame.stderr
    assert package.changes(snapshot_of(shell, [package], **tools)) == ()
    log = (tmp_path / "state" / "log").read_text(encoding="ascii")
    assert log.startswith("dpkg --force-confdef --force-confold --configure -a\n")
    assert log.count(" update") == (0 if package.absent else 1)


@pytest.mark.parametrize(
    ("package", "relation", "said"),
    [
        (
            Package("x/ssh", ("libcurl4",), absent=True),
            ("with-libcurl4", "curl cmake"),
            "would also remove curl, cmake;",
        ),
        (Package("x/ssh", ("chrony",)), ("not-with-chrony", "curl"), "Packages need to be removed"),
    ],
    ids=["dependents", "conflict"],
)
def test_no_package_is_removed_that_the_plan_does_not_name(
    shell: str,
    tools: dict[str, object],
    tmp_path: Path,
    package: Package,
    relation: tuple[str, str],
    said: str,
) -> None:
    state = tmp_path / "state"
    for name in ("lists", "pkg-libcurl4", "pkg-curl", "pkg-cmake"):
        (state / name).write_text("1.0", encoding="ascii")
    (state / relation[0]).write_text(relation[1], encoding="ascii")
    fix = package.fix(snapshot_of(shell, [package], **tools))
    assert isinstance(fix, Fix)
    frame = run(shell, fix.script, **tools)  # type: ignore[arg-type]  # a fixture's keywords
    assert frame.rc != 0
    assert said in frame.stderr.decode()
    assert sorted(path.name for path in state.glob("pkg-*")) == ["pkg-cmake", "pkg-curl", "pkg-libcurl4"]


def test_lists_are_not_fetched_where_they_are_fresh(
    shell: str, tools: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "state" / "lists").touch()
    package = Package("x/ssh", ("curl",))
    fix = package.fix(snapshot_of(shell, [package], **tools))
    assert isinstance(fix, Fix)
    assert run(shell, fix.script, **tools).rc == 0  # type: ignore[arg-type]  # a fixture's keywords
    assert " update" not in (tmp_path / "state" / "log").read_text(encoding="ascii")


@pytest.mark.parametrize(
    "before",
    ["enabled active", "disabled inactive", "masked inactive", "enabled activating auto-restart"],
)
@pytest.mark.parametrize(("running", "enabled"), [(True, True), (False, False)])
def test_services_converge_with_stand_ins(
    shell: str, tools: dict[str, object], tmp_path: Path, before: str, running: bool, enabled: bool
) -> None:
    (tmp_path / "state" / "unit-cron.service").write_text(before, encoding="ascii")
    service = Service("x/ssh", "cron", running, enabled)
    snapshot = snapshot_of(shell, [service], **tools)
    if service.changes(snapshot):
        fix = service.fix(snapshot)
        assert isinstance(fix, Fix)
        assert run(shell, fix.script, **tools).rc == 0  # type: ignore[arg-type]  # a fixture's keywords
    assert service.changes(snapshot_of(shell, [service], **tools)) == ()


@pytest.mark.parametrize("running", [True, False])
def test_a_service_waiting_for_its_next_start_is_neither_up_nor_down(
    shell: str, tools: dict[str, object], tmp_path: Path, running: bool
) -> None:
    unit = tmp_path / "state" / "unit-cron.service"
    unit.write_text("enabled activating auto-restart", encoding="ascii")
    service = Service("x/ssh", "cron", running)
    assert [change.old for change in service.changes(snapshot_of(shell, [service], **tools))] == [
        "activating (auto-restart)"
    ]


def test_units_are_matched_by_position(shell: str, tools: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "state" / "unit-b.service").write_text("enabled active", encoding="ascii")
    queries = [UnitState("a.service"), UnitState("b.service"), UnitState("c.service")]
    snapshot = answers(shell, queries, **tools)
    assert [snapshot[query].load for query in queries] == ["not-found", "loaded", "not-found"]


def test_bridges_are_those_of_linux_and_open_vswitch_for_vms(
    shell: str, tools: dict[str, Any], tmp_path: Path
) -> None:
    net = tmp_path / "net"
    for name in ("vmbr1", "docker0", "fwbr101i0", "br-0123456789ab", "br-lan"):
        (net / name / "bridge").mkdir(parents=True)
    for name in ("vmbr0", "eno1"):  # Open vSwitch's have no folder `bridge`
        (net / name).mkdir()
    ovs = tools["path"] / "ovs-vsctl"
    ovs.write_text('#!/bin/sh\n[ "$2" = list-br ] && echo vmbr0\n')
    ovs.chmod(0o755)
    for query, expected in (
        (Bridges(), {"vmbr0", "vmbr1", "br-lan"}),
        (NetworkLinks(), {each.name for each in net.iterdir()}),
    ):
        kind = HOST_KINDS[query.kind]
        frame = run(shell, kind.script([query]).replace("/sys/class/net", str(net)), **tools)
        answer = kind.parse(frame, [query])[query]
        assert isinstance(answer, tuple)
        assert set(answer) == expected


def test_a_card_that_is_not_there_has_no_candidates(shell: str, tools: dict[str, object]) -> None:
    snapshot = answers(shell, [ModuleCandidates("ffff:1f:1f")], **tools)
    assert isinstance(snapshot[ModuleCandidates("ffff:1f:1f")], Unknown)


def test_marked_files_are_found_below_every_storage(shell: str, tmp_path: Path) -> None:
    mark = "# ours node="
    storages = tmp_path / "storage.cfg"
    storages.write_text(
        f"dir: a\n\tpath {tmp_path}/a b/\n\tcontent-dirs iso=/i,snippets=/own/place,import=/x\n\n"
        f"zfspool: z\n\tpool rpool\n\nnfs: n\n\tserver path\n\tpath {tmp_path}/n"
    )
    for name in ("local/snippets/1", "a b/own/place/2", "n/snippets/3", "n/other/4"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"secret\n{mark}vm vmid={name[-1]}\n")
    query = MarkedFiles(f"{tmp_path}/local/snippets", mark, str(storages))
    alone = MarkedFiles(f"{tmp_path}/n/other", mark)
    snapshot = answers(shell, [query, alone])
    assert snapshot[query] == (
        (f"{tmp_path}/a b/own/place/2", "vm vmid=2"),
        (f"{tmp_path}/local/snippets/1", "vm vmid=1"),
        (f"{tmp_path}/n/snippets/3", "vm vmid=3"),
    )
    assert snapshot[alone] == ((f"{tmp_path}/n/other/4", "vm vmid=4"),)
    storages.unlink()
    assert isinstance(answers(shell, [query])[query], Unknown)


def test_devices_of_vms_are_read_up_to_the_first_section_of_their_file(shell: str, tmp_path: Path) -> None:
    files = {
        "pve1/qemu-server/100.conf": "memory: 512\nnet0: virtio=A\n\n[PENDING]\nnet1: virtio=B\n",
        "pve1/qemu-server/101.conf": "#[note]\nhostpci0: 0000:02:00\n\n[old]\nhostpci1: 0000:03:00\n",
        "pve2/qemu-server/102.conf": "net0: virtio=C\n",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    query = Shell(VM_DEVICES.command.replace("/etc/pve/nodes", str(tmp_path)))
    snapshot = Snapshot("pve/ssh", answers={VM_DEVICES: answers(shell, [query])[query]})
    assert HypervisorFacts(snapshot).vm_devices == (
        VmDevice("pve1", 100, "net0", "virtio=A"),
        VmDevice("pve1", 100, "net1", "virtio=B", pending=True),
        VmDevice("pve1", 101, "hostpci0", "0000:02:00"),
        VmDevice("pve2", 102, "net0", "virtio=C"),
    )


def test_what_a_reboot_costs_is_read_as_the_model_answers_it(shell: str, tmp_path: Path) -> None:
    link = "[Match]\nMACAddress=AA:BB:CC:00:00:01\n[Link]\nName=nic0\n"
    files = {
        "/etc/pve/.members": '{"cluster": {"nodes": 2, "quorate": 1}, "nodelist": {"a": {"online": 1}}}',
        "/etc/pve/corosync.conf": "quorum {\n  device {\n  }\n}\nnode {\n    quorum_votes: 1\n}\n",
        "/etc/pve/ha/manager_status": '{"service_status": {"vm:101": {"node": "a", "state": "started"}}}',
        "/etc/network/interfaces": "iface vmbr0 inet static\n\tbridge-ports eno1\n  wpa-psk secret\n",
        "/etc/network/interfaces.d/more": "iface vmbr1 inet manual\n  bridge_ports none\n"
        "iface bond0 inet manual\n  ovs_bonds eno3\niface eno2 inet manual\n  bond-master bond1\n",
        "/usr/local/lib/systemd/network/50-pve.link": link,
        "/sys/class/net/eno1/address": "aa:bb:cc:00:00:01\n",
        "/sys/class/net/eno1/device": "",
        "/sys/class/net/eno1/ifindex": "2\n",
        "/run/udev/data/n2": "E:ID_NET_NAME_PATH=enp1s0\nE:ID_NET_LABEL=x y\nE:ID_PATH=pci-0000:01:00.0\n",
        "/proc/sys/kernel/osrelease": "6.14.8-2-pve\n",
        "/proc/cmdline": "root=ZFS=rpool net.naming-scheme=v252 quiet\n",
        "/boot/vmlinuz-6.14.8-2-pve": "",
        "/boot/vmlinuz-6.17.2-1-pve": "",
        "/sys/class/net/eno2/address": "aa:bb:cc:00:00:01\n",
        "/sys/class/net/eno2/bonding_slave/perm_hwaddr": "aa:bb:cc:00:00:03\n",
        "/sys/class/net/eno2/device": "",
        "/sys/class/net/vmbr0/address": "aa:bb:cc:00:00:02\n",
    }
    command = REBOOT_FACTS.command
    for folder in ("/etc/", "/run/", "/usr/local/", "/sys/", "/boot/", "/proc/sys/"):
        command = command.replace(f" {folder}", f" {tmp_path}{folder}")
    command = command.replace("u=/run/", f"u={tmp_path}/run/").replace("</proc/", f"<{tmp_path}/proc/")
    for name, text in files.items():
        file = tmp_path / name[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "run/qemu-server").mkdir(parents=True)
    (tmp_path / "run/qemu-server/101.pid").write_text(f"{os.getpid()}\n")
    (tmp_path / "run/qemu-server/102.pid").write_text("4194304\n")
    (tmp_path / "sys/fs/cgroup/lxc/201").mkdir(parents=True)
    query = Shell(command)
    answer = answers(shell, [query])[query]
    assert isinstance(answer, ShellResult)
    real = answer.stdout.decode().replace(str(tmp_path), "")
    model = HostState(files={name: ModelFile(text.encode()) for name, text in files.items()})
    expected = reboot_facts(reboot_text(model)[1])
    assert expected is not None
    assert expected.nics == {"eno1": "aa:bb:cc:00:00:01", "eno2": "aa:bb:cc:00:00:03"}
    assert reboot_facts(real) == replace(expected, guests=("VM 101", "container 201"))
    assert expected.lost_ports == ("eno1 of vmbr0 is nic0 after the next boot",)
    assert (expected.lost_names, expected.next_kernel) == ({"enp1s0": "eno1"}, "6.17.2-1-pve")
    assert (expected.votes, expected.ha, "secret" in real) == (3, {"vm:101": "a"}, False)


def test_a_package_in_no_list_fails_with_the_message_of_apt(
    shell: str, tools: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "bin" / "apt-get").write_text(
        '#!/bin/sh\ncase "$*" in *update*) exit 0;; esac\n'
        "echo 'E: Unable to locate package nope' >&2; exit 100\n",
        encoding="ascii",
    )
    package = Package("x/ssh", ("nope",))
    fix = package.fix(snapshot_of(shell, [package], **tools))
    assert isinstance(fix, Fix)
    frame = run(shell, fix.script, **tools)  # type: ignore[arg-type]  # a fixture's keywords
    assert frame.rc == 100
    assert b"Unable to locate package nope" in frame.stderr


def test_without_dpkg_packages_are_unknown(shell: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    from provision.hosts.query_kinds import HOST_KINDS  # noqa: PLC0415 - only here

    fragment = HOST_KINDS["package"].script([PackageState("a")])
    frame = run(shell, f"PATH={tmp_path}/bin\n{fragment}")
    answer = HOST_KINDS["package"].parse(frame, [PackageState("a")])[PackageState("a")]
    assert isinstance(answer, Unknown)
    assert "dpkg-query" in answer.reason
