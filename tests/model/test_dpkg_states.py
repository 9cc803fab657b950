"""What dpkg and apt leave behind when they are interrupted, with the real dpkg on a database of its own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from provision.hosts.operations.apt_locks import SHELL
from provision.hosts.query_kinds import HOST_KINDS
from provision.hosts.resources.package import PackageState, PackageStatus
from tests.model.shells import SHELLS, run

pytestmark = pytest.mark.parametrize("shell", SHELLS)

STATES: tuple[tuple[str, str, PackageStatus], ...] = (
    # status of dpkg(1), further lines, what it means; from openebs#525, ansible#8825, delphix#800, kdebug#29
    ("install ok installed", "", PackageStatus("1.0-1")),
    ("hold ok installed", "", PackageStatus("1.0-1", held=True)),
    ("deinstall ok installed", "", PackageStatus("1.0-1")),
    ("install ok triggers-pending", "Triggers-Pending: ldconfig\n", PackageStatus("1.0-1")),
    ("install ok triggers-awaited", "Triggers-Awaited: libc-bin\n", PackageStatus("1.0-1")),
    ("install ok unpacked", "", PackageStatus()),
    ("install ok half-configured", "Config-Version: 0.9\n", PackageStatus()),
    ("install reinstreq half-installed", "", PackageStatus()),
    ("deinstall ok config-files", "Config-Version: 1.0-1\n", PackageStatus()),
    ("purge ok not-installed", "", PackageStatus()),
    ("hold ok config-files", "Config-Version: 1.0-1\n", PackageStatus(held=True)),
)


def database(folder: Path, text: str) -> str:
    """Write a database of dpkg, and return shell text after which its programs use that."""
    admin, programs = folder / "root/var/lib/dpkg", folder / "bin"
    (admin / "info").mkdir(parents=True)
    (admin / "updates").mkdir()
    (admin / "status").write_text(text)
    programs.mkdir()
    for name, options in {
        "dpkg": f"--root={folder}/root --force-not-root --force-script-chrootless --log=/dev/null",
        "dpkg-query": f"--admindir={admin}",
    }.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shutil.which(name)} {options} "$@"\n')
        (programs / name).chmod(0o755)
    return f"PATH={programs}:$PATH\n"


@pytest.mark.parametrize(("status", "more", "expected"), STATES, ids=[state[0] for state in STATES])
def test_a_package_is_what_dpkg_says_of_it(
    shell: str, tmp_path: Path, status: str, more: str, expected: PackageStatus
) -> None:
    awaited = "" if "awaited" not in more else (
        "Package: libc-bin\nStatus: install ok triggers-pending\nTriggers-Pending: ldconfig\n"
        "Maintainer: x <x@y>\nArchitecture: amd64\nVersion: 2\nDescription: x\n\n"
    )  # fmt: skip
    path = database(
        tmp_path,
        f"{awaited}Package: tool\nStatus: {status}\n{more}Maintainer: x <x@y>\nArchitecture: amd64\n"
        "Version: 1.0-1\nDescription: x\n\n",
    )
    queries = [PackageState("tool")]
    frame = run(shell, f"{path}{HOST_KINDS['package'].script(queries)}")
    assert HOST_KINDS["package"].parse(frame, queries)[queries[0]] == expected, frame


def archive(folder: Path, version: str) -> Path:
    """Return a package with one configuration file."""
    tree = folder / f"tool-{version}"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "etc").mkdir()
    (tree / "etc/tool.conf").write_text(f"default of {version}\n")
    (tree / "DEBIAN/conffiles").write_text("/etc/tool.conf\n")
    (tree / "DEBIAN/control").write_text(
        f"Package: tool\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@y>\nDescription: x\n"
    )
    made = folder / f"tool-{version}.deb"
    subprocess.run(["dpkg-deb", "-b", "--root-owner-group", tree, made], check=True, capture_output=True)
    return made


def test_an_upgrade_that_died_before_its_question_is_finished_without_one(shell: str, tmp_path: Path) -> None:
    """`dpkg --configure -a` asks about a file that somebody changed, and nobody is there to answer."""
    path = database(tmp_path, "")
    old, new = archive(tmp_path, "1"), archive(tmp_path, "2")
    assert run(shell, f"{path}dpkg -i {old}").rc == 0
    config = tmp_path / "root/etc/tool.conf"
    config.write_text("mine\n")
    assert run(shell, f"{path}dpkg --unpack {new}").rc == 0
    asking = run(shell, f"{path}dpkg --configure -a </dev/null")
    assert asking.rc != 0, "the case is no case any more"
    frame = run(shell, f"set -eu\n{path}{SHELL}provision_configure </dev/null")
    assert frame.rc == 0, frame.stderr
    assert config.read_text() == "mine\n"
    status = run(shell, f"{path}dpkg-query -W -f='${{Version}} ${{db:Status-Abbrev}}' tool").stdout
    assert status.decode() == "2 ii "
