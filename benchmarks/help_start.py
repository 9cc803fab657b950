"""Measure what `provision --help` and its like cost above `import typer`: processes in turn, medians.

python benchmarks/help_start.py [--runs 21]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

BASE = "import typer"
"""The floor: what any command line on this library pays."""


class Cost(NamedTuple):
    """What one process took, in seconds."""

    wall: float
    cpu: float


def commands() -> dict[str, tuple[list[str], dict[str, str]]]:
    """Return command and additional environment by name."""
    provision = str(Path(sys.executable).with_name("provision"))
    completion = {"_PROVISION_COMPLETE": "complete_bash", "COMP_WORDS": "provision pla", "COMP_CWORD": "1"}
    return {
        "interpreter": ([sys.executable, "-c", "pass"], {}),
        BASE: ([sys.executable, "-c", BASE], {}),
        "--help": ([provision, "--help"], {}),
        "--version": ([provision, "--version"], {}),
        "completion": ([provision], completion),
        "plan --help": ([provision, "plan", "--help"], {}),
    }


def run_once(command: Sequence[str], environment: Mapping[str, str]) -> Cost:
    """Return the cost of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=21)
    runs = parser.parse_args().runs
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    costs: dict[str, list[Cost]] = {name: [] for name in commands()}
    for command, extra in commands().values():
        run_once(command, environment | extra)  # writes the bytecode
    for _ in range(runs):
        for name, (command, extra) in commands().items():
            costs[name].append(run_once(command, environment | extra))
    print(
        f"Median of {runs} runs (least to most), in ms; above: median of the differences within one round.\n"
    )
    print(f"| process | CPU | CPU above `{BASE}` | wall |\n|---|---|---|---|")
    for name, rows in costs.items():
        above = [row.cpu - base.cpu for row, base in zip(rows, costs[BASE], strict=True)]
        cells = (_spread([row.cpu for row in rows]), _spread(above), _spread([row.wall for row in rows]))
        print(f"| {name} | {' | '.join(cells)} |")


def _spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.0f} ({min(seconds) * 1000:.0f} to {max(seconds) * 1000:.0f})"


if __name__ == "__main__":
    main()
