"""Damage of the no-op benchmark's states: a share of them, chosen by a seed, and how to undo it.

`farm` and `states` are modules of the benchmark folder. A state is damaged as a person or another tool would:
a file gets other content or another mode, a line goes, the file that guards a command goes.
"""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged state.

    Args:
        key: the resource that must be reported, as in events of `provision plan --json`.
        path: the file.
        apply: damages it.
    """

    key: str
    path: Path
    apply: Callable[[Path], object]


def possible_damage(farm: Any, states: Any, index: int, rng: random.Random) -> list[Damage]:
    """Return one damage for each state of a host that can be damaged: packages and services cannot."""
    root: Path = farm.root(index)
    system = f"{farm.name(index)}/ssh"
    damage = [
        Damage(f"{system}:file:{root / path}", root / path, rng.choice((_change_content, _change_mode)))
        for _, path, _ in states.FILES
    ]
    damage += [
        Damage(f"{system}:file-line:{root / path}: {line}", root / path, _without_line(line))
        for path, line in states.LINES
    ]
    damage += [Damage(f"{system}:command:{guard}", root / guard, Path.unlink) for guard in states.GUARDS]
    return damage


def choose_damage(farm: Any, states: Any, hosts: int, seed: int) -> list[Damage]:
    """Return the damage of one percent of all states of `hosts` hosts, of one state at least."""
    rng = random.Random(seed)  # noqa: S311 - a benchmark that can be repeated, no secret
    everything = [
        damage for index in range(1, hosts + 1) for damage in possible_damage(farm, states, index, rng)
    ]
    return rng.sample(everything, max(1, math.ceil(hosts * states.STATE_COUNT * SHARE)))


@contextmanager
def damaged(chosen: Sequence[Damage], backup: Path) -> Iterator[None]:
    """Damage states as long as the block lasts.

    Args:
        chosen: the damage.
        backup: folder for the files as they were; made and removed.
    """
    backup.mkdir(parents=True)
    paths = list(dict.fromkeys(damage.path for damage in chosen))
    copies = {path: backup / str(number) for number, path in enumerate(paths)}
    for path, copy in copies.items():
        _copy(path, copy)
    try:
        for damage in chosen:
            damage.apply(damage.path)
        yield
    finally:
        for path, copy in copies.items():
            _copy(copy, path)
        shutil.rmtree(backup)


def _copy(source: Path, target: Path) -> None:
    status = source.stat()
    shutil.copy2(source, target)
    shutil.chown(target, status.st_uid, status.st_gid)


def _change_content(path: Path) -> None:
    path.write_text(path.read_text() + "# changed by hand\n")


def _change_mode(path: Path) -> None:
    path.chmod(path.stat().st_mode ^ 0o040)


def _without_line(line: str) -> Callable[[Path], None]:
    def remove(path: Path) -> None:
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(each for each in lines if each.rstrip("\n") != line))

    return remove
