"""Benchmarks that need neither network nor processes work, so that they can be run when they are wanted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "plan_nodes.py"


def test_planning_some_nodes_gives_figures() -> None:
    argv = [sys.executable, str(SCRIPT), "--nodes", "3", "--rounds", "2"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert re.fullmatch(r"first apply of 3 nodes: \d+\.\d s", said[0])
    figures = (
        r"3 nodes, 0 changes: load [\d.]+ s, plan [\d.]+ s, CPU [\d.]+ s, executions 1 a node, memory .+"
    )
    assert len(said) == 3
    assert all(re.fullmatch(figures, each) for each in said[1:])


def test_masking_with_some_secrets_gives_figures() -> None:
    argv = [sys.executable, "-m", "benchmarks.masking", "--secrets", "20", "--vms", "2"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()
    assert re.fullmatch(r"20 secrets learnt: [\d.]+ ms each", said[0])
    assert len(said) == 7
    assert all(re.fullmatch(r"a string .+: [\d.]+ ms", line) for line in said[1:6])
    assert re.fullmatch(r"2 VMs created: [\d.]+ CPU s, \d+ events", said[6])
