"""`provision doctor`: what is wrong with a site or a host, read only."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from provision.api import Options
from provision.api.doctor import examine, host_rules
from provision.api.domains import load_inventory as load
from provision.cli import doctor, main
from provision.connections.contracts import Endpoint
from provision.connections.local import LocalConnection
from provision.contracts.driver import Driver
from provision.contracts.system import SystemSpec
from provision.hosts.queries.shell import Shell, ShellResult
from provision.report import progress
from provision.testing.model_host import HostState
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Transient
from tests.model.model_site import ModelSite

INVENTORY = """
version: 1
name: two
access: { user: root }
nodes:
  n1: { address: 198.51.100.1, swap: off }
  n2: { address: 198.51.100.2, swap: off }
"""
BROKEN = next(rule for rule in host_rules() if rule.code == "PACKAGES_BROKEN")


@pytest.fixture
def models(tmp_path: Path) -> ModelSite:
    file = tmp_path / "two.yaml"
    file.write_text(INVENTORY)
    models = ModelSite(load(file), tmp_path / "state")
    models.apply()
    return models


def break_packages(models: ModelSite, system: str) -> None:
    answers = models.hosts[system].answers
    known = answers[Shell]

    def answer(state: HostState, query: Shell) -> object:
        is_broken = query == BROKEN.query
        return ShellResult(0, b"nvidia-dkms is half configured\n", b"") if is_broken else known(state, query)

    answers[Shell] = answer


def found_in(models: ModelSite) -> list[Diagnostic]:
    site = models.site()
    try:
        result = examine(site, Options(), lambda _: None, Cancel())
    finally:
        site.close()
    return [each for each in result if not each.code.startswith("CONTROLLER_")]


def test_a_sound_site_has_nothing_wrong_and_is_not_changed(models: ModelSite) -> None:
    before = models.dump()
    assert found_in(models) == []
    assert models.dump() == before


def test_a_problem_of_a_host_has_evidence_and_remedy(models: ModelSite) -> None:
    break_packages(models, "n2/ssh")
    (problem,) = found_in(models)
    assert (problem.code, problem.subject) == ("PACKAGES_BROKEN", "n2")
    assert problem.evidence == ("nvidia-dkms is half configured",)
    assert "dpkg --configure -a" in problem.remedy


def test_a_host_that_does_not_answer_is_a_problem(models: ModelSite, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = models.open

    def silent(spec: SystemSpec, endpoint: Endpoint) -> Driver:
        if spec.name == "n1/ssh":
            raise Transient(Diagnostic("SSH_FAILED", "198.51.100.1 does not answer", "n1"), retry_after=0)
        return opened(spec, endpoint)

    monkeypatch.setattr(models, "open", silent)
    assert [problem.code for problem in found_in(models)] == ["SSH_FAILED"]


def test_a_host_is_examined_without_an_inventory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dpkg").write_text("#!/bin/sh\n[ $1 = --audit ] && echo nvidia-dkms is half configured\n")
    (tmp_path / "dpkg").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(doctor, "connect", lambda _endpoint: LocalConnection())
    assert main.main(["doctor", "root@192.0.2.1"]) == 4
    shown = capsys.readouterr().out
    assert "PACKAGES_BROKEN" in shown
    assert "| nvidia-dkms is half configured" in shown


def test_a_host_that_is_busy_is_named_while_it_is_awaited(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []

    def examine_host(*_: object) -> tuple[()]:
        until = time.monotonic() + 60
        while "192.0.2.1" not in "".join(shown) and time.monotonic() < until:
            time.sleep(0.01)
            shown.append(capsys.readouterr().err)
        return ()

    monkeypatch.setattr(progress, "HEARTBEAT", 0.0)
    monkeypatch.setattr(progress.PlainProgress, "period", 0.01)
    monkeypatch.setattr("provision.api.doctor.examine_host", examine_host)
    monkeypatch.setattr(doctor, "connect", lambda _endpoint: LocalConnection())
    assert main.main(["doctor", "root@192.0.2.1"]) == 0
    assert "waiting for 192.0.2.1" in "".join(shown)
