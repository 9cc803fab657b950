"""The case table of files on ModelHost; tests/model runs the same table in real shells."""

from __future__ import annotations

import copy

import pytest

from provision.contracts.change import Op
from provision.contracts.remedy import Impossible
from provision.hosts.queries.file import FileState
from provision.hosts.resources.file import File, FileLine, authorized_keys
from provision.testing.host_cases import FILE_CASES, Case
from provision.testing.model_host import HostState, ModelFile, ModelHost
from provision.values.cancel import Cancel
from tests.unit.hosts.converge import converge, differing, snapshot_of

ROOT = "/case"


def host_of(case: Case) -> ModelHost:
    files = {f"{ROOT}/{path}": copy.copy(file) for path, file in case.before.items()}
    files[ROOT] = ModelFile(mode="0755", type="directory")
    return ModelHost("case/ssh", HostState(files=files))


@pytest.mark.parametrize("case", FILE_CASES, ids=lambda case: case.name)
def test_a_file_case_converges_or_is_refused_or_unchanged(case: Case) -> None:
    host, resource = host_of(case), case.make(ROOT)
    before = host.dump()
    if case.unchanged:
        assert differing(host, [resource]) == []
    elif case.refused:
        snapshot = snapshot_of(host, [resource])
        assert resource.changes(snapshot)
        assert isinstance(resource.fix(snapshot), Impossible)
        assert host.dump() == before
    else:
        assert converge(host, [resource])
        assert not converge(host, [resource])


def test_lines_of_one_step_add_up() -> None:
    host = ModelHost("case/ssh", HostState(files={"/etc/hosts": ModelFile(b"127.0.0.1 localhost\n")}))
    converge(host, [FileLine("case/ssh", "/etc/hosts", f"10.0.0.{n} n{n}") for n in range(3)])
    assert host.state.text("/etc/hosts") == "127.0.0.1 localhost\n10.0.0.0 n0\n10.0.0.1 n1\n10.0.0.2 n2\n"


def test_secret_appears_in_no_question_change_or_representation() -> None:
    secret = File("case/ssh", "/etc/token", b"planted-7f3a", "0600", secret=True)
    host = ModelHost("case/ssh", HostState(files={"/etc/token": ModelFile(b"old-9c1d", "0600")}))
    snapshot = snapshot_of(host, [secret])
    changes, fix = secret.changes(snapshot), secret.fix(snapshot)
    for text in (repr(secret), repr(secret.queries()), repr(changes), repr(fix), repr(snapshot)):
        assert "planted-7f3a" not in text
        assert "old-9c1d" not in text
    assert [change.secret for change in changes] == [True]


def test_secret_is_masked_in_the_output_of_its_fix() -> None:
    secret = File("case/ssh", "/etc/token", b"planted-7f3a", secret=True)
    fix = secret.fix(snapshot_of(ModelHost("case/ssh", HostState()), [secret]))
    assert [item.get_secret_value() for item in getattr(fix, "secrets", ())] == ["planted-7f3a"]


def test_large_content_is_sent_as_a_blob() -> None:
    large = File("case/ssh", "/opt/large", b"x" * 70_000)
    fix = large.fix(snapshot_of(ModelHost("case/ssh", HostState()), [large]))
    assert [len(item.data) for item in getattr(fix, "blobs", ())] == [70_000]
    assert len(getattr(fix, "script", "")) < 10_000


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/a//b", "/a/", "/a\nb", "/a\\b", "", "/./a"])
def test_paths_that_are_not_plain_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a plain absolute path"):
        File("case/ssh", path, b"")


def test_changes_name_field_old_and_new() -> None:
    host = ModelHost("case/ssh", HostState(files={"/etc/a": ModelFile(b"old\n", "0600")}))
    file = File("case/ssh", "/etc/a", b"new\n", "0644", owner="adm")
    changes = [
        (change.op, change.path, change.old, change.new) for change in file.changes(snapshot_of(host, [file]))
    ]
    assert changes == [
        (Op.UPDATE, "content", "old\n", "new\n"),
        (Op.UPDATE, "mode", "0600", "0644"),
        (Op.UPDATE, "owner", "root", "adm"),
    ]


def test_an_owner_may_be_a_number() -> None:
    host = ModelHost("case/ssh", HostState(files={"/etc/a": ModelFile(b"", owner="adm", group="adm")}))
    assert differing(host, [File("case/ssh", "/etc/a", b"", owner="4", group="4")]) == []


@pytest.mark.parametrize(("size", "sent"), [(100, True), (70_000, False)])
def test_only_small_content_is_sent_back(size: int, sent: bool) -> None:
    query = FileState("/etc/a", want="0" * 64)
    host = ModelHost("case/ssh", HostState(files={"/etc/a": ModelFile(b"x" * size)}))
    answer = host.answer(frozenset({query}), Cancel())[query]
    assert (answer.content is not None) == sent


def test_authorized_keys_are_a_managed_list() -> None:
    host = ModelHost("case/ssh", HostState(files={"/home/u/.ssh/authorized_keys": ModelFile(b"ssh-rsa X\n")}))
    converge(
        host, authorized_keys("case/ssh", "u", ("ssh-ed25519 A me", "ssh-ed25519 A me", "ssh-ed25519 B"))
    )
    assert host.state.text("/home/u/.ssh/authorized_keys") == "ssh-ed25519 A me\nssh-ed25519 B\n"
    assert host.state.files["/home/u/.ssh/authorized_keys"].mode == "0600"
    assert host.state.files["/home/u/.ssh"].mode == "0700"
