"""Loads mutated inventories: each gives an inventory or diagnostics, never another exception, and soon.

    python benchmarks/fuzz_inventories.py --count 1000000 --seed 7 --processes 16

Needs a checkout and the dependencies of provision, nothing else. The last line sums up; what failed is
printed with the seed that makes it again, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from provision.api.domains import load_inventory  # noqa: E402 - after the path is set
from provision.values.errors import UsageError  # noqa: E402 - likewise

SLOW = 5.0
"""Seconds that one inventory may take."""

_CHUNK = 500
_SHOWN = 5

_SIGNS = "* : - [ ] { } , # & ! | > ' \" % @ ` ? ~ = < \\ / .. // -- $ ( ) ; {{ }} {% ${X} << *a &a"
_WORDS = (
    "null true on !secret !!binary --- ... nodes: name profile extends: gpu-[01-16] [1-99999] 10.0.0.0/0"
    " 0.0.0.0 -1 1e400 0x1F 99999999999999999999 kind: file path: /etc/x line: content: unless:"
    " owner: https://h:99999 https://[::1 host:abc ../../x a..b a,b=c --reference=/x ~nouser é"
)
_ODD = (
    "\t",
    "\n",
    "\r",
    "\0",
    "\u2028",
    "\ufeff",
    "\x85",
    "\ud83d",
    "\u202e",
    "\x1b[2J",
    "  ",
    "\n  ",
    "\U0001f600",
)
PIECES = (*_SIGNS.split(), *_WORDS.split(), *_ODD, "9" * 5000, "[" * 300, "{a: " * 300, "x" * 5000)


@dataclass
class Tally:
    """What a number of inventories gave."""

    count: int = 0
    accepted: int = 0
    slowest: float = 0.0
    failures: list[str] = field(default_factory=list)


def seeds_of_corpus() -> tuple[str, ...]:
    """Return the texts that are mutated: every shipped inventory."""
    return tuple(path.read_text(encoding="utf-8") for path in sorted((ROOT / "inventories").glob("*.yaml")))


def mutated(text: str, chance: random.Random) -> str:
    """Return a text with one to four places changed: cut, doubled, moved, or with a piece put in."""
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.choice((0, 1, 2, 5, 12, 40)))
        way = chance.randrange(6)
        if way == 0:
            text = text[:start] + text[end:]
        elif way == 1:
            text = text[:end] + text[start:]
        elif way == 2:
            other = chance.randrange(len(text) + 1)
            text = text[:other] + text[start:end] + text[other:]
        elif way == 3:
            lines = text.split("\n")
            index = chance.randrange(len(lines))
            key, colon, _ = lines[index].partition(": ")
            lines[index] = f"{key}{colon}{chance.choice(PIECES)}"
            text = "\n".join(lines)
        else:
            text = text[:start] + chance.choice(PIECES) + text[end:]
    return text


def run(seed: int, first: int, count: int) -> Tally:
    """Load inventories of the numbers `first` to `first + count`; each depends on seed and number alone."""
    corpus, tally = seeds_of_corpus(), Tally()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / "site.yaml"
        for number in range(first, first + count):
            chance = random.Random(f"{seed}/{number}")  # noqa: S311 - picks places, guards nothing
            text = mutated(chance.choice(corpus), chance)
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
            began = time.monotonic()
            try:
                load_inventory(path, environ={"X": "1"})
                tally.accepted += 1
            except UsageError as error:
                if not error.diagnostics or not all(problem.summary for problem in error.diagnostics):
                    tally.failures.append(f"seed {seed} number {number}: no diagnostic")
            except Exception:  # noqa: BLE001 - what is looked for
                tally.failures.append(f"seed {seed} number {number}:\n{traceback.format_exc(limit=-4)}")
            took = time.monotonic() - began
            tally.slowest = max(tally.slowest, took)
            if took > SLOW:
                tally.failures.append(f"seed {seed} number {number}: took {took:.1f} s")
            tally.count += 1
    return tally


def _run(task: tuple[int, int, int]) -> Tally:
    return run(*task)


def tasks(seed: int, count: int) -> Iterator[tuple[int, int, int]]:
    """Yield the pieces of work."""
    for first in range(0, count, _CHUNK):
        yield seed, first, min(_CHUNK, count - first)


def main() -> int:
    """Run as the command line says, print one line, and return the exit status."""
    parser = argparse.ArgumentParser(description="Load mutated inventories.")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    began, total = time.monotonic(), Tally()
    with multiprocessing.get_context("spawn").Pool(max(1, options.processes)) as pool:
        for tally in pool.imap_unordered(_run, tasks(options.seed, options.count)):
            total.count += tally.count
            total.accepted += tally.accepted
            total.slowest = max(total.slowest, tally.slowest)
            total.failures += tally.failures
    for failure in total.failures[:_SHOWN]:
        print(failure)
    print(
        f"{total.count} inventories, seed {options.seed}: {total.accepted} accepted,"
        f" {total.count - total.accepted - len(total.failures)} refused, {len(total.failures)} failed,"
        f" slowest {total.slowest:.2f} s, {time.monotonic() - began:.0f} s"
    )
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
