from __future__ import annotations

import stat
from pathlib import Path

import pytest

from provision.lab.api.access import Access, Auth, bootstrap_token
from provision.lab.api.errors import ApiError
from tests.model.lab_api.conftest import Site
from tests.unit.lab_api.client import Client, request, token_client


def add(access: Access, path: str, who: str, role: str, *, propagate: bool = True) -> None:
    kind = "token" if "!" in who else "user"
    access.set_acl(path, kind, who, role, propagate=propagate, delete=False)


@pytest.fixture
def access(tmp_path: Path) -> Access:
    access = Access(tmp_path)
    access.add_user("a@pve", "secret")
    access.add_token("a@pve", "sep", privsep=True)
    access.add_token("a@pve", "same", privsep=False)
    return access


def test_a_deeper_entry_replaces_what_was_inherited(access: Access) -> None:
    add(access, "/", "a@pve", "PVEVMAdmin")
    add(access, "/vms/100", "a@pve", "PVEAuditor")
    assert access.may(Auth("a@pve"), "/vms/101", "VM.Allocate")
    assert not access.may(Auth("a@pve"), "/vms/100", "VM.Allocate")
    assert access.may(Auth("a@pve"), "/vms/100", "VM.Audit")


def test_no_access_takes_everything_away_below(access: Access) -> None:
    add(access, "/", "a@pve", "PVEAdmin")
    add(access, "/vms", "a@pve", "NoAccess")
    assert not access.may(Auth("a@pve"), "/vms/100", "VM.Audit")


def test_an_entry_without_propagation_ends_at_its_path(access: Access) -> None:
    add(access, "/vms", "a@pve", "PVEVMAdmin", propagate=False)
    assert access.permissions(Auth("a@pve"), "/vms")["VM.Audit"] == 0
    assert not access.may(Auth("a@pve"), "/vms/100", "VM.Audit")


def test_a_separated_token_has_only_what_it_and_its_user_both_have(access: Access) -> None:
    token = Auth("a@pve", "sep")
    add(access, "/", "a@pve", "PVEVMUser")
    assert access.permissions(token, "/") == {}
    assert access.permissions(Auth("a@pve", "same"), "/") == access.permissions(Auth("a@pve"), "/")
    add(access, "/", "a@pve!sep", "PVEVMAdmin")
    assert access.permissions(token, "/") == access.permissions(Auth("a@pve"), "/")


def test_a_removed_token_loses_its_entries(access: Access) -> None:
    add(access, "/", "a@pve!sep", "PVEVMAdmin")
    access.delete_token("a@pve", "sep")
    assert access.acl() == []
    access.add_token("a@pve", "sep", privsep=True)
    assert access.permissions(Auth("a@pve", "sep"), "/") == {}


def test_secrets_are_not_stored_and_files_are_private(access: Access, tmp_path: Path) -> None:
    secret = access.add_token("a@pve", "third", privsep=True)
    for name in ("access.json", "authkey", "root-password"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    text = (tmp_path / "access.json").read_text()
    assert secret not in text
    assert '"secret"' not in text


def test_bootstrap_makes_a_token_that_works_and_can_be_repeated(tmp_path: Path) -> None:
    first = bootstrap_token(tmp_path, "provision@pve", "lab")
    second = bootstrap_token(tmp_path, "provision@pve", "lab")
    access = Access(tmp_path)
    header = f"PVEAPIToken=provision@pve!lab={second}"
    assert access.authenticate("GET", None, header, None) == Auth("provision@pve", "lab")
    with pytest.raises(ApiError, match="Authentication failed!"):
        access.authenticate("GET", None, header.replace(second, first), None)
    assert access.may(Auth("provision@pve", "lab"), "/vms/100", "VM.Allocate")
    assert not access.may(Auth("provision@pve", "lab"), "/access", "Permissions.Modify")


def test_a_token_made_beside_a_running_api_works_at_once(site: Site) -> None:
    secret = bootstrap_token(site.folder, "other@pve", "t1")
    assert token_client(site.app, "other@pve!t1", secret)("GET", "/version").status == 200
    site.root("POST", "/access/users", userid="third@pve")
    assert {"other@pve", "third@pve"} < set(Access(site.folder).users())


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "No ticket"),
        ({"cookie": "PVEAuthCookie=PVE:root@pam:00000000::x"}, "Authentication failed!"),
        ({"cookie": "PVEAuthCookie=x"}, "Authentication failed!"),
        ({"authorization": "PVEAPIToken=root@pam!x=y"}, "Authentication failed!"),
    ],
)
def test_without_a_good_login_every_path_is_401_without_a_body(
    site: Site, headers: dict[str, str], reason: str
) -> None:
    for path in ("/version", "/nodes/pve/qemu", "/nothing"):
        answer = request(site.app, "GET", path, headers=headers)
        assert (answer.status, answer.reason, answer.body) == (401, reason, None)


def test_a_ticket_needs_its_csrf_token_for_writes_only(site: Site) -> None:
    cookie_only = Client(site.app, {"cookie": site.root.headers["cookie"]})
    assert cookie_only("GET", "/version").status == 200
    answer = cookie_only("POST", "/nodes/pve/qemu", vmid="100")
    assert (answer.status, answer.reason) == (401, "Permission denied - invalid csrf token")


def test_a_forged_ticket_of_another_user_is_refused(site: Site) -> None:
    forged = site.root.headers["cookie"].replace("root@pam", "provision@pve")
    assert Client(site.app, {"cookie": forged})("GET", "/version").status == 401


def test_a_wrong_password_is_401_with_a_message(site: Site) -> None:
    answer = request(site.app, "POST", "/access/ticket", form={"username": "root@pam", "password": "x"})
    assert (answer.status, answer.reason) == (401, "authentication failure")
    assert answer.body == {"data": None, "message": "authentication failure\n"}


def test_a_user_without_password_cannot_log_in(site: Site) -> None:
    for password in ("", "None", "x"):
        form = {"username": "provision@pve", "password": password}
        assert request(site.app, "POST", "/access/ticket", form=form).status == 401


def test_lists_of_a_token_without_rights_are_empty_and_writes_are_refused(site: Site) -> None:
    site.root.task("POST", "/nodes/pve/qemu", vmid="100")
    secret = site.root("POST", "/access/users/provision@pve/token/bare").data["value"]
    bare = token_client(site.app, "provision@pve!bare", secret)
    for path in ("/nodes/pve/qemu", "/cluster/resources", "/cluster/mapping/pci", "/nodes/pve/storage"):
        assert bare("GET", path).data == []
    assert bare("GET", "/access/permissions").data == {}
    answer = bare("POST", "/nodes/pve/qemu", vmid="101")
    assert (answer.status, answer.reason) == (403, "Permission check failed")
    answer = bare("GET", "/nodes/pve/qemu/100/config")
    assert (answer.status, answer.reason) == (403, "Permission check failed (/vms/100, VM.Audit)")


def test_bootstrap_over_the_api_makes_role_user_token_and_entries(site: Site) -> None:
    root = site.root
    assert root("POST", "/access/roles", roleid="Mine", privs="VM.Audit,VM.Allocate").status == 200
    assert root("POST", "/access/users", userid="me@pve").status == 200
    made = root("POST", "/access/users/me@pve/token/t1", privsep="1").data
    assert made["full-tokenid"] == "me@pve!t1"
    for who in ({"users": "me@pve"}, {"tokens": "me@pve!t1"}):
        assert root("PUT", "/access/acl", path="/vms", roles="Mine", **who).status == 200
    mine = token_client(site.app, "me@pve!t1", made["value"])
    assert mine("GET", "/access/permissions").data == {"/vms": {"VM.Allocate": 1, "VM.Audit": 1}}
    answer = mine("PUT", "/access/acl", path="/", roles="Administrator", users="me@pve")
    assert (answer.status, answer.reason) == (403, "Permission check failed (/, Permissions.Modify)")


def test_a_privilege_that_pve_9_dropped_is_refused(site: Site) -> None:
    answer = site.root("POST", "/access/roles", roleid="X", privs="VM.Monitor")
    assert answer.errors == {"privs": "invalid format - invalid privilege 'VM.Monitor'\n"}
