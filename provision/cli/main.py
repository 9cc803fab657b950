"""The command `provision`: parse, call, render, and end with a documented exit code."""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import os
import resource
import sys
from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from provision import __version__
from provision.cli import (
    access,
    bootstrap,
    bundles,
    cards,
    cluster,
    discover,
    doctor,
    explain,
    files,
    history,
    labs,
    output,
    pins,
    reserved,
    restore,
    runs,
    status,
    unlock,
    vms,
)
from provision.cli.state import Debug, State
from provision.values.cancel import Interrupted
from provision.values.diagnostics import Diagnostic
from provision.values.errors import ProvisionError
from provision.values.outcomes import ExitCode
from provision.values.references import load_object

_GC_EVERY = 50_000
"""New objects between two looks of the garbage collector.

What a run makes (modules, models, plans) stays until its end: looking through it at every 700 new objects was
a fourth of a short run's CPU time.
"""

_OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
"""How writing to a file that was opened before may fail."""


class _Commands(TyperGroup):
    """The commands of `provision`.

    Flags that are not given have the value False from the beginning. typer leaves None, and imports pydantic
    (60 ms of CPU time) to convert it; `provision plan --help` and shell completion need nothing else of it.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options of `provision` itself."""
        _set_flags_to_false(self, ctx)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return one of the commands."""
        command = super().get_command(ctx, cmd_name) or _added_command(cmd_name)
        if command is not None:
            _set_flags_to_false(command, ctx)
        return command


def _added_command(name: str) -> Any:
    """Return a command that an installed domain adds; they are looked for only where we have none."""
    from provision.api.domains import domains  # noqa: PLC0415 - keep --help fast

    reference = next((domain.commands[name] for domain in domains() if name in domain.commands), "")
    if not reference:
        return None
    added = typer.Typer(rich_markup_mode=None)
    added.command(name)(load_object(reference))
    return typer.main.get_command(added)


def _set_flags_to_false(command: Any, context: Any) -> None:
    for option in (*command.params, command.get_help_option(context)):
        if option is not None and getattr(option, "is_bool_flag", False) and option.default is None:
            option.default = False


app = typer.Typer(
    name="provision",
    cls=_Commands,
    help="One YAML inventory, from bare machines to a verified cluster.",
    epilog="Exit codes: docs/exit-codes.md. A first command: provision plan lab",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _module in (
    files,
    runs,
    status,
    doctor,
    explain,
    history,
    cards,
    output,
    unlock,
    reserved,
    restore,
    vms,
    pins,
    bundles,
    labs,
    access,
    cluster,
    bootstrap,
    discover,
):
    _module.register(app)


def _show_version(value: bool) -> None:
    if value:
        print(f"provision {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version),
    ] = False,
    debug: Debug = False,
) -> None:
    pass


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Args:
        argv: arguments without the program's name; those of the process if None.
    """
    gc.set_threshold(_GC_EVERY, 20, 20)
    os.environ.setdefault(
        "PYDANTIC_DISABLE_PLUGINS", "__all__"
    )  # looking for some reads every package's metadata
    _raise_descriptor_limit()
    atexit.register(gc.freeze)  # the interpreter's last look through all objects frees nothing that matters
    arguments = tuple(sys.argv[1:] if argv is None else argv)
    state = State(debug=bool(os.environ.get("PROVISION_DEBUG")), argv=arguments)
    if sys.stdout is None:  # closed (`>&-`): nothing is begun, whose next open file would become the output
        return int(ExitCode.ERROR)
    _escape_what_cannot_be_encoded()
    try:
        code = _run(list(arguments), state)
        sys.stdout.flush()
    except OSError:
        # The reader went away (`provision plan | head`) or the disk of the output is full: end quietly;
        # nothing may flush into it at exit.
        _silence_stdout()
        return int(ExitCode.ERROR)
    return code


def _raise_descriptor_limit() -> None:
    """Allow as many open files as the system does: each SSH connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _called(arguments: Sequence[str]) -> str:
    """Return the first word of the command line that is no option, also of one that the shell completes."""
    words = list(arguments)
    if "_PROVISION_COMPLETE" in os.environ:
        line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
        words = line.split()[1:]
        if not line.endswith(" "):
            del words[-1:]  # it is not complete
    return next((word for word in words if not word.startswith("-")), "")


@cache
def _commands(called: str) -> Any:
    """Return the command that is called, or a list of all: reading all parameters takes 40 ms of CPU time."""
    chosen = copy(app)
    chosen.registered_commands = [info for info in app.registered_commands if _name_of(info) == called]
    chosen.registered_groups = [info for info in app.registered_groups if info.name == called]
    if not chosen.registered_commands and not chosen.registered_groups:
        chosen.registered_commands = [_listed(info) for info in app.registered_commands]
        chosen.registered_groups = app.registered_groups
    return typer.main.get_command(chosen)


def _listed(command: typer.models.CommandInfo) -> typer.models.CommandInfo:
    """Return a command as help, completion and suggestions list it: name and text without parameters."""

    def run() -> None:
        raise AssertionError(f"{_name_of(command)} is not called by its name")

    run.__name__, run.__doc__ = _name_of(command), command.callback.__doc__ if command.callback else ""
    listed = copy(command)
    listed.callback = run
    return listed


def _name_of(command: typer.models.CommandInfo) -> str:
    function = command.callback
    return command.name or (typer.main.get_command_name(function.__name__) if function else "")


def _run(argv: list[str], state: State) -> int:
    command = _commands(_called(argv))
    try:
        result = command.main(args=argv, prog_name="provision", standalone_mode=False, obj=state)
        return int(result or 0)
    except SystemExit as done:  # shell completion, and EPIPE inside typer
        return done.code if isinstance(done.code, int) else int(ExitCode.ERROR)
    except (KeyboardInterrupt, Interrupted, typer.Abort):
        with contextlib.suppress(OSError):
            print("interrupted", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)
    except typer.TyperException as problem:
        show = getattr(problem, "show", None)  # typer's usage errors know their command
        if show is not None:
            show()
        else:
            print(f"Error: {problem.format_message()}", file=sys.stderr)
        return int(ExitCode.USAGE)
    except ProvisionError as problem:
        _show(problem.diagnostics, state)
        return int(problem.exit_code)
    except Exception as problem:  # noqa: BLE001 - the last line of defence: a user never sees a bare traceback
        _raise_of_output(problem)
        _show((_internal(problem, state),), state)
        return int(ExitCode.ERROR)


def _raise_of_output(problem: Exception) -> None:
    """Raise what standard output raised; everything else is for the caller.

    Raises:
        OSError: the output takes no more.
    """
    if isinstance(problem, BrokenPipeError):
        raise problem
    if isinstance(problem, OSError) and problem.errno in _OUTPUT_ERRORS and problem.filename is None:
        # Such an error does not say whose it was: the output is asked; one that works gets an empty line.
        sys.stdout.write("\n")
        sys.stdout.flush()


def _internal(problem: Exception, state: State) -> Diagnostic:
    """Return the one paragraph that an unexpected exception becomes."""
    journal = f" The journal of the run is {state.journal}." if state.journal else ""
    # The exception's own text may hold anything, a secret included: type and place are enough to begin.
    frame = problem.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = f" in {os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}" if frame else ""  # noqa: PTH119 - a name out of a code object, no path of ours
    return Diagnostic(
        "INTERNAL",
        f"provision itself failed: {type(problem).__name__}{place}. This is a defect of the tool, "
        f"not of your inventory.{journal}",
        remedy="run it again with --debug and report the traceback; look through it for secrets first",
    )


def _show(diagnostics: Sequence[Diagnostic], state: State) -> None:
    """Show what ended the call, with its traceback if that is asked for; secrets are masked."""
    from provision.cli.state import err  # noqa: PLC0415 - keep --help fast
    from provision.report.problems import print_diagnostics  # noqa: PLC0415 - keep --help fast

    print_diagnostics(err(), [diagnostic.masked(state.redactor.text) for diagnostic in diagnostics])
    if state.debug:
        import traceback  # noqa: PLC0415 - only here

        print(state.redactor.text(traceback.format_exc()), end="", file=sys.stderr)


def _escape_what_cannot_be_encoded() -> None:
    """A name that the terminal's encoding lacks is escaped, and is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            with contextlib.suppress(ValueError):
                reconfigure(errors="backslashreplace")


def _silence_stdout() -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
