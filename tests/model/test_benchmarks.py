"""The benchmark that needs neither network nor processes works, so that it can be run when it is wanted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "plan_nodes.py"


def test_planning_some_nodes_gives_figures() -> None:
    argv = [sys.executable, str(SCRIPT), "--nodes", "3", "--rounds", "2"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert re.fullmatch(r"first apply of 3 nodes: \d+\.\d s", said[0])
    figures = (
        r"3 nodes, 0 changes: load [\d.]+ s, plan [\d.]+ s, CPU [\d.]+ s, executions 1 a node, memory .+"
    )
    assert len(said) == 3
    assert all(re.fullmatch(figures, each) for each in said[1:])
