from __future__ import annotations

from pathlib import Path

import pytest

from provision.engine.next_steps import with_next_step
from provision.engine.step_state import failed
from provision.values.diagnostics import Diagnostic
from tests.unit.engine.fake_hosts import Item
from tests.unit.engine.fakes import FakeRole, FakeSite, on_own


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("FIX_FAILED", "provision show last --full"),
        ("NOT_AS_DESIRED", "what changes it back"),
        ("INTERRUPTED", "looks up how the interrupted action ended"),
        ("OUTCOME_UNKNOWN", "looks up how the action ended"),
        ("UNKNOWN", "why there is no answer"),
        ("SOME_CODE_OF_A_THIRD_PARTY", "correct the cause"),
    ],
)
def test_every_kind_of_failure_has_a_next_step(code: str, words: str) -> None:
    (diagnostic,) = failed(Diagnostic(code, "it failed")).diagnostics
    assert words in diagnostic.remedy
    assert "run the command again" in diagnostic.remedy


def test_a_remedy_of_its_own_stays() -> None:
    diagnostic = Diagnostic("FIX_FAILED", "it failed", remedy="pull the plug")
    assert with_next_step(diagnostic) is diagnostic


def test_a_failed_step_of_a_run_says_what_to_do_next(tmp_path: Path) -> None:
    role = FakeRole("r", lambda _: [Item("n1/ssh", "a", "1", impossible=True)], on_own())
    report = FakeSite([role], state=tmp_path).apply()
    assert all(diagnostic.remedy for step in report.steps for diagnostic in step.diagnostics)
    assert report.exit_code == 1
