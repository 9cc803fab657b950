"""Tasks with UPIDs: worker threads whose state and log are files, so that they survive a kill.

A task that a file calls running and that no thread of this process runs was cut off.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provision.lab.api.access import Auth
from provision.lab.api.errors import ApiError, TaskError
from provision.lab.api.store import read_json, write_json
from provision.lab.contracts import GuestError

CUT_OFF = "unexpected status"
KEEP = 2000

UPID = re.compile(
    r"UPID:(?P<node>[a-zA-Z0-9-]+):(?P<pid>[0-9A-F]{8}):(?P<pstart>[0-9A-F]{8,9}):(?P<start>[0-9A-F]{8})"
    r":(?P<type>[^:\s]+):(?P<id>[^:\s/]*):(?P<user>[^:\s/]+):"
)


class TaskLog:
    """What a task says while it runs; each line is on disk when the call returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.warnings = 0

    def line(self, text: str) -> None:
        """Append lines."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def add_warning(self, text: str) -> None:
        """Append a warning; a task with warnings ends as `WARNINGS: n`."""
        self.warnings += 1
        self.line(f"WARN: {text}")


Work = Callable[[TaskLog], None]


@dataclass(frozen=True, slots=True)
class Task:
    """One task as its file has it; times in seconds since the epoch."""

    upid: str
    start: int
    end: int | None
    status: str | None

    def fields(self) -> dict[str, Any]:
        """Return the parts of the UPID under the API's names."""
        match = UPID.fullmatch(self.upid)
        if match is None:
            raise ValueError(self.upid)
        user, _, token = match["user"].partition("!")
        result: dict[str, Any] = {
            "upid": self.upid,
            "node": match["node"],
            "pid": int(match["pid"], 16),
            "pstart": int(match["pstart"], 16),
            "starttime": int(match["start"], 16),
            "type": match["type"],
            "id": match["id"],
            "user": user,
        }
        return result | ({"tokenid": token} if token else {})


class Tasks:
    """All tasks of a node.

    Args:
        folder: where their files are.
        node: the node's name in UPIDs.
    """

    def __init__(self, folder: Path, node: str) -> None:
        self._folder = folder
        self._node = node
        self._lock = threading.Lock()
        self._running: dict[str, threading.Thread] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._tasks: dict[str, Task] = {}
        loaded = [Task(**read_json(path, None)) for path in folder.glob("UPID*.json")]
        for task in sorted(loaded, key=lambda task: task.start)[-KEEP:]:
            self._tasks[task.upid] = task
        self._next = max((task.fields()["pid"] for task in self._tasks.values()), default=1000) + 1

    def _file(self, upid: str, suffix: str) -> Path:
        return self._folder / f"{upid}{suffix}"

    def _save(self, task: Task) -> None:
        self._tasks[task.upid] = task
        write_json(
            self._file(task.upid, ".json"),
            {"upid": task.upid, "start": task.start, "end": task.end, "status": task.status},
        )

    def start(self, auth: Auth, kind: str, subject: str, work: Work) -> str:
        """Run `work` in a thread of its own and return the UPID at once."""
        now = int(time.time())
        with self._lock:
            pid = self._next
            self._next += 1
            ticks = int(time.monotonic() * 100) & 0xFFFFFFFF
            upid = f"UPID:{self._node}:{pid:08X}:{ticks:08X}:{now:08X}:{kind}:{subject}:{auth.name}:"
            self._save(Task(upid, now, None, None))
            thread = threading.Thread(target=self._work, args=(upid, work), name=upid, daemon=True)
            self._running[upid] = thread
        thread.start()
        return upid

    def _work(self, upid: str, work: Work) -> None:
        log = TaskLog(self._file(upid, ".log"))
        try:
            work(log)
            status = f"WARNINGS: {log.warnings}" if log.warnings else "OK"
        except (TaskError, GuestError, ApiError) as error:
            status = " ".join(str(error).split("\n")).strip() or "unknown error"
        except Exception as error:  # noqa: BLE001 - like a worker that dies: its text is the task's end
            status = f"{type(error).__name__}: {error}".replace("\n", " ")
        last = (
            f"TASK {status}" if status == "OK" or status.startswith("WARNINGS") else f"TASK ERROR: {status}"
        )
        log.line(last)
        with self._lock:
            old = self._tasks[upid]
            self._save(Task(upid, old.start, int(time.time()), status))
            del self._running[upid]

    def wait(self, upid: str, timeout: float | None = None) -> None:
        """Wait for a task's end; for callers in this process."""
        thread = self._running.get(upid)
        if thread is not None:
            thread.join(timeout)

    def get(self, upid: str) -> Task | None:
        """Return a task by its UPID."""
        return self._tasks.get(upid)

    def is_running(self, task: Task) -> bool:
        """Say whether a thread of this process still runs it."""
        return task.upid in self._running

    def exit_status(self, task: Task) -> str:
        """Return how a task ended."""
        return task.status if task.status is not None else CUT_OFF

    def newest_first(self) -> list[Task]:
        """Return all known tasks."""
        with self._lock:
            return sorted(
                self._tasks.values(), key=lambda task: (task.start, task.fields()["pid"]), reverse=True
            )

    def log(self, task: Task) -> list[str]:
        """Return a task's lines so far."""
        try:
            return self._file(task.upid, ".log").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
