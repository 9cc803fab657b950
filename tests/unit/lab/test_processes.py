"""Processes of a lab, by its control groups."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from provision.lab import processes
from provision.lab.settings import machine_wide


def test_control_groups_that_go_while_they_are_looked_at_hinder_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = tmp_path / "labs/one"
    top = tmp_path / "groups" / machine_wide(lab)
    for name, pid in (("", 11), ("router", 12), ("router/payload", 13), ("router/payload/gone.service", 14)):
        (top / name).mkdir(parents=True, exist_ok=True)
        (top / name / "cgroup.procs").write_text(f"{pid}\n")
    monkeypatch.setattr(processes, "_CGROUP_ROOTS", (tmp_path / "groups", tmp_path / "none"))
    scan = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("gone.service"):
            shutil.rmtree(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert processes.in_cgroups(lab) == {11, 12, 13}
