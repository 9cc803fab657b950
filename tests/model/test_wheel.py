"""The wheel: built, installed without its checkout, and run from another folder with the files it ships."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEFT_OUT = {"__pycache__"}


def done(command: list[str], cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environ}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build and install offline; return the folder that the packages lie in."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index"]
    built = done([*pip, "wheel", *offline, "--no-build-isolation", "-w", str(folder), str(ROOT)], folder)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("provision-*.whl")
    target = folder / "installed"
    put = done([*pip, "install", *offline, "--target", str(target), str(wheel)], folder)
    assert put.returncode == 0, put.stderr
    return target


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder that has nothing of the checkout."""
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def provision(installed: Path, cwd: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "provision.cli.main", *argv]
    state = str(cwd / "state")
    return done(command, cwd, PYTHONPATH=str(installed), PROVISION_STATE=state, XDG_STATE_HOME=state)


def relative(folder: Path) -> set[str]:
    """Return all files under a folder, without what Python leaves."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not LEFT_OUT & set(path.parts)
    }


def test_all_of_the_package_and_what_it_ships_is_inside(installed: Path) -> None:
    package = relative(ROOT / "provision")
    assert "py.typed" in package
    assert any(each.startswith("lab/assets/") for each in package)
    assert package <= relative(installed / "provision")
    for kind in ("playbooks", "templates", "inventories"):
        files = relative(ROOT / kind)
        assert files
        assert files <= relative(installed / "provision" / "_shipped" / kind)


def test_nothing_of_the_tests_or_secrets_is_inside(installed: Path) -> None:
    tops = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert tops - {"bin"} == {"provision"}
    assert not [each for each in relative(installed) if each.endswith((".key", ".pem", "id_ed25519"))]


def test_it_is_the_installed_one_that_runs(installed: Path, elsewhere: Path) -> None:
    code = "import provision; print(provision.__file__)"
    found = done([sys.executable, "-P", "-c", code], elsewhere, PYTHONPATH=str(installed))
    assert Path(found.stdout.strip()).is_relative_to(installed), found.stderr


@pytest.mark.parametrize("name", ["inventories/lab.yaml", "lab", "homelab", "inventories/h100-kai.yaml"])
def test_shipped_inventories_are_found_by_name(installed: Path, elsewhere: Path, name: str) -> None:
    found = provision(installed, elsewhere, "validate", name)
    assert found.returncode == 0, found.stderr


def test_the_schema_is_printed(installed: Path, elsewhere: Path) -> None:
    found = provision(installed, elsewhere, "schema")
    assert found.returncode == 0, found.stderr
    assert "nodes" in json.loads(found.stdout)["properties"]


def test_the_shipped_playbook_is_found(installed: Path, elsewhere: Path) -> None:
    found = provision(installed, elsewhere, "graph", "inventories/lab.yaml")
    assert found.returncode == 0, found.stderr
    assert "virtual_machine" in found.stdout


LIBRARY = """
import sys

import provision

cheap = "pydantic" not in sys.modules and "provision.api" not in sys.modules
from provision import load
from provision.testing.model_host import ModelHost, guest_state  # stands in for the machine alone

machine = ModelHost("alpha/ssh", guest_state("alpha"))
with load("fleet.yaml", open_driver=lambda spec, endpoint: machine) as site:
    planned = site.plan()
    applied = site.apply(options=site.options(steps=["host_resources"]))  # the model cannot run all checks
    again = site.plan()
    verified = site.verify()
    try:
        site.destroy()
        refused = False
    except provision.UsageError as error:
        refused = error.diagnostics[0].code
    destroyed = site.destroy(site.options(allow=["delete"]))
print(cheap, planned.empty, applied.exit_code, again.empty, len(verified.checks) > 0)
print(refused, destroyed.exit_code, "/etc/motd" in machine.state.files)
"""


def test_a_program_needs_one_import_and_no_callback(installed: Path, elsewhere: Path) -> None:
    (elsewhere / "fleet.yaml").write_text(
        "version: 1\nname: fleet\nnodes:\n  alpha:\n    address: 10.0.0.1\n    host_resources:\n"
        "      - { kind: file, path: /etc/motd, content: hello, mode: '0644' }\n"
    )
    state = str(elsewhere / "state")
    result = done(
        [sys.executable, "-P", "-c", LIBRARY], elsewhere, PYTHONPATH=str(installed), PROVISION_STATE=state
    )
    assert result.stderr == ""
    first, second = result.stdout.splitlines()
    assert first == "True False 0 True True"
    assert second == "CONFIRMATION_MISSING 0 True", "what was set up inside a node stays"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_installed_for_every_shell(shell: str, installed: Path, elsewhere: Path) -> None:
    result = done(
        [sys.executable, "-P", "-m", "provision.cli.main"],
        elsewhere,
        PYTHONPATH=str(installed),
        _PROVISION_COMPLETE=f"source_{shell}",
    )
    assert result.returncode == 0, result.stderr
    assert "provision" in result.stdout
