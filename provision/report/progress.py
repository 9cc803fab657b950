"""What a run does right now: a live table on a terminal, dated lines elsewhere, or one JSON event a line."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from provision.engine.hooks import is_hook
from provision.engine.reboot import REBOOT
from provision.report.problems import grouped, subject_names
from provision.report.sentences import diagnostic_of, sentences
from provision.report.style import count, duration, glyphs, printable, roughly, say, shorten, ticking
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.events import (
    ChangeMade,
    CheckDone,
    Event,
    Problem,
    RunStarted,
    StepEnded,
    StepProgress,
    StepStarted,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

HEARTBEAT = 10.0
"""Seconds without a line after which a running step says that it still runs."""
AWAITED_SHOWN = 3
"""Systems without an answer that are named."""

Clock = Callable[[], float]
Awaited = Callable[[], Sequence[str]]
"""Returns the systems that were asked and have not answered yet."""


def nothing_awaited() -> Sequence[str]:
    """Answer where nobody knows which systems are asked."""
    return ()


class Progress(Protocol):
    """Receives all events of a run, from any thread."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

    def __call__(self, event: Event) -> None:
        """Show an event."""

    def notice(self, text: str) -> None:
        """Show a line soon; safe inside a signal handler."""

    def pause(self) -> None:
        """Stop drawing, so that a person can be asked."""

    def resume(self) -> None:
        """Draw again."""


class JsonLines:
    """One event a line, flushed at once, nothing else on the stream."""

    def __init__(self, stream: TextIO, notices: TextIO) -> None:
        self._stream = stream
        self._notices = notices
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stream.flush()

    def __call__(self, event: Event) -> None:
        """Write an event as JSON."""
        line = json.dumps(event.as_json(), ensure_ascii=True, separators=(",", ":"), default=str)
        with self._lock:
            self._stream.write(line + "\n")
            self._stream.flush()

    def notice(self, text: str) -> None:
        """Write a line to the other stream."""
        self._notices.write(text + "\n")

    def pause(self) -> None:
        """Nothing is drawn."""

    def resume(self) -> None:
        """Nothing is drawn."""


@dataclass(slots=True)
class _Row:
    """A step that runs: since when, its last line of output and since when that is the last one."""

    role: str
    since: float
    usually: float = 0.0
    line: str = ""
    line_since: float = 0.0
    shown: float = 0.0
    announced: bool = False


@dataclass(slots=True)
class _Totals:
    """How far the run is, and what was announced but not printed yet."""

    verb: str = ""
    inventory: str = ""
    steps: int = 0
    ended: int = 0
    checks: int = 0
    checks_ended: int = 0
    warnings: list[Diagnostic] = field(default_factory=list)
    problem: str = ""
    """The error that was printed last: the step that it ended does not repeat it."""

    @property
    def text(self) -> str:
        """`apply lab: 3 of 12 steps`."""
        parts = []
        if self.steps:
            parts.append(f"{self.ended} of {count(self.steps, 'step')}")
        if self.checks_ended:
            total = f" of {self.checks}" if self.checks else ""
            parts.append(f"{self.checks_ended}{total} checks")
        name = f"{self.verb} {self.inventory}".strip()
        return ": ".join(part for part in (name, ", ".join(parts)) if part)


class _Ticking:
    """Shared by the renderers for people: rows by step, totals, a thread that ticks, notices."""

    period = 1.0

    def __init__(self, clock: Clock, awaited: Awaited) -> None:
        self._clock = clock
        self._awaited = awaited
        self._rows: dict[tuple[str, str], _Row] = {}
        self._totals = _Totals()
        self._lock = threading.RLock()
        self._notices: deque[str] = deque()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def notice(self, text: str) -> None:
        self._notices.append(text)

    def tick(self) -> None:
        """Show notices and what time alone changes."""
        self._flush_warnings()
        while self._notices:
            self._say(self._notices.popleft(), "bold yellow")

    def _say(self, text: str, style: str = "") -> None:
        raise NotImplementedError

    def _start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._loop, name="progress", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        while not self._stop.wait(self.period):
            self.tick()

    def _end(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _show(self, event: Event) -> None:
        """Print an event as sentences; warnings wait for those of the same code that come with them."""
        diagnostic = diagnostic_of(event.diagnostic) if isinstance(event, Problem) else None
        if diagnostic is not None and diagnostic.severity is not Severity.ERROR:
            with self._lock:
                self._totals.warnings.append(diagnostic)
            return
        self._flush_warnings()
        if diagnostic is not None:
            self._totals.problem = diagnostic.summary
        elif isinstance(event, StepEnded) and event.reason and event.reason == self._totals.problem:
            event = replace(event, reason="")
        for text, style in sentences(event):
            self._say(text, style)

    def _flush_warnings(self) -> None:
        with self._lock:
            warnings, self._totals.warnings = self._totals.warnings, []
        for group in grouped(warnings):
            first = group[0]
            subjects = subject_names(group)
            others = len({warning.summary for warning in group}) - 1
            more = f" (and {count(others, 'more message')})" if others else ""
            place = f"{subjects}: " if subjects else ""
            self._say(printable(f"{place}{first.code}: {first.summary}{more}"), "yellow")

    def _follow(self, event: Event) -> None:
        """Keep rows and totals up to date."""
        now = self._clock()
        if isinstance(event, RunStarted):
            self._totals.verb, self._totals.inventory = printable(event.verb), printable(event.inventory)
            self._totals.steps = event.steps
        elif isinstance(event, StepStarted):
            self._rows[event.subject, event.role] = _Row(event.role, now, event.usually, shown=now)
        elif isinstance(event, StepProgress):
            row = self._rows.setdefault((event.subject, event.role), _Row(event.role, now, shown=now))
            row.line, row.line_since = printable(event.line.strip()), now
        elif isinstance(event, StepEnded):
            self._rows.pop((event.subject, event.role), None)
            self._totals.ended += event.role != REBOOT and not is_hook(event.role)  # no steps of the plan
        elif isinstance(event, CheckDone):
            self._totals.checks_ended += 1
            self._totals.checks = event.total


class PlainProgress(_Ticking):
    """Dated lines for logs: what began, what changed, how it ended, and every 10 s what still runs."""

    def __init__(
        self,
        console: Console,
        clock: Clock = time.monotonic,
        wall: Clock = time.time,
        awaited: Awaited = nothing_awaited,
    ) -> None:
        super().__init__(clock, awaited)
        self._console = console
        self._wall = wall
        self._shown = clock()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()
        self.tick_notices()

    def tick_notices(self) -> None:
        """Show the notices that came after the last tick."""
        _Ticking.tick(self)

    def tick(self) -> None:
        """Say what still runs when it has been silent for 10 s."""
        super().tick()
        with self._lock:
            now = self._clock()
            for (subject, role), row in sorted(self._rows.items()):
                if not row.announced and now - row.since >= 1:
                    # Only now: most steps end at once, and a line for each beginning would hide the others.
                    row.announced = True
                    usual = f" (usually {roughly(row.usually)})" if row.usually else ""
                    self._say(printable(f"{subject}: {role}: begun{usual}"), "dim")
                if now - row.shown >= HEARTBEAT:
                    row.shown = now
                    self._say(
                        f"{subject}: {role}: still running, {duration(now - row.since)}{self._hint(row)}"
                    )
            systems = awaited_text(self._awaited())
            if systems and not self._rows and now - self._shown >= HEARTBEAT:
                self._say(f"{systems} ({self._totals.text})" if self._totals.text else systems)

    def _hint(self, row: _Row) -> str:
        usual = f", usually {roughly(row.usually)}" if row.usually else ""
        return f"{usual}: {row.line}" if row.line else usual

    def __call__(self, event: Event) -> None:
        """Print what a reader of a log wants to know of an event."""
        with self._lock:
            self._follow(event)
            self._show(event)
            if isinstance(event, ChangeMade):
                row = self._rows.get((event.subject, event.role))
                if row is not None:
                    row.shown = self._clock()
                    row.announced = True  # who has read what it did needs no word that it begins

    def pause(self) -> None:
        """Nothing is drawn over."""

    def resume(self) -> None:
        """Nothing is drawn over."""

    def _say(self, text: str, style: str = "") -> None:
        stamp = time.strftime("%H:%M:%S", time.localtime(self._wall()))
        with self._lock:
            self._shown = self._clock()
            say(self._console, f"{stamp} {text}", style, indent=len(stamp) + 3)


class LiveProgress(_Ticking):
    """How far the run is, and a row for each step that runs; what ended scrolls away above them."""

    period = 0.25

    def __init__(
        self, console: Console, clock: Clock = time.monotonic, awaited: Awaited = nothing_awaited
    ) -> None:
        super().__init__(clock, awaited)
        self._console = console
        self._signs = glyphs(console.encoding)
        self._live: Live | None = None
        self._began = clock()

    def __enter__(self) -> Self:
        self.resume()
        return self

    def __exit__(self, *exc: object) -> None:
        self.pause()
        super().tick()

    def tick(self) -> None:
        """Draw the table again."""
        super().tick()
        with self._lock:
            if self._live is not None:
                self._live.update(self.table(), refresh=True)

    def __call__(self, event: Event) -> None:
        """Take an event in; the next tick draws it."""
        with self._lock:
            self._follow(event)
        self._show(event)

    def pause(self) -> None:
        """Take the table off the screen."""
        self._end()
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None

    def resume(self) -> None:
        """Put the table back, below what was printed meanwhile."""
        from rich.live import Live  # noqa: PLC0415 - slow to import

        with self._lock:
            # A new one each time: a Live that starts again wipes the lines above the cursor.
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._start()

    def table(self) -> Table:
        """Return the lines to draw: how far the run is, then a row for each step that runs."""
        from rich.table import Table  # noqa: PLC0415 - slow to import
        from rich.text import Text  # noqa: PLC0415 - slow to import

        # Never the whole width: the echo of ^C would begin a new line, and the table lose its place.
        width = max(20, self._console.width - 4)
        table = Table(box=None, show_header=False, padding=0, width=width)
        table.add_column(no_wrap=True, overflow="crop")
        now = self._clock()
        table.add_row("")  # apart from what has scrolled away above
        table.add_row(Text(shorten(self._head(now), width, self._signs.ellipsis), style="bold"))
        running = sorted(self._rows.items(), key=lambda item: item[1].since)
        room = max(3, self._console.height - 5)
        cells = [
            (printable(subject), printable(role), self._spent(row, now))
            for (subject, role), row in running[:room]
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for (_, row), cell in zip(running, cells, strict=False):
            line = "  ".join(f"{text:<{size}}" for text, size in zip(cell, widths, strict=True))
            output = self._output(row, now)
            table.add_row(shorten(f"{line}  {output}".rstrip(), width, self._signs.ellipsis))
        if len(running) > room:
            table.add_row(f"and {len(running) - room} more")
        return table

    def _head(self, now: float) -> str:
        """Return how far the run is, for how long it runs, and which systems it waits for."""
        parts = [self._totals.text, ticking(now - self._began), awaited_text(self._awaited())]
        return ", ".join(part for part in parts if part)

    def _spent(self, row: _Row, now: float) -> str:
        usual = f" (usually {roughly(row.usually)})" if row.usually else ""
        return f"{ticking(now - row.since)}{usual}"

    def _output(self, row: _Row, now: float) -> str:
        """Return the last line of output; one that is old says for how long nothing came after it."""
        age = now - row.line_since
        return f"[{ticking(age)} ago] {row.line}" if row.line and age >= HEARTBEAT else row.line

    def _say(self, text: str, style: str = "") -> None:
        with self._lock:
            say(self._console, text, style)


def awaited_text(systems: Sequence[str]) -> str:
    """Return which systems have not answered yet: `waiting for node-1/ssh, node-2/ssh and 3 more`."""
    if not systems:
        return ""
    names = [printable(system) for system in sorted(systems)]
    more = f" and {len(names) - AWAITED_SHOWN} more" if len(names) > AWAITED_SHOWN else ""
    return f"waiting for {', '.join(names[:AWAITED_SHOWN])}{more}"
