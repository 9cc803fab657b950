"""What all commands share: tracebacks on demand, where to print, and the error for wrong usage."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError
from provision.values.redaction import Redactor

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(slots=True)
class State:
    """One call of the command line.

    Args:
        debug: whether an unexpected error shows its traceback.
        journal: where the run wrote its journal, once known.
        argv: the arguments of this call.
        redactor: knows every secret that this call has opened: masks what errors say.
    """

    debug: bool = False
    journal: str = ""
    argv: tuple[str, ...] = ()
    redactor: Redactor = field(default_factory=Redactor)


def state(context: typer.Context) -> State:
    """Return the state of this call."""
    current = context.find_root().obj
    return current if isinstance(current, State) else State()


def _set_debug(context: typer.Context, value: bool) -> bool:
    if value:
        state(context).debug = True
    return value


Debug = Annotated[
    bool,
    typer.Option("--debug", help="Show tracebacks and round trips.", is_eager=True, callback=_set_debug),
]
"""The option that every command takes."""


def out() -> Console:
    """Return a console on standard output."""
    from provision.report.style import make_console  # noqa: PLC0415 - keep --help fast

    return make_console(sys.stdout)


def err() -> Console:
    """Return a console on standard error."""
    from provision.report.style import make_console  # noqa: PLC0415 - keep --help fast

    return make_console(sys.stderr)


def say(text: str) -> None:
    """Print a message on standard output; commands that it quotes by backticks get lines of their own."""
    from provision.report.problems import print_sentences  # noqa: PLC0415 - keep --help fast

    print_sentences(out(), text)


def usage(code: str, summary: str, remedy: str = "") -> UsageError:
    """Return the error for wrong usage: exit 64."""
    return UsageError(Diagnostic(code, summary, remedy=remedy))


def on_terminal() -> bool:
    """Whether a person can be asked: input and output are terminals."""
    try:
        return sys.stdin.isatty() and sys.stdout.isatty()
    except (AttributeError, ValueError):  # closed streams
        return False
