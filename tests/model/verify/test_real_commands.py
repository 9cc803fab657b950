"""The commands of checks in real shells: what they say of a folder, and without the tools that they need."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from provision.api.domains import check_folders
from provision.api.domains import load_inventory as load
from provision.contracts.query import Unknown
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.shell import Shell, ShellResult
from provision.verify.model import CheckOutcome, CheckResult
from provision.verify.runner import run_checks

SHELLS = [
    shell
    for shell in (("dash", "-c"), ("bash", "--posix", "-c"), ("busybox", "sh", "-c"))
    if shutil.which(shell[0])
]
INVENTORY = """
version: 1
name: tiny
network: { cidr: 198.18.0.0/24 }
nodes:
  a:
    address: 198.18.0.11
    hostname: unmanaged
    host_resources:
      - { kind: file, path: @/app, content: "it's {{ name }}\\n", mode: "0640" }
      - { kind: file, path: @/a secret, content: hunter2, sensitive: true }
      - { kind: file, path: @/profile, line: "-e it's \\"x\\" $y" }
      - { kind: file, path: @/nologin, absent: true }
      - { kind: command, name: made, run: "touch x", creates: @/made }
      - { kind: command, name: ready, run: "touch x", unless: "test -e @/ready" }
      - { kind: service, name: cron, running: true }
      - { kind: sysctl, key: vm.swappiness, value: "10" }
      - { kind: kernel_module, name: dummy, options: a=1 }
"""


class Machine:
    """This machine, by one of its shells; tools may be taken from it."""

    def __init__(self, shell: tuple[str, ...], path: str) -> None:
        self.shell = shell
        self.path = path
        # Something that was asked before: nothing is rehearsed.
        self.answers: dict[Any, object] = {Shell("true"): ShellResult(0, b"", b"")}

    def away(self, system: str) -> str:
        del system
        return ""

    def held(self, system: str) -> Snapshot:
        return Snapshot(system, "boot", dict(self.answers))

    def gather(self, wanted: Mapping[str, Iterable[Any]]) -> None:
        for system, queries in wanted.items():
            self.ask(system, queries)

    def ask(self, system: str, queries: Iterable[Any], *, fresh: bool = False) -> Snapshot:
        del fresh
        for query in queries:
            self.answers[query] = self.answer(query) if isinstance(query, Shell) else Unknown("silence")
        return self.held(system)

    def answer(self, query: Shell) -> ShellResult:
        result = subprocess.run(
            [shutil.which(self.shell[0]) or "", *self.shell[1:], query.command],
            capture_output=True,
            check=False,
            env={"PATH": self.path, "LC_ALL": "C"},
        )
        return ShellResult(result.returncode, result.stdout, result.stderr)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app").write_text("it's a\n")
    (tmp_path / "app").chmod(0o640)
    (tmp_path / "a secret").write_text("hunter2")
    (tmp_path / "a secret").chmod(0o600)
    (tmp_path / "profile").write_text('x\n-e it\'s "x" $y\n')
    (tmp_path / "made").touch()
    (tmp_path / "ready").touch()
    return tmp_path


def results(folder: Path, shell: tuple[str, ...], path: str = "/usr/bin:/bin") -> dict[str, CheckResult]:
    file = folder / "tiny.yaml"
    file.write_text(INVENTORY.replace("@", str(folder)))
    report = run_checks(load(file), Machine(shell, path), check_folders())
    return {result.check: result for result in report.checks}


CHECKS = ("test_files", "test_lines", "test_absent_files", "test_commands")


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_real_shells_see_what_is_declared_and_what_is_not(folder: Path, shell: tuple[str, ...]) -> None:
    before = results(folder, shell)
    assert {name: before[name].message for name in CHECKS} == dict.fromkeys(CHECKS, "")
    assert {before[name].outcome for name in CHECKS} == {CheckOutcome.PROVEN}
    (folder / "app").chmod(0o644)
    (folder / "a secret").write_text("hunter3")
    (folder / "profile").write_text('-e it\'s "x" $yy\n')
    (folder / "nologin").symlink_to("/nowhere")
    (folder / "ready").unlink()
    after = results(folder, shell)
    assert {after[name].outcome for name in CHECKS} == {CheckOutcome.FAILED}
    assert f"{folder}/app has mode 644, not 0640" in after["test_files"].message
    assert f"{folder}/a secret has other content" in after["test_files"].message
    assert "hunter" not in after["test_files"].message
    assert "ready: its guard ends with status 1" in after["test_commands"].message


TOOLS = {
    "test_services": "systemctl",
    "test_kernel_parameters": "sysctl",
    "test_kernel_parameters_at_next_boot": "systemd-analyze",
    "test_module_options": "modprobe",
    "test_modules_at_next_boot": "systemd-analyze",
}
"""What a check needs; busybox brings sysctl and modprobe itself."""


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_without_its_tool_a_check_is_unknown_and_says_which(folder: Path, shell: tuple[str, ...]) -> None:
    bare = folder / "bin"
    bare.mkdir()
    for name in ("cat", "grep", "stat", "sha256sum", "test", "uname"):
        (bare / name).symlink_to(shutil.which(name) or "")
    checks = results(folder, shell, str(bare))
    for check, tool in TOOLS.items():
        if shell[0] == "busybox" and tool in {"sysctl", "modprobe"}:
            continue
        result = checks[check]
        assert (result.outcome, result.message) == (CheckOutcome.UNKNOWN, f"{tool} is not installed on a")
