from __future__ import annotations

import pytest

from provision.engine.defect import defect


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
