"""Progress and signals while the engine works."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from provision.cli.interrupts import interrupts
from provision.cli.state import State, state
from provision.values.cancel import Cancel
from provision.values.outcomes import Outcome

if TYPE_CHECKING:
    from provision.api import Site
    from provision.report.progress import Progress
    from provision.values.diagnostics import Diagnostic
    from provision.values.events import Event


@dataclass(slots=True)
class Watch:
    """Passes events on to a renderer, remembers the journal, and ends the run early with --fail-fast.

    Args:
        show: the renderer.
        state: of this call.
        cancel: of this run.
        fail_fast: the first failed step ends the run.
        failed_fast: it did.
        hides_problems: the caller shows all problems itself.
        shown: problems that the user has read already, with the plan.
    """

    show: Callable[[Event], None]
    state: State
    cancel: Cancel
    fail_fast: bool = False
    failed_fast: bool = field(default=False, init=False)
    hides_problems: bool = field(default=False, init=False)
    shown: frozenset[Diagnostic] = field(default=frozenset(), init=False)

    def __call__(self, event: Event) -> None:
        """Take an event in."""
        from provision.values.events import Problem, RunStarted, StepEnded  # noqa: PLC0415 - keep --help fast

        if isinstance(event, RunStarted):
            self.state.journal = event.journal
        if isinstance(event, Problem) and self._is_hidden(event.diagnostic):
            return
        self.show(event)
        if self.fail_fast and isinstance(event, StepEnded) and event.outcome == Outcome.FAILED:
            self.failed_fast = not self.cancel.draining
            self.cancel.drain()

    def _is_hidden(self, diagnostic: Mapping[str, object]) -> bool:
        return self.hides_problems or diagnostic in [shown.as_json() for shown in self.shown]


def shown_progress(awaited: Callable[[], Sequence[str]], *, errors: bool = False) -> Progress:
    """Return what shows a person how far a command is.

    Args:
        awaited: returns what has not answered yet.
        errors: on standard error, because standard output is for the result.
    """
    from provision.report.progress import LiveProgress, PlainProgress  # noqa: PLC0415 - keep --help fast
    from provision.report.style import make_console  # noqa: PLC0415 - keep --help fast

    console = make_console(sys.stderr if errors else sys.stdout)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(console, awaited=awaited)
    return PlainProgress(console, awaited=awaited)


@contextmanager
def watched(
    context: typer.Context,
    site: Site,
    *,
    json: bool = False,
    errors: bool = False,
    fail_fast: bool = False,
) -> Iterator[tuple[Progress, Watch, Cancel]]:
    """Show progress and handle signals while the block runs.

    Args:
        context: of the command.
        site: what is watched.
        json: events on standard output and nothing else.
        errors: progress on standard error, because standard output is for the result.
        fail_fast: the first failed step ends the run.
    """
    from provision.report.progress import JsonLines  # noqa: PLC0415 - keep --help fast

    cancel = Cancel()
    progress = JsonLines(sys.stdout, sys.stderr) if json else shown_progress(site.awaited, errors=errors)
    watch = Watch(progress, state(context), cancel, fail_fast)
    with progress, interrupts(cancel, progress.notice):
        yield progress, watch, cancel
