"""Imports that wait, streams and encodings: proved in fresh interpreters, for this one is warm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = (sys.executable, "-m", "provision.cli.main")
_LAZY = """
import sys
import provision.connections.ssh
import paramiko
loaded = {"asyncio", "unittest.mock"} & set(sys.modules)
assert not loaded, loaded
import invoke
assert invoke.run
assert paramiko.config.invoke.run is invoke.run
from provision.connections.deferred_import import import_at_first_use
import_at_first_use("no_such_module")
assert "no_such_module" not in sys.modules
"""


def run(command: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environ}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_paramiko_does_not_bring_invoke_until_it_is_used() -> None:
    result = run([sys.executable, "-c", _LAZY])
    assert result.returncode == 0, result.stderr


def test_resolving_a_plain_host_does_not_import_paramiko(tmp_path: Path) -> None:
    code = (
        "import sys; from provision.connections.ssh_target import resolve;"
        "from provision.connections.contracts import SshEndpoint;"
        "resolve(SshEndpoint('n1', 'root')); sys.exit('paramiko' in sys.modules)"
    )
    assert run([sys.executable, "-c", code], HOME=str(tmp_path)).returncode == 0


@pytest.mark.parametrize(
    ("argv", "output", "unbuffered"),
    [
        (["validate", "lab"], ">/dev/full", ""),
        (["--version"], ">/dev/full", "1"),
        (["--version"], ">&-", ""),
    ],
)
def test_an_output_that_takes_nothing_ends_the_command_quietly(
    argv: list[str], output: str, unbuffered: str
) -> None:
    result = run(["/bin/sh", "-c", f'exec "$@" {output}', "sh", *SCRIPT, *argv], PYTHONUNBUFFERED=unbuffered)
    assert (result.returncode, result.stderr) == (1, "")


def test_a_closed_pipe_is_quiet() -> None:
    done = run(["bash", "-c", 'set -o pipefail; "$@" schema | true', "bash", *SCRIPT])
    assert done.stderr == ""


def test_an_encoding_without_the_characters_is_no_reason_to_fail(tmp_path: Path) -> None:
    result = run(
        [*SCRIPT, "validate", str(tmp_path / "gänsefüßchen.yaml")], PYTHONIOENCODING="ascii", PYTHONUTF8="0"
    )
    assert result.returncode == 64
    assert "Traceback" not in result.stderr
    assert r"g\xe4nsef\xfc\xdfchen" in result.stderr


COMPLETION = {"_PROVISION_COMPLETE": "complete_bash", "COMP_WORDS": "provision pla", "COMP_CWORD": "1"}
SLOW = (
    "pydantic",
    "rich",
    "paramiko",
    "yaml",
    "kubernetes",
    "jinja2",
    "pytest",
    "provision.engine",
    "asyncio",
    "email",
)


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(["--help"], {}), (["--version"], {}), (["plan", "--help"], {}), ([], COMPLETION)],
    ids=["help", "version", "help of a command", "completion"],
)
def test_what_needs_no_inventory_imports_nothing_slow(
    arguments: list[str], environment: dict[str, str]
) -> None:
    code = (
        f"import sys; from provision.cli.main import main; code = main({arguments!r});"
        f"print([name for name in {SLOW!r} if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    result = run([sys.executable, "-c", code], **environment)
    assert result.returncode == 0
    assert result.stdout.strip()
    assert result.stderr == "[]\n"


def test_plain_texts_do_not_load_the_template_library() -> None:
    code = (
        "import sys; from provision.hosts.templating import render; render('plain', {}, 'x'); "
        "sys.exit('jinja2' in sys.modules)"
    )
    assert run([sys.executable, "-c", code]).returncode == 0
