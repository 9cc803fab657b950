"""The answer to a secret question is masked wherever it turns up, from its first byte."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from rich.console import Console

from provision.api import Options, Site
from provision.connections.contracts import Endpoint
from provision.contracts.driver import Driver
from provision.contracts.system import SystemSpec
from provision.engine.session import Session
from provision.report.explain import print_explained
from provision.report.plan import print_plan
from provision.testing.model_host import ModelFile
from provision.testing.model_state import OperationFailedError
from provision.values.cancel import Cancel
from tests.model.value_site import FULL_TOKEN, MOTD, ValueSite

PLANTED = "K10certificate::"


@pytest.fixture
def models(tmp_path: Path) -> ValueSite:
    """A site that is as desired, but for a file of an agent in which the full token was pasted."""
    models = ValueSite(tmp_path)
    models.apply()
    full = models.hosts["s1/ssh"].state.text(FULL_TOKEN.path).strip()
    models.hosts["a1/ssh"].state.files[MOTD] = ModelFile(f"join with {full}\n".encode())
    models.events.clear()
    return models


@pytest.fixture
def site(models: ValueSite) -> Any:
    opened = models.site()
    yield opened
    opened.close()


def texts(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def is_masked(text: str) -> bool:
    return PLANTED not in text and "***" in text


def test_a_plan_and_its_file_show_no_answer_to_a_secret_question(
    models: ValueSite, site: Site, tmp_path: Path
) -> None:
    plan = site.plan(Options(), models.events.append, Cancel())
    site.save(plan, tmp_path / "saved")
    console = Console(file=io.StringIO(), width=200)
    print_plan(console, plan, full=True)
    assert is_masked(console.file.getvalue())  # type: ignore[attr-defined]  # a StringIO
    assert is_masked(str([event.as_json() for event in models.events]))
    assert PLANTED not in (tmp_path / "saved").read_text()


def test_an_explanation_shows_none(site: Site) -> None:
    console = Console(file=io.StringIO(), width=200)
    for key in (f"a1/ssh:file:{MOTD}", "a1/ssh:file:/etc/lab/agent-token", "s1/ssh:file:/etc/lab/token"):
        for explained in site.explain(key, Cancel()):
            print_explained(console, explained, full=True)
    assert is_masked(console.file.getvalue())  # type: ignore[attr-defined]  # a StringIO


def test_a_run_leaves_none_in_events_report_journal_and_query_cache(
    models: ValueSite, site: Site, tmp_path: Path
) -> None:
    report = site.apply(None, Options(), models.events.append, Cancel(), lambda _: True)
    assert report.exit_code == 0
    assert is_masked(repr(report.steps))
    assert is_masked(str([event.as_json() for event in models.events]))
    kept = texts(tmp_path / "state")
    assert b"secret-text" in kept, "the question is remembered, so that it is asked along the next time"
    assert PLANTED.encode() not in kept


def test_a_step_that_fails_with_the_answer_in_its_hands_shows_none(
    models: ValueSite, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = models.hosts["s1/ssh"].state.text(FULL_TOKEN.path).strip()

    def fails(*_: object) -> None:
        raise OperationFailedError(f"cannot join with {full}")

    monkeypatch.setattr("provision.testing.model_host.perform", fails)
    report = site.apply(None, Options(), models.events.append, Cancel(), lambda _: True)
    assert report.exit_code == 1
    assert is_masked(repr(report.steps))
    assert is_masked(str([event.as_json() for event in models.events]))
    assert PLANTED.encode() not in texts(tmp_path / "state")


def test_an_answer_is_learnt_before_anybody_gets_it(models: ValueSite) -> None:
    learnt: list[str] = []

    def opens(spec: SystemSpec, endpoint: Endpoint) -> Driver:
        return models.open(spec, endpoint)

    session = Session(
        models.site().environment.systems, opens, lambda secret: learnt.append(secret.get_secret_value())
    )
    snapshot = session.ask("s1/ssh", [FULL_TOKEN], Cancel())
    answer = snapshot[FULL_TOKEN]
    assert isinstance(answer, SecretStr)
    assert learnt == [answer.get_secret_value()]
    assert PLANTED not in repr(snapshot)
