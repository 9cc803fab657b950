from __future__ import annotations

from pathlib import Path

import pytest

from provision.engine.defect import defect
from provision.engine.journal import Journal
from provision.values.events import Problem
from tests.unit.engine import fakes
from tests.unit.engine.fakes import FakeRole, FakeSite, Item, on_own


def broken() -> None:
    raise ValueError("hunter2")


def test_a_defect_tells_where_it_happened_and_no_values() -> None:
    with pytest.raises(ValueError, match="hunter2") as caught:
        broken()
    told = defect("INTERNAL", "n1: base: provision itself failed", "n1", caught.value)
    assert told.summary == "n1: base: provision itself failed: ValueError"
    assert told.evidence[-1].startswith("test_defect.py:")
    assert told.evidence[-1].endswith(" in broken")
    assert "hunter2" not in str(told.as_json())


def test_no_secret_is_told_by_the_end_of_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        fakes, "Journal", lambda path: Journal(path, lambda text: text.replace("hunter2", "***"))
    )
    role = FakeRole("r", lambda _: [Item("n1/ssh", "hunter2", "1", impossible=True)], on_own())
    site = FakeSite([role], state=tmp_path)
    (step,) = site.apply().steps
    assert (step.diagnostics[0].summary, step.reason) == ("*** cannot be 1", "*** cannot be 1")
    told = [each for each in site.events if isinstance(each, Problem)]
    assert "hunter2" not in str(told)
    assert told
