"""apt and dpkg whose locks somebody else holds, repositories that refuse, names that others provide."""

from __future__ import annotations

import fcntl
import os
import shlex
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from provision.contracts.remedy import Fix
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations.apt_locks import SHELL
from provision.hosts.query_kinds import HOST_KINDS
from provision.hosts.resources.package import Package, PackageState, PackageStatus
from tests.model.shells import SHELLS, run

pytestmark = pytest.mark.parametrize("shell", SHELLS)

LOCKS = ("lib/dpkg/lock-frontend", "lib/dpkg/lock", "lib/apt/lists/lock", "cache/apt/archives/lock")

APT = r"""
echo "apt-get $*" >>"$STATE/log"
case " $* " in
    *' indextargets '*) cat "$STATE/targets" 2>/dev/null || echo MetaKey: main; exit 0 ;;
    *' update '*) cat "$STATE/update" 2>/dev/null; exit "$(cat "$STATE/update-rc" 2>/dev/null || echo 0)" ;;
esac
if [ -e "$STATE/fails" ]; then rm "$STATE/fails"; echo 'E: no' >&2; exit 100; fi
if [ -e "$STATE/never" ]; then echo 'E: Unable to locate package x' >&2; exit 100; fi
"""


@pytest.fixture
def host(tmp_path: Path) -> dict[str, Any]:
    folder, state = tmp_path / "bin", tmp_path / "state"
    folder.mkdir()
    state.mkdir()
    for lock in LOCKS:
        path = tmp_path / "var" / lock
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for name, text in {"apt-get": APT, "dpkg": 'echo "dpkg $*" >>"$STATE/log"\n'}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}", encoding="ascii")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "STATE": str(state)}


def install(shell: str, tmp_path: Path, host: dict[str, Any]) -> Any:
    package = Package("x/ssh", ("prov-tool",))
    fix = package.fix(Snapshot("x/ssh", answers={PackageState("prov-tool"): PackageStatus()}))
    assert isinstance(fix, Fix)
    lines = [f"{name}={value}; export {name}" for name, value in host.items()]
    script = fix.script.replace("/var/", f"{tmp_path}/var/")
    return run(shell, "\n".join((*lines, script)))


def log(host: dict[str, Any]) -> list[str]:
    lines = Path(host["STATE"], "log").read_text().splitlines()
    return [
        " ".join(word for word in line.split() if word in ("dpkg", "apt-get", "update", "install"))
        for line in lines
    ]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextmanager
def held(path: Path, seconds: float, asked: Path | None = None, times: int = 0) -> Iterator[None]:
    """Hold a lock as dpkg does, in another process: for a while, or until it was asked for so many times."""
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        with path.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            os.write(go, b"x")
            end = time.monotonic() + seconds
            while time.monotonic() < end and (asked is None or _size(asked) < times):
                time.sleep(0.02)
            os._exit(0)
    os.read(ready, 1)
    reaper = threading.Thread(target=os.waitpid, args=(child, 0))
    reaper.start()
    try:
        yield
    finally:
        reaper.join()
        os.close(ready)
        os.close(go)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_lock_of_apt_and_dpkg_is_waited_for(
    shell: str, host: dict[str, Any], tmp_path: Path, lock: str
) -> None:
    begun = time.monotonic()
    with held(tmp_path / "var" / lock, 0.7):
        frame = install(shell, tmp_path, host)
    assert frame.rc == 0
    assert time.monotonic() - begun > 0.7
    assert log(host) == ["dpkg", "apt-get install"]


def test_the_holder_is_named_after_a_while(shell: str, host: dict[str, Any], tmp_path: Path) -> None:
    sleep = tmp_path / "bin" / "sleep"
    asked = tmp_path / "asked"
    sleep.write_text(f"#!/bin/sh\nprintf x >>{asked}\nexec /bin/sleep 0.05\n", encoding="ascii")
    sleep.chmod(0o755)
    with held(tmp_path / "var" / LOCKS[0], 300, asked, 12):
        frame = install(shell, tmp_path, host)
    assert frame.rc == 0
    assert b"waiting for process " in frame.stdout
    assert b"(" in frame.stdout.partition(b"waiting for process ")[2].partition(b"\n")[0]


def test_a_lock_taken_meanwhile_is_waited_for(shell: str, host: dict[str, Any], tmp_path: Path) -> None:
    apt = tmp_path / "bin" / "apt-get"
    holder = tmp_path / "holder.py"
    holder.write_text(
        f"import fcntl, time\nfile = open('{tmp_path}/var/{LOCKS[2]}', 'r+')\n"
        f"fcntl.lockf(file, fcntl.LOCK_EX)\nopen('{tmp_path}/locked', 'w').close()\ntime.sleep(0.8)\n"
    )
    take = (
        f"if [ ! -e {tmp_path}/locked ]; then {sys.executable} {holder} >/dev/null 2>&1 &\n"
        f"while [ ! -e {tmp_path}/locked ]; do sleep 0.05; done; echo E: locked >&2; exit 100; fi\n"
    )
    apt.write_text(f"#!/bin/sh\n{take}{APT}", encoding="ascii")
    frame = install(shell, tmp_path, host)
    assert frame.rc == 0
    assert log(host) == ["dpkg", "apt-get install"]


REFUSED = (
    "Hit:1 http://deb.debian.org bookworm\n"
    "E: Failed to fetch https://enterprise.proxmox.com/x 401 Unauthorized\n"
)


def test_lists_that_fail_in_part_do_not_stop_the_installation(
    shell: str, host: dict[str, Any], tmp_path: Path
) -> None:
    state = Path(host["STATE"])
    (state / "fails").touch()
    (state / "update").write_text(REFUSED)
    (state / "update-rc").write_text("100")
    frame = install(shell, tmp_path, host)
    assert frame.rc == 0
    assert b"warning: not all package lists could be fetched" in frame.stdout
    assert log(host) == ["dpkg", "apt-get install", "apt-get update", "apt-get install"]


def test_a_repository_that_refuses_is_named_when_nothing_helps(
    shell: str, host: dict[str, Any], tmp_path: Path
) -> None:
    state = Path(host["STATE"])
    (state / "never").touch()
    (state / "update").write_text(REFUSED)
    (state / "update-rc").write_text("100")
    frame = install(shell, tmp_path, host)
    assert frame.rc == 100
    assert b"enterprise.proxmox.com" in frame.stderr
    assert b"sources.list.d" in frame.stderr.splitlines()[-1]


@pytest.mark.parametrize("targets", ["", "MetaKey: main/binary-amd64/Packages\n"])
def test_a_host_without_a_package_source_is_told_apart(
    shell: str, host: dict[str, Any], tmp_path: Path, targets: str
) -> None:
    state = Path(host["STATE"])
    (state / "never").touch()
    (state / "targets").write_text(targets)
    frame = install(shell, tmp_path, host)
    assert frame.rc == 100
    assert b"Unable to locate package x" in frame.stderr
    assert (b"no package source is configured" in frame.stderr) is not bool(targets)


DPKG = r"""
case "$*" in
    *Provides*) cat <<'EOF'
mawk|ii |awk
libpng-tools|rc |libpng12-dev
exim4|ii |mail-transport-agent, default-mta (= 4.96)
proxmox-headers-6.14.8-2-pve|hi |linux-headers, pve-headers-6.14.8-2-pve
half|iF |half-virtual
EOF
    ;;
    *) shift 3; rc=0
        for n do case $n in
            mawk) echo 'p|mawk|amd64|ii |1.3.4' ;;
            gone) echo 'p|gone|amd64|rc |2.0' ;;
            *) rc=1 ;;
        esac; done
        exit $rc ;;
esac
"""


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("mawk", PackageStatus("1.3.4")),
        ("mawk:amd64", PackageStatus("1.3.4")),
        ("awk", PackageStatus(provider="mawk")),
        ("mail-transport-agent", PackageStatus(provider="exim4")),
        ("default-mta", PackageStatus(provider="exim4")),
        ("pve-headers-6.14.8-2-pve", PackageStatus(held=True, provider="proxmox-headers-6.14.8-2-pve")),
        ("linux-headers", PackageStatus(held=True, provider="proxmox-headers-6.14.8-2-pve")),
        ("libpng12-dev", PackageStatus()),
        ("half-virtual", PackageStatus()),
        ("gone", PackageStatus()),
        ("default-mt", PackageStatus()),
        ("none", PackageStatus()),
    ],
)
def test_a_name_that_an_installed_package_provides_counts(
    shell: str, tmp_path: Path, name: str, status: PackageStatus
) -> None:
    (tmp_path / "dpkg-query").write_text(f"#!/bin/sh\n{DPKG}", encoding="ascii")
    (tmp_path / "dpkg-query").chmod(0o755)
    queries = [PackageState(name), PackageState("mawk")]
    frame = run(shell, f"PATH={tmp_path}:$PATH\n{HOST_KINDS['package'].script(queries)}")
    assert HOST_KINDS["package"].parse(frame, queries)[queries[0]] == status
    wanted = Package("x/ssh", (name,))
    changes = wanted.changes(Snapshot("x/ssh", answers={queries[0]: status}))
    assert bool(changes) is not status.usable


def test_a_provided_name_is_no_package_to_remove(shell: str) -> None:
    del shell
    status = {PackageState("awk"): PackageStatus(provider="mawk")}
    assert Package("x/ssh", ("awk",), absent=True).changes(Snapshot("x/ssh", answers=status)) == ()


NAMES = "W: Some index files failed to download. They have been ignored, or old ones used instead."
FETCH = "Failed to fetch http://deb.debian.org/debian/dists/bookworm/InRelease"
SIGNED = "An error occurred during the signature verification. The repository is not updated"
LISTS = (
    # what `apt-get update` says, its exit status, and the line that an installation that fails repeats
    ("Hit:1 http://deb.debian.org bookworm InRelease\nReading package lists...", 0, ""),
    (f"Err:1 http://deb.debian.org bookworm\nW: {FETCH}  Temporary failure resolving\n{NAMES}", 0, FETCH),
    (f"W: {FETCH}  Could not connect to 10.0.0.9:3128 (10.0.0.9), connection timed out", 0, FETCH),
    (f"Warning: {FETCH}  Sub-process /usr/bin/sqv returned an error code (1)", 0, FETCH),
    (f"W: {SIGNED} GPG error: https://x InRelease: EXPKEYSIG 1234", 0, SIGNED),
    (f"Warning: {SIGNED} OpenPGP signature verification failed: https://x", 0, SIGNED),
    ("W: GPG error: https://x stable InRelease: NO_PUBKEY 1655A0AB68576280", 0, "GPG error: https://x"),
    ("E: Failed to fetch https://enterprise.proxmox.com/x  401  Unauthorized", 100, "401  Unauthorized"),
    ("E: Failed to fetch https://x/Packages.gz  Hash Sum mismatch\nE: Some index files", 100, "Hash Sum"),
    ("E: Failed to fetch https://x/Packages  File has unexpected size (9006 != 1490)", 100, "(9006 != 1490)"),
    ("Error: The repository 'http://x trixie InRelease' is not signed.", 100, "is not signed"),
    ("E: The repository 'http://x buster Release' does not have a Release file.", 100, "buster Release"),
    ("E: Release file for http://x is not valid yet (invalid for another 2h)", 100, "is not valid yet"),
    ("E: Repository 'https://x' changed its 'Codename' value from 'a' to 'b'", 100, "'Codename'"),
    ("E: Conflicting values set for option Signed-By regarding source https://x", 100, "Signed-By"),
    ("E: Malformed entry 1 in list file /etc/apt/sources.list.d/a.list (Component)", 100, "a.list"),
    ("E: The method driver /usr/lib/apt/methods/tor could not be found.", 100, "methods/tor"),
    ("W: Target Packages (main) is configured multiple times in a.list:1 and b.list:1", 0, ""),
    ("W: https://x/InRelease: Key is stored in legacy trusted.gpg keyring (/etc/apt/trusted.gpg)", 0, ""),
    ("W: https://x/InRelease: Signature by key 36AE uses weak digest algorithm (SHA1)", 0, ""),
    ("N: Skipping acquire of configured file 'main/binary-i386/Packages' as repository", 0, ""),
    ("Warning: https://x/InRelease: Policy will reject signature within a year", 0, ""),
)


def test_each_way_in_which_lists_fail_is_named(shell: str, host: dict[str, Any]) -> None:
    lines = [f"{name}={value}; export {name}" for name, value in host.items()]
    for text, rc, _ in LISTS:
        lines += [f"printf '%s\\n' {shlex.quote(text)} >\"$STATE/update\"", f'echo {rc} >"$STATE/update-rc"']
        lines += ["provision_lists", 'printf "=%s\\n==\\n" "$provision_failed"']
    frame = run(shell, f"{SHELL}\n" + "\n".join(lines))
    answers = frame.stdout.decode().split("\n==\n")[:-1]
    assert len(answers) == len(LISTS)
    for (text, _, named), answer in zip(LISTS, answers, strict=True):
        said, _, failed = answer.rpartition("\n=")
        assert text in said
        assert ("warning: not all package lists" in said, bool(failed)) == (bool(named), bool(named)), text
        assert named in failed


HOLDERS: tuple[tuple[str, dict[str, tuple[str, str]], str], ...] = (
    # lines of /proc/locks, `@` for the lock's inode; processes by number with name and what they have open
    ("1: POSIX  ADVISORY  WRITE 812 fd:01:@ 0 EOF", {"812": ("apt-get", "lock")}, "812 (apt-get)"),
    ("1: FLOCK  ADVISORY  WRITE 812 00:1b:@ 0 EOF", {"812": ("flock", "lock")}, "812 (flock)"),
    ("1: POSIX  ADVISORY  READ  7 08:02:@ 0 0", {"7": ("aptd", "lock")}, "7 (aptd)"),
    ("1: POSIX  ADVISORY  WRITE 9 fd:01:@ 0 EOF", {"9": ("unattended upgr", "lock")}, "9 (unattended upgr)"),
    ("1: POSIX  ADVISORY  WRITE 9 fd:01:@ 0 EOF", {"9": ("", "lock")}, "9 (unknown)"),
    (
        (
            "1: POSIX  ADVISORY  WRITE 5 fd:01:77 0 EOF\n2: POSIX  ADVISORY  WRITE 9 fd:01:@ 0 EOF\n"
            "2: -> POSIX  ADVISORY  WRITE 5 fd:01:@ 0 EOF"
        ),
        {"5": ("waits", "lock"), "9": ("dpkg", "lock")},
        "9 (dpkg)",
    ),
    (
        "1: FLOCK  ADVISORY  WRITE 5 00:1b:@ 0 EOF\n2: POSIX  ADVISORY  WRITE 9 fd:01:@ 0 EOF",
        {"5": ("other-disk", "file"), "9": ("dpkg", "lock")},
        "9 (dpkg)",
    ),
    ("1: POSIX  ADVISORY  WRITE 9 fd:01:@ 0 EOF", {"9": ("dpkg", "by another way")}, "9 (dpkg)"),
    ("1: -> POSIX  ADVISORY  WRITE 5 fd:01:@ 0 EOF", {"5": ("waits", "lock")}, ""),
    ("1: POSIX  ADVISORY  WRITE 5 fd:01:1@ 0 EOF", {"5": ("other", "lock")}, ""),
    ("1: POSIX  ADVISORY  WRITE 5 fd:01:@1 0 EOF", {"5": ("other", "lock")}, ""),
    ("1: POSIX  ADVISORY  WRITE 5 fd:01:@ 0 EOF", {"5": ("other-disk", "file")}, ""),
    ("1: POSIX  ADVISORY  WRITE 5 fd:01:@ 0 EOF", {"5": ("replaced", "gone")}, ""),
    ("1: POSIX  ADVISORY  WRITE 5 fd:01:@ 0 EOF", {}, ""),
    ("1: POSIX  ADVISORY  WRITE 0 fd:01:@ 0 EOF", {"5": ("of another container", "lock")}, ""),
    ("1: OFDLCK ADVISORY  WRITE -1 fd:01:@ 0 EOF", {"5": ("nobody knows", "lock")}, ""),
    ("1: LEASE  ACTIVE    READ  5 fd:01:77 0 EOF", {"5": ("smbd", "lock")}, ""),
    ("garbage\n\n1:\n", {"5": ("x", "lock")}, ""),
    ("", {}, ""),
)


def test_who_holds_a_lock_is_read_from_the_kernels_table(shell: str, tmp_path: Path) -> None:
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    lock = tmp_path / "var/lib/dpkg/lock-frontend"
    for path in (lock, tmp_path / "file"):
        path.touch()
    (tmp_path / "by another way").symlink_to("var/lib/dpkg/lock-frontend")
    script = []
    for number, (locks, processes, _) in enumerate(HOLDERS):
        proc = tmp_path / f"proc{number}"
        proc.mkdir()
        (proc / "locks").write_text(locks.replace("@", str(lock.stat().st_ino)) + "\n")
        for pid, (name, opened) in processes.items():
            (proc / pid / "fd").mkdir(parents=True)
            (proc / pid / "fd" / "3").symlink_to(lock if opened == "lock" else tmp_path / opened)
            if name:
                (proc / pid / "comm").write_text(f"{name}\n")
        functions = SHELL.replace("/var/lib/dpkg", f"{lock.parent}").replace("/proc/", f"{proc}/")
        script += [functions, "provision_apt_holder || echo nobody"]
    frame = run(shell, "\n".join(script))
    assert frame.stdout.decode().splitlines() == [holder or "nobody" for *_, holder in HOLDERS]


def test_a_holder_is_seen_while_locks_of_others_come_and_go(shell: str, tmp_path: Path) -> None:
    """The kernel's table changes between two reads of it; the holder is in each of them."""
    for lock in LOCKS:
        path = tmp_path / "var" / lock
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    others = os.fork()
    if others == 0:
        while True:
            files = [(tmp_path / f"other-{index}").open("w") for index in range(40)]
            for file in files:
                fcntl.flock(file, fcntl.LOCK_EX)
            for file in files:
                file.close()
    try:
        with held(tmp_path / "var" / LOCKS[0], 300, tmp_path / "asked", 1):
            script = "n=0; while [ $n -lt 150 ]; do n=$((n + 1)); provision_apt_holder || echo nobody; done"
            done = f"echo x >{tmp_path}/asked"
            frame = run(shell, "\n".join((SHELL.replace("/var/", f"{tmp_path}/var/"), script, done)))
    finally:
        os.kill(others, 9)
        os.waitpid(others, 0)
    assert frame.stdout.count(b" (") == 150, frame.stdout
