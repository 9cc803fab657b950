from __future__ import annotations

import pytest

from provision.cli import main


def test_a_preflight_code_is_explained_without_asking_a_system(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["explain", "lab", "VMID_TAKEN_FOREIGN"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "error VMID_TAKEN_FOREIGN"
    assert lines[1].startswith("  when a declared VMID belongs to")
    assert "provision import INVENTORY NODE" in [line.strip() for line in lines]


def test_an_unknown_code_is_answered_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["explain", "lab", "VMID_TAKEN"]) == 64
    assert "Did you mean VMID_TAKEN_FOREIGN?" in capsys.readouterr().err
