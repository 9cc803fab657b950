"""A secret of the inventory that stands where nobody expects it is shown to nobody."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from provision.api import Options, Site
from provision.api.cards import cards
from provision.api.domains import load_inventory as load
from provision.api.import_vms import adoption
from provision.engine.model import Plan
from provision.hosts.cards import MODELS
from provision.hosts.queries.shell import Shell, ShellResult
from provision.report.checks import print_checks
from provision.report.explain import print_explained
from provision.report.junit import junit_xml
from provision.report.plan import print_plan
from provision.testing.model_host import ModelFile
from provision.testing.model_state import OperationFailedError
from provision.values.cancel import Cancel
from provision.values.events import Event
from provision.verify.model import CheckOutcome, CheckResult, VerifyReport
from tests.model.model_site import ModelSite
from tests.unit.proxmox.roles.world import INVENTORY as VMS
from tests.unit.proxmox.roles.world import World

SECRET = 'it\'s-"hunter2"-hunter2'
INVENTORY = """
version: 1
name: one
access: { user: root }
nodes:
  n1:
    address: 198.51.100.1
    host_resources:
      - { kind: file, path: /etc/mine, secret: !secret { env: PROVISION_TEST_SECRET } }
      - { kind: file, path: /etc/other, content: "one\\ntwo\\n" }
      - { kind: file, path: /etc/short, content: "one" }
"""
OLD = f"before\ntoken = {SECRET}\nafter\n"


def checks(
    _answers: object, _away: object, _options: object, tell: Callable[[CheckResult], None]
) -> VerifyReport:
    result = CheckResult("a claim", "n1", CheckOutcome.FAILED, f"seen instead: {SECRET}")
    tell(result)
    return VerifyReport((result,))


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("PROVISION_TEST_SECRET", SECRET)
    file = tmp_path / "one.yaml"
    file.write_text(INVENTORY)
    models = ModelSite(load(file), tmp_path / "state")
    models.verifier = checks
    for path, content in (("/etc/other", OLD), ("/etc/short", SECRET)):
        models.hosts["n1/ssh"].state.files[path] = ModelFile(content.encode())
    opened = models.site()
    yield opened
    opened.close()


def shown(show: Callable[..., None], *values: Any, **how: Any) -> str:
    console = Console(file=io.StringIO(), width=200)
    show(console, *values, **how)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    return text


def is_masked(text: str) -> bool:
    return "hunter2" not in text and "***" in text


@pytest.mark.parametrize("full", [True, False])
def test_a_plan_shows_no_secret_that_stands_in_another_file(
    site: Site, told: list[Event], tmp_path: Path, full: bool
) -> None:
    plan = site.plan(Options(), told.append, Cancel())
    assert is_masked(shown(print_plan, plan, full=full))
    assert is_masked(str([each.as_json() for each in told]))
    site.save(plan, tmp_path / "saved")
    assert "hunter2" not in (tmp_path / "saved").read_text()


def test_neither_does_the_plan_that_is_to_be_confirmed_nor_the_report(site: Site, told: list[Event]) -> None:
    plans: list[Plan] = []

    def confirm(plan: Plan) -> bool:
        plans.append(plan)
        return True

    report = site.apply(None, Options(), told.append, Cancel(), confirm)
    assert is_masked(shown(print_plan, plans[0], full=True))
    assert is_masked(repr(report.steps))
    assert is_masked(repr(report.verification))
    assert is_masked(str([each.as_json() for each in told]))


def test_an_applied_plan_is_the_one_that_was_shown(site: Site) -> None:
    plan = site.plan(Options(), lambda _: None, Cancel())
    asked = site.session.trips()
    site.apply(plan, Options(), lambda _: None, Cancel(), lambda given: given is not plan)
    assert site.session.trips() == asked


def test_an_explanation_shows_none(site: Site) -> None:
    for name in ("/etc/other", "/etc/short"):
        (found,) = site.explain(f"n1/ssh:file:{name}", Cancel())
        assert is_masked(shown(print_explained, found, full=True))


def test_results_of_checks_show_none(site: Site, told: list[Event], tmp_path: Path) -> None:
    site.plan(Options(), lambda _: None, Cancel())
    report = site.verify(Options(junit=tmp_path / "junit.xml"), told.append, Cancel())
    assert is_masked(shown(print_checks, report.checks))
    assert is_masked(junit_xml("one", report.checks, 1.0))
    assert is_masked((tmp_path / "junit.xml").read_text())
    assert is_masked(str([each.as_json() for each in told]))


def fails(*_: object) -> None:
    raise OperationFailedError(f"cannot go on with {SECRET}")


def test_neither_does_a_step_that_fails_with_a_secret_in_its_hands(
    site: Site, told: list[Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provision.testing.model_host.perform", fails)
    report = site.apply(None, Options(), told.append, Cancel(), lambda _: True)
    assert report.exit_code == 1
    assert is_masked(repr(report.steps))
    assert is_masked(str([each.as_json() for each in told]))
    assert "hunter2" not in (tmp_path / "state" / "journal.sqlite").read_bytes().decode(errors="replace")


TWO = """
version: 1
name: two
access: { user: root }
nodes:
  n1:
    address: 198.51.100.1
    host_resources:
      - { kind: file, path: /etc/other, content: "one\\ntwo\\n" }
  n2:
    address: 198.51.100.2
    host_resources:
      - { kind: file, path: /etc/mine, secret: !secret { env: PROVISION_TEST_SECRET } }
      - { kind: file, path: /etc/gone, secret: !secret { env: PROVISION_TEST_UNSET } }
      - { kind: file, path: /etc/away, secret: !secret { file: ./absent } }
      - { kind: file, path: /etc/waits, secret: !secret { file: ./pipe } }
      - { kind: file, path: /etc/asks, secret: !secret { command: [touch, "@ASKED"] } }
"""


def test_a_secret_of_a_host_that_is_no_target_is_masked_if_it_is_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVISION_TEST_SECRET", SECRET)
    file = tmp_path / "two.yaml"
    file.write_text(TWO.replace("@ASKED", str(tmp_path / "asked")))
    os.mkfifo(tmp_path / "pipe")
    models = ModelSite(load(file), tmp_path / "state")
    models.hosts["n1/ssh"].state.files["/etc/other"] = ModelFile(OLD.encode())
    plan = models.plan(Options(targets=("n1",)))
    assert not plan.refusals
    assert is_masked(shown(print_plan, plan, full=True))
    assert is_masked(str([each.as_json() for each in models.events]))
    assert not (tmp_path / "asked").exists(), "a command may ask a person"


@pytest.fixture
def vms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site whose VM 101 nobody manages, with a secret of its inventory where it does not belong."""
    monkeypatch.setenv("PROVISION_TEST_SECRET", SECRET)
    world = World(tmp_path)
    assert world.apply().exit_code == 0
    given = "{ kind: file, path: /etc/mine, secret: !secret { env: PROVISION_TEST_SECRET } }"
    world.write(VMS.replace("address: 10.0.0.11 }", f"address: 10.0.0.11, host_resources: [{given}] }}"))
    config = world.pve.vms[101].config
    config.update({"description": "", "tags": "web", "name": f"old-{SECRET}"})
    config.update({"cores": SECRET, "cipassword": "guest-password"})
    site = world.site()
    yield site
    site.close()


def test_a_vm_that_is_to_be_adopted_shows_none(vms: Site) -> None:
    found = adoption(vms, "vm-1", Cancel())
    assert found.changes
    assert is_masked(repr(found))
    assert "guest-password" not in repr((found, vms.session.snapshots()))


def test_a_list_of_cards_shows_none(vms: Site) -> None:
    said = f'0000:02:00.0 "VGA" "{SECRET}" "RTX" -ra1 "MSI" "x"\n'.encode()
    host = vms.session.driver("pve/ssh", Cancel())
    host.answers[Shell] = lambda _state, query: ShellResult(0, said if query == MODELS else b"", b"")  # type: ignore[attr-defined]  # a ModelHost
    assert is_masked(repr(cards(vms, Cancel())))
