"""`provision status`: one line a subject says whether it is up and what drifts."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api import Options
from provision.api.domains import load_inventory as load
from provision.api.status import status, status_code
from provision.cli import main
from provision.connections.contracts import Endpoint
from provision.contracts.driver import Driver
from provision.contracts.system import SystemSpec
from provision.report.status import print_status
from provision.report.subject_status import State, SubjectStatus
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Transient
from provision.values.outcomes import ExitCode
from tests.model.model_site import ModelSite
from tests.unit.proxmox.roles.world import World
from tests.unit.report.samples import shown

INVENTORY = """
version: 1
name: two
access: { user: root }
profiles:
  node: { swap: off, host_resources: [{ kind: file, path: /etc/motd, content: "hello\\n" }] }
nodes:
  n1: { profile: node, address: 198.51.100.1 }
  n2: { profile: node, address: 198.51.100.2 }
"""


@pytest.fixture
def models(tmp_path: Path) -> ModelSite:
    file = tmp_path / "two.yaml"
    file.write_text(INVENTORY)
    models = ModelSite(load(file), tmp_path / "state")
    models.apply()
    return models


def status_of(models: ModelSite, *targets: str) -> tuple[tuple[SubjectStatus, ...], ExitCode]:
    site = models.site()
    try:
        plan, rows = status(site, Options(targets=targets), lambda _: None, Cancel())
    finally:
        site.close()
    return rows, status_code(plan)


def text_of(rows: tuple[SubjectStatus, ...], orphans: tuple[str, ...] = ()) -> list[str]:
    return shown(lambda console: print_status(console, rows, orphans), width=120).splitlines()


def test_an_applied_site_is_up_without_drift(models: ModelSite) -> None:
    before = models.dump()
    rows, code = status_of(models)
    assert [(row.subject, row.state, row.drift) for row in rows] == [
        ("n1", State.UP, ()),
        ("n2", State.UP, ()),
    ]
    assert code is ExitCode.DONE
    assert models.dump() == before
    assert text_of(rows)[1].split() == ["n1", "up", "none"]
    assert text_of(rows)[-1] == "2 of 2 subjects up, 0 with drift."


def test_drift_is_named_on_the_line_of_its_subject(models: ModelSite) -> None:
    models.hosts["n2/ssh"].state.files["/etc/motd"].content = b"edited\n"
    rows, code = status_of(models)
    assert code is ExitCode.CHANGES
    assert [bool(row.drift) for row in rows] == [False, True]
    assert text_of(rows)[2] == "n2       up     1 resource: file /etc/motd"


def test_a_subject_that_does_not_answer_has_its_reason(
    models: ModelSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = models.open

    def silent(spec: SystemSpec, endpoint: Endpoint) -> Driver:
        if spec.name == "n1/ssh":
            raise Transient(Diagnostic("SSH_FAILED", "198.51.100.1 does not answer", "n1"), retry_after=0)
        return opened(spec, endpoint)

    monkeypatch.setattr(models, "open", silent)
    rows, code = status_of(models)
    assert code is ExitCode.ERROR
    assert [row.state for row in rows] == [State.UNREACHABLE, State.UP]
    assert "does not answer" in text_of(rows)[1]
    assert text_of(rows)[-1].endswith("1 not fully compared.")


def test_only_the_targets_have_lines(models: ModelSite) -> None:
    rows, _ = status_of(models, "n2")
    assert [row.subject for row in rows] == ["n2"]


def test_a_vm_that_does_not_exist_is_absent(tmp_path: Path) -> None:
    world = World(tmp_path)
    site = world.site()
    try:
        _, rows = status(site, Options(), lambda _: None, Cancel())
    finally:
        site.close()
    states = {row.subject: row.state for row in rows}
    assert states["pve"] is State.UP
    assert states["vm-1"] is State.ABSENT


def test_what_left_the_inventory_has_a_line() -> None:
    assert "No longer in the inventory: VM 104 (old)" in text_of((), ("VM 104 (old)",))


def test_the_command_prints_lines_and_ends_with_the_code(
    models: ModelSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("provision.cli.status.open_site", lambda _inventory, _playbook: models.site())
    models.hosts["n1/ssh"].state.files["/etc/motd"].content = b"edited\n"
    assert main.main(["status", str(models.inventory.file)]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["subject", "state", "drift"]
    assert "file /etc/motd" in lines[1]
    assert lines[2].split() == ["n2", "up", "none"]
