"""What `provision --help` costs over a bare interpreter: processes started in turn, medians.

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
from pathlib import Path


def once(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return wall and CPU seconds of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=21)
    runs = parser.parse_args().runs
    provision = str(Path(sys.executable).with_name("provision"))
    commands = {"bare": [sys.executable, "-c", "pass"], "help": [provision, "--help"]}
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for command in commands.values():
        once(command, environment)  # writes the bytecode
    for _ in range(runs):
        for name, command in commands.items():
            found[name].append(once(command, environment))
    for index, what in enumerate(("wall", "CPU")):
        bare = [each[index] for each in found["bare"]]
        shown = [each[index] for each in found["help"]]
        ratio = statistics.median(one / other for one, other in zip(shown, bare, strict=True))
        print(
            f"{what}: bare {statistics.median(bare) * 1000:.0f} ms ({min(bare) * 1000:.0f} to "
            f"{max(bare) * 1000:.0f}), --help {statistics.median(shown) * 1000:.0f} ms "
            f"({min(shown) * 1000:.0f} to {max(shown) * 1000:.0f}), ratio {ratio:.1f}, {runs} runs each"
        )


if __name__ == "__main__":
    main()
