from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from provision.contracts.query import Unknown
from provision.contracts.snapshot import Snapshot
from provision.hosts.facts import HostFacts
from provision.hosts.queries.shell import ShellResult
from provision.proxmox import vm_files
from provision.proxmox.vm_files import NEIGHBOURS, VM_FILES

WEB = """\
#made by hand
#provision%3A inventory=lab node=web host-key=SHA256%3Ax
agent: 1
cores: 2
memory: 2048
name: web
net0: virtio=BC:24:11:00:00:01,bridge=vmbr0
scsi0: local-lvm:vm-101-disk-0,size=8G
scsi1: local-lvm:vm-101-disk-1,size=8G
smbios1: uuid=1

[PENDING]
cores: 4
delete: scsi1,!agent

[before]
cores: 16
name: old
"""


def facts_of(text: str, rc: int = 0) -> HostFacts:
    return HostFacts(Snapshot("pve/ssh", answers={VM_FILES: ShellResult(rc, text.encode(), b"")}))


def asked(folder: Path) -> str:
    """Return what the query prints on a host whose VMs lie in a folder."""
    command = VM_FILES.command.replace("/etc/pve", str(folder))
    return subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    node = subprocess.run(["uname", "-n"], check=True, capture_output=True, text=True).stdout.strip()
    own = tmp_path / "nodes" / node.partition(".")[0] / "qemu-server"
    own.mkdir(parents=True)
    return own


def test_a_vm_is_read_as_it_will_be_after_its_next_start(folder: Path) -> None:
    (folder / "101.conf").write_text(WEB)
    (folder / "20.conf").write_text("name: first\n")
    vms = vm_files.read(facts_of(asked(folder.parents[2])))
    assert not isinstance(vms, Unknown)
    first, web = vms
    assert (first.vmid, dict(first.config)) == (20, {"name": "first"})
    assert (web.value("name"), web.value("cores"), web.value("scsi1"), web.value("agent")) == (
        "web",
        "4",
        "",
        "",
    )
    assert web.marker is not None
    assert (web.marker.inventory, web.marker.node, web.marker.host_key) == ("lab", "web", "SHA256:x")


def test_a_host_without_vms_has_none(folder: Path) -> None:
    assert vm_files.read(facts_of(asked(folder.parents[2]))) == ()


@pytest.mark.parametrize(("text", "rc"), [("", 0), ("== 101.conf\nname: web\n", 0), ("== end\n", 1)])
def test_an_answer_that_is_not_whole_is_unknown(text: str, rc: int) -> None:
    assert isinstance(vm_files.read(facts_of(text, rc)), Unknown)


def test_a_mac_with_one_address_has_it() -> None:
    text = (
        b"192.168.1.53 dev vmbr0 lladdr bc:24:11:00:00:01 REACHABLE\n192.168.1.9 dev vmbr0 FAILED\n"
        b"192.168.1.7 dev vmbr0 lladdr bc:24:11:00:00:02 STALE\n"
        b"192.168.1.8 dev vmbr0 lladdr bc:24:11:00:00:02 STALE\nlladdr\n"
    )
    facts = HostFacts(Snapshot("pve/ssh", answers={NEIGHBOURS: ShellResult(0, text, b"")}))
    assert vm_files.neighbours(facts) == {"BC:24:11:00:00:01": "192.168.1.53"}
