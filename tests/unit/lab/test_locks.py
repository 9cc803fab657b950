from __future__ import annotations

from pathlib import Path

import pytest

from provision.lab.locks import exclusive
from provision.lab.settings import LabError


def test_who_waits_for_a_lock_is_told_before(tmp_path: Path) -> None:
    file, told = tmp_path / "lock", []
    with exclusive(file, waiting=lambda: told.append("first")):
        assert told == []
        with pytest.raises(LabError, match="held"), exclusive(file, 0, lambda: told.append("second")):
            pass
    assert told == ["second"]
