from __future__ import annotations

import threading
from pathlib import Path

import pytest

from provision.lab.api.access import Auth
from provision.lab.api.errors import TaskError
from provision.lab.api.tasks import UPID, TaskLog, Tasks
from tests.model.lab_api.conftest import Site
from tests.unit.lab_api.client import token_client

ROOT = Auth("root@pam")


def nothing(_log: TaskLog) -> None:
    pass


def test_a_upid_says_who_does_what(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path, "pve")
    upid = tasks.start(Auth("a@pve", "t1"), "qmstart", "100", nothing)
    tasks.wait(upid)
    match = UPID.fullmatch(upid)
    assert match is not None
    assert (match["node"], match["type"], match["id"], match["user"]) == ("pve", "qmstart", "100", "a@pve!t1")
    task = tasks.get(upid)
    assert task is not None
    assert (task.fields()["user"], task.fields()["tokenid"]) == ("a@pve", "t1")


def test_a_task_ends_ok_with_warnings_or_with_its_error(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path, "pve")

    def warns(log: TaskLog) -> None:
        log.add_warning("careful")

    def fails(_log: TaskLog) -> None:
        raise TaskError("no\nway")

    def breaks(_log: TaskLog) -> None:
        raise KeyError("x")

    ends = []
    for work in (nothing, warns, fails, breaks):
        upid = tasks.start(ROOT, "x", "", work)
        tasks.wait(upid)
        task = tasks.get(upid)
        assert task is not None
        ends.append((task.status, tasks.log(task)[-1]))
    assert ends == [
        ("OK", "TASK OK"),
        ("WARNINGS: 1", "TASK WARNINGS: 1"),
        ("no way", "TASK ERROR: no way"),
        ("KeyError: 'x'", "TASK ERROR: KeyError: 'x'"),
    ]


def test_a_task_that_was_cut_off_is_stopped_with_an_unexpected_status(site: Site) -> None:
    gate = site.guests.import_gate = threading.Event()
    drive = "local-disks:0,import-from=local:import/debian.qcow2"
    upid = site.token("POST", "/nodes/pve/qemu", vmid="100", scsi0=drive).data
    path = f"/nodes/pve/tasks/{upid}/status"
    assert site.token("GET", path).data["status"] == "running"
    fresh = site.restarted()
    found = fresh.token("GET", path).data
    assert (found["status"], found["exitstatus"]) == ("stopped", "unexpected status")
    assert fresh.token("GET", "/nodes/pve/qemu/100/config").data["lock"] == "create"
    gate.set()
    site.lab.tasks.wait(upid, 10)


def test_everything_survives_a_restart(site: Site) -> None:
    form = {"machine": "q35", "hostpci0": "0000:01:00,pcie=1", "description": "a\nb"}
    site.root.task("POST", "/nodes/pve/qemu", vmid="100", **form)
    site.root.task("POST", "/nodes/pve/qemu", vmid="101", **form)
    entry = "node=pve,path=0000:01:00,id=1234:1111,iommugroup=7"
    site.token("POST", "/cluster/mapping/pci", id="gpu0", map=entry)
    site.token.task("POST", "/nodes/pve/qemu/100/status/start")
    paths = (
        "/nodes/pve/qemu/100/config",
        "/cluster/mapping/pci",
        "/nodes/pve/tasks",
        "/access/permissions",
        "/nodes/pve/storage/local/content",
    )
    before = [site.token("GET", path).data for path in paths]
    fresh = site.restarted()
    assert [fresh.token("GET", path).data for path in paths] == before
    assert fresh.root("GET", "/version").status == 200
    status = fresh.token.task("POST", "/nodes/pve/qemu/101/status/start")
    assert status == "PCI device '0000:01:00.0' already in use by VMID '100'"


def test_tasks_are_listed_newest_first_and_filtered(site: Site) -> None:
    for vmid in ("100", "101"):
        site.token.task("POST", "/nodes/pve/qemu", vmid=vmid)
    site.token.task("POST", "/nodes/pve/qemu/101/status/start")
    found = site.token("GET", "/nodes/pve/tasks").data
    assert [(each["type"], each["id"]) for each in found] == [
        ("qmstart", "101"),
        ("qmcreate", "101"),
        ("qmcreate", "100"),
    ]
    assert [each["id"] for each in site.token("GET", "/nodes/pve/tasks", {"vmid": "100"}).data] == ["100"]
    assert len(site.token("GET", "/nodes/pve/tasks", {"limit": "1"}).data) == 1


def test_another_users_task_needs_audit_on_the_node(site: Site) -> None:
    upid = site.root("POST", "/nodes/pve/qemu", vmid="100").data
    site.lab.tasks.wait(upid)
    secret = site.root("POST", "/access/users/provision@pve/token/bare").data["value"]
    bare = token_client(site.app, "provision@pve!bare", secret)
    assert bare("GET", f"/nodes/pve/tasks/{upid}/status").status == 403
    assert bare("GET", "/nodes/pve/tasks").data == []


@pytest.mark.parametrize(
    "upid",
    ["UPID:pve:000000FF:0000FFFF:6B0C0000:qmcreate:1:root@pam:", "UPID:x", "nothing"],
)
def test_an_unknown_task_is_400(site: Site, upid: str) -> None:
    answer = site.token("GET", f"/nodes/pve/tasks/{upid}/status")
    assert answer.status == 400
    assert "upid" in answer.errors


def test_a_log_can_be_read_in_pieces(site: Site) -> None:
    upid = site.token("POST", "/nodes/pve/qemu", vmid="100", scsi0="local-disks:1").data
    site.lab.tasks.wait(upid)
    answer = site.token("GET", f"/nodes/pve/tasks/{upid}/log", {"start": "1", "limit": "1"})
    assert answer.data == [{"n": 2, "t": "TASK OK"}]
    assert answer.body["total"] == 2
