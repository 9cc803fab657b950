"""What the journal says of former runs; the engine itself never reads it."""

from __future__ import annotations

import sqlite3
import statistics
from pathlib import Path
from typing import Any

from provision.engine.model import StepId

HISTORY = 20_000
"""How many former steps are looked at for `usually`."""
RUNS = "SELECT id, inventory, verb, started, who, seconds, exit_code, interrupted FROM runs"


def _read(path: Path, sql: str, *values: Any) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    try:
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
        try:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(sql, values)]
        finally:
            database.close()
    except sqlite3.Error:
        return []


def usually(path: Path, inventory: str) -> dict[StepId, float]:
    """Return the median seconds of each step that changed something in former runs."""
    rows = _read(
        path,
        "SELECT s.subject, s.role, s.seconds FROM steps s JOIN runs r ON r.id = s.run"
        " WHERE r.inventory = ? AND s.outcome = 'changed' ORDER BY s.n DESC LIMIT ?",
        inventory,
        HISTORY,
    )
    times: dict[StepId, list[float]] = {}
    for row in rows:
        times.setdefault(StepId(row["role"], row["subject"]), []).append(row["seconds"])
    return {step: statistics.median(values) for step, values in times.items()}


def runs(path: Path, limit: int = 50) -> list[dict[str, Any]]:
    """Return former runs, the latest first: in the order of writing, because clocks are set back."""
    return _read(path, f"{RUNS} ORDER BY rowid DESC LIMIT ?", limit)


def changed_on(path: Path, run: str, name: str) -> tuple[str, ...]:
    """Return the systems on which a run changed a thing of this name, and lines in a file of this name."""
    rows = _read(path, "SELECT DISTINCT key FROM changes WHERE run = ? ORDER BY n", run)
    keys = [row["key"].split(":", 2) for row in rows]
    fitting = [key for key in keys if len(key) == 3 and (key[2] == name or key[2].startswith(f"{name}: "))]  # noqa: PLR2004 - system, kind, name
    return tuple(dict.fromkeys(key[0] for key in fitting))


def inventory_file(path: Path, run: str) -> str:
    """Return where the inventory of a run was; empty where that is not known."""
    rows = _read(path, "SELECT file FROM runs WHERE id = ?", run)
    return str(rows[0]["file"] or "") if rows else ""


def run(path: Path, prefix: str) -> dict[str, Any] | None:
    """Return one run with all that happened in it, by the beginning of its id; None if unclear."""
    rows = _read(path, f"{RUNS} WHERE substr(id, 1, ?) = ? LIMIT 2", len(prefix), prefix)
    if len(rows) != 1:
        return None
    name = rows[0]["id"]
    parts = ("steps", "intents", "changes", "effects", "problems", "checks")
    return {
        **rows[0],
        **{part: _read(path, f"SELECT * FROM {part} WHERE run = ? ORDER BY n", name) for part in parts},  # noqa: S608 - own table names
    }
