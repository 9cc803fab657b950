"""What happened, in SQLite: one writer thread, and nothing begins before its intent is on the disk."""

from __future__ import annotations

import json
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provision.contracts.change import Change
from provision.contracts.driver import Result
from provision.engine.model import StepId
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.errors import ProvisionError
from provision.values.whole_file import make_private_folder

SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
  id TEXT PRIMARY KEY, inventory TEXT NOT NULL, verb TEXT NOT NULL, started REAL NOT NULL, who TEXT NOT NULL,
  seconds REAL, exit_code INTEGER, interrupted INTEGER, trips TEXT, file TEXT);
CREATE TABLE IF NOT EXISTS steps (
  n INTEGER PRIMARY KEY, run TEXT NOT NULL, subject TEXT NOT NULL, role TEXT NOT NULL, outcome TEXT NOT NULL,
  seconds REAL NOT NULL, reason TEXT NOT NULL, started REAL);
CREATE TABLE IF NOT EXISTS intents (
  n INTEGER PRIMARY KEY, run TEXT NOT NULL, subject TEXT NOT NULL, role TEXT NOT NULL, system TEXT NOT NULL,
  what TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS changes (
  n INTEGER PRIMARY KEY, run TEXT NOT NULL, subject TEXT NOT NULL, role TEXT NOT NULL, key TEXT NOT NULL,
  fields TEXT NOT NULL, verdict TEXT NOT NULL, seconds REAL NOT NULL, output TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS effects (
  n INTEGER PRIMARY KEY, run TEXT NOT NULL, system TEXT NOT NULL, effect TEXT NOT NULL, verdict TEXT NOT NULL,
  seconds REAL NOT NULL, output TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS problems (
  n INTEGER PRIMARY KEY, run TEXT NOT NULL, subject TEXT NOT NULL, role TEXT NOT NULL,
  diagnostic TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS checks (
  n INTEGER PRIMARY KEY, run TEXT NOT NULL, name TEXT NOT NULL, subject TEXT NOT NULL, outcome TEXT NOT NULL,
  message TEXT NOT NULL, excused INTEGER NOT NULL, started REAL NOT NULL, seconds REAL NOT NULL);
CREATE INDEX IF NOT EXISTS steps_run ON steps (run);
CREATE INDEX IF NOT EXISTS changes_run ON changes (run);
CREATE INDEX IF NOT EXISTS checks_run ON checks (run);
"""
NEWER_COLUMNS = (
    ("effects", "output", "TEXT NOT NULL DEFAULT ''"),
    ("steps", "started", "REAL"),
    ("runs", "file", "TEXT"),
)
"""Columns that journals of earlier versions lack, and that are added to them."""
_FREE_TEXT = frozenset({"what", "key", "fields", "output", "reason", "message", "diagnostic"})
"""Columns that may hold secrets."""


def shown(change: Change) -> tuple[str, str, str, str]:
    """Return a change as text: op, path, old, new; secrets as such."""
    if change.secret:
        return (str(change.op), change.path, "(secret)", "(secret)")
    old, new = ("" if each is None else str(each) for each in (change.old, change.new))
    return (str(change.op), change.path, old, new)


@dataclass(slots=True)
class _Entry:
    sql: str
    values: tuple[Any, ...]
    written: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class Journal:
    """The journal file of one machine's runs.

    Args:
        path: the database; made with mode 0600.
        mask: takes secrets out of text.
        patience: seconds that an entry may take to reach the disk before the action that it announces.
        error: why the journal is incomplete; nothing more begins once it is set.
        started: when the run began to look at the site, in seconds since 1970; if None, the time of `begin`.
        file: absolute path of the inventory, by which a later command opens it.
    """

    path: Path
    mask: Callable[[str], str] = str
    patience: float = 30.0
    error: str = ""
    started: float | None = None
    file: str = ""
    _step_starts: dict[StepId, float] = field(default_factory=dict)
    _queue: queue.SimpleQueue[_Entry | None] = field(default_factory=queue.SimpleQueue)
    _thread: threading.Thread | None = None

    def begin(self, run: str, inventory: str, verb: str, who: str) -> None:
        """Record that a run begins; on the disk before this returns.

        Raises:
            ProvisionError: it is not on the disk, so the run must not begin.
        """
        started = time.time() if self.started is None else self.started
        columns = "id inventory verb started who file"
        self._require(self._insert("runs", columns, run, inventory, verb, started, who, self.file))

    def intent(self, run: str, step: StepId, system: str, what: Sequence[str]) -> None:
        """Record what is about to begin; on the disk before this returns.

        Raises:
            ProvisionError: it is not on the disk, so the action must not begin.
        """
        text = json.dumps(list(what))
        self._require(
            self._insert("intents", "run system what at", run, system, text, time.time(), step=step)
        )

    def change(self, run: str, step: StepId, key: str, changes: Sequence[Change], result: Result) -> None:
        """Record how one resource's fix ended, with all of its output that was kept."""
        fields, verdict = json.dumps([shown(change) for change in changes]), str(result.verdict)
        columns = "run key fields verdict seconds output"
        self._insert("changes", columns, run, key, fields, verdict, result.seconds, result.whole, step=step)

    def effect(self, run: str, system: str, effect: str, result: Result) -> None:
        """Record how one effect ended, with all of its output that was kept."""
        columns = "run system effect verdict seconds output"
        values = (str(result.verdict), result.seconds, result.whole)
        self._insert("effects", columns, run, system, effect, *values)

    def problem(self, run: str, step: StepId, diagnostic: Diagnostic) -> None:
        """Record a problem."""
        self._insert("problems", "run diagnostic", run, json.dumps(diagnostic.as_json()), step=step)

    def failure(self) -> Diagnostic | None:
        """Return the warning that something was not written, if so."""
        warning = Diagnostic("JOURNAL_UNWRITABLE", self.error, severity=Severity.WARNING)
        return warning if self.error else None

    def step_begins(self, step: StepId) -> None:
        """Remember when a step began."""
        self._step_starts[step] = time.time()

    def step(self, run: str, step: StepId, outcome: str, seconds: float, reason: str) -> None:
        """Write down how a step ended, and when it began."""
        started = self._step_starts.pop(step, None)
        columns = "run outcome seconds reason started"
        self._insert("steps", columns, run, outcome, seconds, reason, started, step=step)

    def check(self, run: str, **values: str | float) -> None:
        """Write down how a check ended: its values by column; `started` is in seconds since 1970."""
        self._insert("checks", " ".join(("run", *values)), run, *values.values())

    def end(
        self, run: str, seconds: float, exit_code: int, trips: dict[str, int], *, interrupted: bool
    ) -> None:
        """Record how a run ended; on the disk before this returns, if the disk takes it."""
        entry = self._put(
            "UPDATE runs SET seconds = ?, exit_code = ?, interrupted = ?, trips = ? WHERE id = ?",
            seconds, exit_code, int(interrupted), json.dumps(trips), run,
        )  # fmt: skip
        entry.written.wait(self.patience)

    def close(self) -> None:
        """Write what is left and end the writer."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout=10)
            self._thread = None

    def _insert(self, table: str, columns: str, *values: Any, step: StepId | None = None) -> _Entry:
        """Write a row; text that may hold secrets is masked."""
        row = dict(zip(columns.split(), values, strict=True))
        if step is not None:
            row |= {"subject": step.subject, "role": step.role}
        masked = (self.mask(value) if name in _FREE_TEXT else value for name, value in row.items())
        marks = ", ".join("?" * len(row))
        sql = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})"  # noqa: S608 - names of our own
        return self._put(sql, *masked)

    def _require(self, entry: _Entry) -> None:
        """Wait until an entry is on the disk."""
        if not entry.written.wait(0 if self.error else self.patience):
            self.error = self.error or self._unwritable(f"no answer from the disk within {self.patience:g} s")
        if self.error:
            untouched = "the next action was not started"
            remedy = "free some disk space, or set PROVISION_STATE to another folder, and run again"
            raise ProvisionError(
                Diagnostic("JOURNAL_UNWRITABLE", self.error, untouched=untouched, remedy=remedy)
            )

    def _unwritable(self, reason: object) -> str:
        return f"the journal {self.path} cannot be written: {reason}"

    def _put(self, sql: str, *values: Any) -> _Entry:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
            self._thread.start()
        entry = _Entry(sql, tuple(_storable(value) for value in values))
        self._queue.put(entry)
        return entry

    def _write(self) -> None:
        database: sqlite3.Connection | None = None
        try:
            database = _open(self.path)
        except (OSError, sqlite3.Error) as error:
            self.error = self._unwritable(error)
        ended = False
        while not ended:
            batch = [self._queue.get()]
            with suppress(queue.Empty):
                while True:
                    batch.append(self._queue.get_nowait())
            ended = None in batch
            entries = [entry for entry in batch if entry is not None]
            try:
                if database is not None:
                    for entry in entries:
                        database.execute(entry.sql, entry.values)
                    database.commit()
            except Exception as error:  # noqa: BLE001 - the thread's last line of defence: the run learns it
                self.error = self._unwritable(error)
            for entry in entries:
                entry.written.set()
        if database is not None:
            database.close()


def _storable(value: object) -> object:
    """Return a value as SQLite takes it: half of a surrogate pair is no Unicode text."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "backslashreplace").decode()
    return value


def _open(path: Path) -> sqlite3.Connection:
    make_private_folder(path.parent)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600))
    database = sqlite3.connect(path, timeout=30)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.executescript(SCHEMA)
    for table, column, kind in NEWER_COLUMNS:
        if all(row[1] != column for row in database.execute(f"PRAGMA table_info({table})")):
            with suppress(sqlite3.OperationalError):  # another run of this version has just done it
                database.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
    return database
