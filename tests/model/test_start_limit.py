"""How long a restart of k3s may take, which imports all archives of images first."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.k3s.k3s_effects import RESTART_K3S, start_seconds
from tests.model.shells import SHELLS, run


@pytest.mark.parametrize(
    ("printed", "mebibytes"), [("0\tx", 0), ("", 0), ("40960\tx", 40960), ("999999\tx", 999999)]
)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_restart_has_the_time_that_its_images_need(
    shell: str, printed: str, mebibytes: int, tmp_path: Path
) -> None:
    program = tmp_path / "du"
    program.write_text(f"#!/bin/sh\nprintf '{printed}'\n")
    program.chmod(0o755)
    beginning = RESTART_K3S.script.partition("for unit")[0]
    frame = run(shell, f'{beginning}\necho "$limit"', path=tmp_path)
    assert int(frame.stdout) == start_seconds(mebibytes)
