"""A secret of the inventory that stands where nobody expects it is shown to nobody."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from provision.api import Options, Site
from provision.engine.model import Plan
from provision.inventory import load
from provision.report.checks import print_checks
from provision.report.explain import print_explained
from provision.report.junit import junit_xml
from provision.report.plan import print_plan
from provision.testing.model_host import ModelFile
from provision.values.cancel import Cancel
from provision.values.events import Event
from provision.verify.model import CheckOutcome, CheckResult, VerifyReport
from tests.model.model_site import ModelSite

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
