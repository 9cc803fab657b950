"""What a path held before the first change is kept on its host, and put back when all must go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from provision.contracts.remedy import Fix
from provision.contracts.resource import Resource
from provision.hosts.operations import basic as ops
from provision.hosts.operations.placement import saved_name
from provision.hosts.queries.saved import ABSENT, FILE, NOTHING, RESTORED, OwnFiles, SavedFile
from provision.hosts.resources.as_before import OwnFilesGone
from provision.hosts.resources.file import File, FileLine
from provision.testing.model_host import HostState, ModelFile, ModelHost
from provision.values.cancel import Cancel
from tests.model.shells import SHELLS, answers, run, snapshot_of
from tests.unit.hosts.converge import converge

pytestmark = pytest.mark.parametrize("shell", SHELLS)


class Machine:
    """A folder with the state of provision in it, in a real shell."""

    def __init__(self, shell: str, root: Path) -> None:
        self.shell, self.root = shell, root
        self.environment = {"PROVISION_BLOBS": f"{root}/state/blobs"}

    def apply(self, resource: Resource) -> None:
        fix = resource.fix(snapshot_of(self.shell, [resource], env=self.environment))
        assert isinstance(fix, Fix)
        frame = run(self.shell, fix.script, env=self.environment)
        assert frame.rc == 0, frame.stderr
        assert resource.changes(snapshot_of(self.shell, [resource], env=self.environment)) == ()

    def saved(self, path: Path) -> object:
        query = SavedFile(str(path))
        return answers(self.shell, [query], env=self.environment)[query]

    def copies(self) -> dict[str, tuple[bytes, int]]:
        folder = self.root / "state" / "saved"
        return {
            entry.name: (entry.read_bytes(), entry.stat().st_mode & 0o777)
            for entry in (folder.iterdir() if folder.is_dir() else ())
        }


@pytest.fixture
def machine(shell: str, tmp_path: Path) -> Machine:
    return Machine(shell, tmp_path)


def test_the_first_content_is_kept_once_and_put_back(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "it's a file"
    path.write_bytes(b"before\n\xff")
    path.chmod(0o640)
    assert machine.saved(path) == NOTHING
    for content in (b"ours\n", b"ours, again\n"):
        machine.apply(File("case/ssh", str(path), content, "0600"))
    machine.apply(FileLine("case/ssh", str(path), "a line"))
    name = saved_name(str(path))
    uid, gid = os.getuid(), os.getgid()
    assert machine.copies() == {
        name: (b"before\n\xff", 0o600),
        f"{name}.entry": (f"{path}\n81a0 640 {uid} {gid}\n".encode(), 0o600),
    }
    assert machine.saved(path) == FILE
    gone = File("case/ssh", str(path), absent=True, restores=True)
    machine.apply(gone)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"before\n\xff", 0o640)
    assert machine.saved(path) == RESTORED
    assert list(machine.copies()) == [f"{name}.entry"]
    # who begins again saves again
    path.write_bytes(b"another\n")
    machine.apply(File("case/ssh", str(path), b"ours\n"))
    assert machine.copies()[name] == (b"another\n", 0o600)


def test_a_file_of_ours_leaves_no_copy(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    machine.apply(File("case/ssh", str(path), b"private key\n", "0600", secret=True))
    assert machine.saved(path) == ABSENT
    machine.apply(File("case/ssh", str(path), b"another key\n", "0600", secret=True))
    machine.apply(File("case/ssh", str(path), absent=True, restores=True))
    assert not path.exists()
    assert machine.copies() == {}


def test_a_removed_file_is_kept_and_put_back(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before\n")
    machine.apply(File("case/ssh", str(path), absent=True))
    assert (path.exists(), machine.saved(path)) == (False, FILE)
    machine.apply(File("case/ssh", str(path), absent=True, restores=True))
    assert path.read_bytes() == b"before\n"


def test_keys_that_must_be_dead_are_not_kept(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"private key\n")
    script = ops.fix(
        [ops.WriteFile(str(path), b"new\n", save=False), ops.RemoveFile(str(path), save=False)]
    ).script
    assert run(machine.shell, script, env=machine.environment).rc == 0
    assert machine.copies() == {}


def test_a_killed_save_is_done_again(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before\n")
    (tmp_path / "state" / "saved").mkdir(parents=True)
    name = saved_name(str(path))
    (tmp_path / "state" / "saved" / name).write_bytes(b"half")
    (tmp_path / "state" / "saved" / f"{name}.part").write_bytes(b"ha")
    machine.apply(File("case/ssh", str(path), b"ours\n"))
    assert machine.copies()[name][0] == b"before\n"
    assert f"{name}.part" not in machine.copies()


def test_files_of_our_name_that_we_made_are_listed_and_removed(machine: Machine, tmp_path: Path) -> None:
    own, other, replaced = (tmp_path / name for name in ("90-provision-a b.conf", "app", "provision-old"))
    replaced.write_bytes(b"theirs\n")
    (tmp_path / "provision-theirs").write_bytes(b"theirs\n")
    for path in (own, other, replaced):
        machine.apply(File("case/ssh", str(path), b"ours\n"))
    answer = answers(machine.shell, [OwnFiles()], env=machine.environment)[OwnFiles()]
    assert answer == (str(own),), "not what was there before"
    machine.apply(OwnFilesGone("case/ssh"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "app",
        "provision-old",
        "provision-theirs",
        "state",
    ]
    assert machine.saved(own) == NOTHING


def test_hostile_names_in_the_folder_of_saved_files_remove_nothing(machine: Machine, tmp_path: Path) -> None:
    own, theirs = tmp_path / "provision-own", tmp_path / "provision-theirs"
    machine.apply(File("case/ssh", str(own), b"ours\n"))
    theirs.write_bytes(b"theirs\n")
    saved = tmp_path / "state" / "saved"
    texts = (
        str(theirs),  # under a name that is not its own
        f"{tmp_path}/state/../provision-theirs",
        "provision-theirs",
        "../provision-theirs",
        f"{theirs}\r",
        f"{theirs}\x1b[2J",
        f"{theirs}/",
        f"//{theirs}",
        "/" + "provision/" * 2000,
        "$(id) `id` provision",
        "provision\x00x",
    )
    (saved / "it's a \x1b[31mname.entry").write_text(f"{theirs}\nabsent\n")
    (saved / "-rf.entry").write_text(f"{theirs}\nabsent\n")
    (saved / "a\nb.entry").write_text(f"{theirs}\nabsent\n")
    for number, text in enumerate(texts):
        (saved / f"{number:032x}.entry").write_text(f"{text}\nabsent\n")
        if "/" not in text.strip("/") or number in (1, 4, 5, 6, 7):
            (saved / f"{saved_name(text)}.entry").write_text(f"{text}\nabsent\n")
    (saved / "binary.entry").write_bytes(bytes(range(256)) * 40)
    (saved / "folder.entry").mkdir()
    (saved / "link.entry").symlink_to(saved / f"{saved_name(str(own))}.entry")
    (saved / "loop.entry").symlink_to("loop.entry")
    os.mkfifo(saved / "pipe.entry")
    for path in (theirs, tmp_path / "other"):
        os.mkfifo(saved / f"{saved_name(str(path))}.entry")
        assert machine.saved(path) == NOTHING, "a pipe is not waited for"
    answer = answers(machine.shell, [OwnFiles()], env=machine.environment)[OwnFiles()]
    assert answer == (str(own),)
    machine.apply(OwnFilesGone("case/ssh"))
    assert (own.exists(), theirs.read_bytes()) == (False, b"theirs\n")


def test_model_and_shell_agree(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before\n")
    path.chmod(0o644)
    model = ModelHost("case/ssh", HostState(files={str(path): ModelFile(b"before\n", "0644")}))
    query = SavedFile(str(path))
    for resource in (
        File("case/ssh", str(path), b"ours\n"),
        File("case/ssh", str(path), absent=True),
        File("case/ssh", str(path), absent=True, restores=True),
        File("case/ssh", str(path), b"ours\n", "0600"),
        File("case/ssh", str(path), absent=True, restores=True),
    ):
        machine.apply(resource)
        converge(model, [resource])
        assert machine.saved(path) == model.answer(frozenset([query]), Cancel())[query]
        present = model.state.files.get(str(path))
        assert (present.content if present else None) == (path.read_bytes() if path.exists() else None)
