"""The case table of files in real shells: the same ends as on ModelHost. Nothing stands in for anything."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.remedy import Fix, Impossible
from provision.hosts import host_effects
from provision.hosts.operations.basic import temporary_prefix
from provision.hosts.operations.edit import (
    AddHostNames,
    CommentOutLine,
    CommentOutSwap,
    ReplaceUnchanged,
    with_host_names,
    without_line,
    without_swap,
)
from provision.hosts.queries.file import FileState, FileText, LinkTarget, digest_of
from provision.hosts.queries.secret import SecretText
from provision.hosts.resources.file import File
from provision.hosts.resources.hosts_file import SetHostsEntry, addresses_of, with_entry
from provision.hosts.resources.kernel import KernelArguments
from provision.testing.host_cases import FILE_CASES, FSTAB_CASES, GRUB_CASES, HOSTS_CASES, Case
from provision.testing.model_host import HostState, ModelFile, ModelHost
from provision.values.cancel import Cancel
from tests.model.shells import SHELLS, answers, run, snapshot_of
from tests.unit.hosts.converge import converge

pytestmark = pytest.mark.parametrize("shell", SHELLS)


def _lay(root: Path, case: Case) -> None:
    for name, file in case.before.items():
        path = root / name
        if file.type == "directory":
            path.mkdir()
        elif file.type == "link":
            path.symlink_to(file.target)
            continue
        else:
            path.write_bytes(file.content)
        path.chmod(int(file.mode, 8))


def _real(root: Path) -> dict[str, tuple[str, str, bytes]]:
    entries: dict[str, tuple[str, str, bytes]] = {}
    for path in sorted(root.rglob("*")):
        mode = f"{path.lstat().st_mode & 0o7777:04o}"
        kind = "link" if path.is_symlink() else "directory" if path.is_dir() else "file"
        content = path.read_bytes() if kind == "file" else b""
        entries[str(path.relative_to(root))] = (kind, mode if kind != "link" else "0777", content)
    return entries


def _model(root: Path, case: Case) -> dict[str, tuple[str, str, bytes]]:
    state = HostState(files={f"{root}/{name}": file for name, file in case.before.items()})
    state.files[str(root)] = ModelFile(mode="0755", type="directory")
    host = ModelHost("case/ssh", state)
    if not case.refused:
        converge(host, [case.make(str(root))])
    prefix = f"{root}/"
    return {
        path.removeprefix(prefix): (entry.type, entry.mode, entry.content)
        for path, entry in sorted(state.files.items())
        if path.startswith(prefix)
    }


@pytest.mark.parametrize("case", FILE_CASES, ids=lambda case: case.name)
def test_shell_and_model_end_alike(shell: str, case: Case, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    _lay(root, case)
    start = _real(root)
    resource = case.make(str(root))
    snapshot = snapshot_of(shell, [resource])
    changes = resource.changes(snapshot)
    if case.unchanged:
        assert changes == ()
        return
    assert changes
    fix = resource.fix(snapshot)
    if case.refused:
        assert isinstance(fix, Impossible)
        assert _real(root) == start
        return
    assert isinstance(fix, Fix)
    frame = run(shell, fix.script)
    assert frame.rc == 0, frame.stderr
    assert resource.changes(snapshot_of(shell, [resource])) == ()
    assert _real(root) == _model(root, _fresh(case))
    again = run(shell, fix.script)
    assert again.rc == 0, again.stderr
    assert resource.changes(snapshot_of(shell, [resource])) == ()


def _fresh(case: Case) -> Case:
    """ModelHost changes the files that it is given."""
    copies = {
        name: ModelFile(file.content, file.mode, file.owner, file.group, file.type, file.target)
        for name, file in case.before.items()
    }
    return Case(case.name, case.make, copies, case.unchanged, case.refused)


def test_shell_and_model_answer_alike(shell: str, tmp_path: Path) -> None:
    contents = {"a": b"x\ny", "b": b"\x00\xff:\n\n", "e": b"", "n": b"\n", "d": b".\n:\n.", "q": b"|a|\n"}
    contents |= {"r": b"\r\x0b\x81\x88\\n \t\n \\\n", "l": (b"x" * 999 + b"\n") * 70}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o644)
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "gone").symlink_to("nothing")
    (tmp_path / "folder").mkdir(mode=0o755)
    names = [*contents, "link", "folder", "missing", "missing/below", "a/below"]
    queries: list[object] = [LinkTarget(f"{tmp_path}/link"), LinkTarget(f"{tmp_path}/a")]
    for name in names:
        path = f"{tmp_path}/{name}"
        queries += [
            FileState(path),
            FileState(path, want="0" * 64),
            FileState(path, salt="5a"),
            FileText(path),
            SecretText(path),
        ]
        queries.append(FileState(path, want=hashlib.sha256(contents.get(name, b"")).hexdigest()))
    state = HostState(files={f"{tmp_path}/{name}": ModelFile(content) for name, content in contents.items()})
    state.files[f"{tmp_path}/link"] = ModelFile(mode="0777", type="link", target="a")
    state.files[f"{tmp_path}/gone"] = ModelFile(mode="0777", type="link", target="nothing")
    state.files[f"{tmp_path}/folder"] = ModelFile(mode="0755", type="directory")
    model = ModelHost("case/ssh", state).answer(frozenset(queries), Cancel())
    real = answers(shell, queries)
    skipped = {"size", "uid", "gid", "owner", "group"} if os.getuid() else {"size"}
    for query in queries:
        one, other = real[query], model[query]
        if isinstance(one, Unknown) or isinstance(other, Unknown):
            assert type(one) is type(other), query
            continue
        for field in getattr(one, "__dataclass_fields__", ()):
            if field not in skipped:
                assert getattr(one, field) == getattr(other, field), (query, field)
        if not hasattr(one, "__dataclass_fields__"):
            assert one == other, query


def test_leftovers_of_a_killed_fix_are_removed_by_the_next(shell: str, tmp_path: Path) -> None:
    path = f"{tmp_path}/a"
    left = tmp_path / f"{temporary_prefix(path)}AbCdEf"
    left.write_bytes(b"half")
    file = File("case/ssh", path, b"whole\n")
    fix = file.fix(snapshot_of(shell, [file]))
    assert isinstance(fix, Fix)
    assert run(shell, fix.script).rc == 0
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_pipe_is_not_read(shell: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    snapshot = answers(shell, [FileState(f"{tmp_path}/pipe", want="0" * 64), FileText(f"{tmp_path}/pipe")])
    assert snapshot[FileState(f"{tmp_path}/pipe", want="0" * 64)].type == "other"
    assert isinstance(snapshot[FileText(f"{tmp_path}/pipe")], Unknown)


def test_content_over_the_budget_is_not_sent(shell: str, tmp_path: Path) -> None:
    queries = []
    for index in range(4):
        (tmp_path / str(index)).write_bytes(b"%d\n" % index * 10_000)
        queries.append(FileState(f"{tmp_path}/{index}", want="0" * 64))
    snapshot = answers(shell, queries)
    sent = [len(snapshot[query].content or b"") for query in queries]
    assert sent == [20_000, 20_000, 0, 0]
    assert all(snapshot[query].digest for query in queries)


def test_a_blob_is_found_by_its_hash(shell: str, tmp_path: Path) -> None:
    data = b"large\n" * 20_000
    file = File("case/ssh", f"{tmp_path}/large", data)
    fix = file.fix(snapshot_of(shell, [file]))
    assert isinstance(fix, Fix)
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    (blobs / fix.blobs[0].sha256).write_bytes(fix.blobs[0].data)
    assert run(shell, fix.script, env={"PROVISION_BLOBS": str(blobs)}).rc == 0
    assert (tmp_path / "large").read_bytes() == data
    assert file.changes(snapshot_of(shell, [file])) == ()


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv(1)")
def test_a_folder_that_may_not_be_searched_is_not_absent(shell: str, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "a").write_bytes(b"x")
    queries = [FileState(f"{closed}/a", want="0" * 64)]
    from provision.hosts.query_kinds import HOST_KINDS  # noqa: PLC0415 - only here

    fragment = HOST_KINDS["file"].script(queries)
    inner = " ".join(SHELLS[shell])
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith(str(tmp_path.parents[1])):
            folder.chmod(0o755)
    script = tmp_path / "fragment"
    script.write_text(f"set -eu\n{fragment}\n", encoding="ascii")
    script.chmod(0o644)
    frame = run(shell, f"exec setpriv --reuid 65534 --clear-groups {inner} {script}")
    answer = HOST_KINDS["file"].parse(frame, queries)[queries[0]]
    assert isinstance(answer, Unknown), frame


@pytest.mark.parametrize(("grub", "desired", "expected"), GRUB_CASES)
def test_grub_sources_the_drop_in(
    shell: str, grub: str, desired: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    reboot = Effect(host_effects.REBOOT_HYPERVISOR)
    content = KernelArguments("case/ssh", desired, "grub", reboot).file.content
    assert content is not None
    (tmp_path / "drop-in.cfg").write_bytes(content)
    frame = run(
        shell,
        f"GRUB_CMDLINE_LINUX='console=ttyS0'; GRUB_CMDLINE_LINUX_DEFAULT=\"{grub}\"\n"
        f'. "{tmp_path}/drop-in.cfg"\nprintf %s "$GRUB_CMDLINE_LINUX_DEFAULT"',
    )
    assert frame.stdout.decode().strip() == expected


@pytest.mark.parametrize(("before", "after"), FSTAB_CASES)
def test_swap_lines_become_comments_and_every_other_byte_stays(
    shell: str, before: bytes, after: bytes, tmp_path: Path
) -> None:
    fstab = tmp_path / "fstab"
    fstab.write_bytes(before)
    fstab.chmod(0o640)
    for _ in range(2):
        frame = run(shell, CommentOutSwap(str(fstab)).shell())
        assert frame.rc == 0, frame.stderr
        assert fstab.read_bytes() == after == without_swap(before)
    assert fstab.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["fstab"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            b"vfio\n  vfio_virqfd\t\nvfio_virqfd # no\n",
            b"vfio\n# off by provision:   vfio_virqfd\t\nvfio_virqfd # no\n",
        ),
        (b"vfio_virqfd", b"# off by provision: vfio_virqfd\n"),
        (b"# vfio_virqfd\n\xff\n", b"# vfio_virqfd\n\xff\n"),
        (b"vfio_virqfd\nvfio_virqfd\n", b"# off by provision: vfio_virqfd\n" * 2),
    ],
)
def test_a_line_becomes_a_comment_and_every_other_byte_stays(
    shell: str, before: bytes, after: bytes, tmp_path: Path
) -> None:
    modules = tmp_path / "modules"
    modules.write_bytes(before)
    modules.chmod(0o640)
    for _ in range(2):
        frame = run(shell, CommentOutLine(str(modules), "vfio_virqfd").shell())
        assert frame.rc == 0, frame.stderr
        assert modules.read_bytes() == after == without_line(before, "vfio_virqfd")
    assert modules.stat().st_mode & 0o777 == 0o640


def test_a_file_changed_after_it_was_read_is_not_replaced(shell: str, tmp_path: Path) -> None:
    line, copy = tmp_path / "it's a cmdline", tmp_path / "it's a copy"
    replace = ReplaceUnchanged(str(line), b"root=a new\n", digest_of(b"root=a\n"), str(copy))
    line.write_bytes(b"root=b\n")
    frame = run(shell, replace.shell())
    assert (frame.rc, line.read_bytes(), copy.exists()) == (1, b"root=b\n", False)
    assert b"changed after it was read" in frame.stderr
    line.unlink()
    assert run(shell, replace.shell()).rc == 1
    assert not line.exists()
    line.write_bytes(b"root=a\n")
    for _ in range(2):  # a killed run is taken up again
        frame = run(shell, replace.shell())
        assert frame.rc == 0, frame.stderr
        assert (line.read_bytes(), copy.read_bytes()) == (b"root=a new\n", b"root=a\n")


@pytest.mark.parametrize(("before", "line"), HOSTS_CASES)
def test_names_are_added_to_the_line_of_an_address(
    shell: str, before: bytes, line: str, tmp_path: Path
) -> None:
    hosts, names = tmp_path / "hosts", ("vm-1.lan", "vm-1")
    hosts.write_bytes(before)
    for _ in range(2):  # a killed run is taken up again
        frame = run(shell, AddHostNames(str(hosts), "127.0.1.1", names).shell())
        assert frame.rc == 0, frame.stderr
        assert hosts.read_bytes() == with_host_names(before, "127.0.1.1", names)
        assert line in hosts.read_bytes().decode().split("\n")
    after = hosts.read_bytes().decode().split("\n")
    for row in before.decode().split("\n"):
        words, _, comment = row.partition("#")
        assert any(set(words.split()) <= set(new.split("#")[0].split()) and comment in new for new in after)


ENTRY_CASES = (
    (b"", "10.0.0.9 registry.lan"),
    (b"10.0.0.9\tregistry.lan pihole # c\n", "10.0.0.9\tregistry.lan pihole # c"),
    (b"10.0.0.9 registry.lan\r\n10.0.0.8 x\r\n", "10.0.0.8 x\r"),
    (b"10.0.0.9 REGISTRY.LAN\n", "10.0.0.9 REGISTRY.LAN"),
    (b"10.0.0.7 Registry.Lan\n", "10.0.0.9 registry.lan"),
    (b"10.0.0.7 registry.lan other # note\n", "10.0.0.7 other # note"),
    (b"10.0.0.7 other # registry.lan\n", "10.0.0.7 other # registry.lan"),
    (b"10.0.0.7 registry.lan # why\n", "# why"),
    (b"10.0.0.9 a registry.lan#c\n", "10.0.0.9 a registry.lan#c"),
    (b"10.0.0.7 registry.lan.example my-registry.lan\n", "10.0.0.7 registry.lan.example my-registry.lan"),
    (b"#10.0.0.7 registry.lan\n\n  10.0.0.7\tregistry.lan x", "10.0.0.7 x"),
    (b"10.0.0.7\n\t\n\xff\xfe 1\n", "10.0.0.7"),
)


@pytest.mark.parametrize(("before", "line"), ENTRY_CASES)
def test_a_name_gets_one_address_and_other_words_stay(
    shell: str, before: bytes, line: str, tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_bytes(before)
    for _ in range(2):
        frame = run(shell, SetHostsEntry(str(hosts), "registry.lan", "10.0.0.9").shell())
        assert frame.rc == 0, frame.stderr
        assert hosts.read_bytes() == with_entry(before, "registry.lan", "10.0.0.9")
    assert line in hosts.read_bytes().decode("latin-1").split("\n")
    assert addresses_of(hosts.read_bytes(), "registry.lan") == ["10.0.0.9"]
