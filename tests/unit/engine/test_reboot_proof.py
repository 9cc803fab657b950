"""A machine's web API answers before its reboot, and after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.contracts.system import SystemSpec
from provision.engine import reboot
from provision.engine.model import RunReport
from provision.hosts import host_effects
from provision.values.consent import Consent
from provision.values.events import StepProgress
from tests.unit.engine.fake_hosts import Host, Item, Value
from tests.unit.engine.fakes import FakeRole, FakeSite, here, on_own

ALLOWED = {host_effects.REBOOT_NODE: Consent.ALLOW}
API, VERSION = "n1/api", Value("version")


def rebooting(state: Path, proof: Value | None = VERSION) -> FakeSite:
    role = FakeRole(
        "driver", lambda _context: [Item("n1/ssh", "driver", "1", boots=host_effects.REBOOT_NODE)], on_own()
    )
    return FakeSite(
        [role],
        hosts={"n1/ssh": Host(), API: Host({"version": "9.2"}, is_api=True)},
        specs={
            "n1/ssh": SystemSpec("n1/ssh", "host", "n1", {}, here),
            API: SystemSpec(API, "proxmox", "n1", {}, here, proof=proof),
        },
        policy=ALLOWED,
        state=state,
    )


def codes(report: RunReport) -> list[str]:
    return [problem.code for step in report.steps for problem in step.diagnostics]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reboot, "PROOF_SECONDS", 0.0)
    monkeypatch.setattr(reboot, "PROOF_PAUSE", 0.0)


def test_an_api_is_asked_before_and_after_a_reboot(tmp_path: Path) -> None:
    site = rebooting(tmp_path)
    asked: list[tuple[bool, int]] = []
    site.on_boot = lambda _system, is_up: asked.append((is_up, len(site.hosts[API].answers)))
    assert set(site.outcomes(site.apply()).values()) == {"changed"}
    assert asked == [(False, 1), (True, 1)]
    assert len(site.hosts[API].answers) == 2


def test_without_a_proof_nothing_is_asked(tmp_path: Path) -> None:
    site = rebooting(tmp_path, proof=None)
    site.apply()
    assert (site.hosts["n1/ssh"].reboots, site.hosts[API].answers) == (1, [])


def test_no_reboot_while_the_api_is_silent(tmp_path: Path) -> None:
    site = rebooting(tmp_path)
    site.hosts[API].down = True
    report = site.apply()
    assert site.hosts["n1/ssh"].reboots == 0
    assert codes(report) == ["HOST_UNREACHABLE"]
    assert "n1 was not rebooted" in report.steps[0].diagnostics[0].untouched
    site.hosts[API].down = False
    assert set(site.outcomes(site.apply()).values()) == {"changed"}
    assert site.hosts["n1/ssh"].reboots == 1


def test_an_api_that_stays_away_after_the_reboot_fails_the_step(tmp_path: Path) -> None:
    site = rebooting(tmp_path)

    def on_boot(_system: str, is_up: bool) -> None:
        site.hosts[API].down = is_up

    site.on_boot = on_boot
    report = site.apply()
    assert site.hosts["n1/ssh"].reboots == 1
    assert codes(report) == ["REBOOT_UNPROVEN"]
    (problem,) = report.steps[0].diagnostics
    assert "n1/api does not answer" in problem.summary
    assert "systemctl --failed" in problem.remedy


def test_an_api_that_comes_late_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = rebooting(tmp_path)
    monkeypatch.setattr(reboot, "PROOF_SECONDS", 600.0)
    waits: list[float] = []

    def on_boot(_system: str, is_up: bool) -> None:
        site.hosts[API].down = is_up

    def wait(_cancel: object, seconds: float) -> None:
        waits.append(seconds)
        site.hosts[API].down = len(waits) < 3

    site.on_boot = on_boot
    monkeypatch.setattr("provision.values.cancel.Cancel.wait", wait)
    assert set(site.outcomes(site.apply()).values()) == {"changed"}
    assert any(
        isinstance(event, StepProgress) and event.line == "waiting for n1/api" for event in site.events
    )
