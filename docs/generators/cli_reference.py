"""`docs/cli.md`, made from the commands themselves: `python -m provision.cli.reference`."""

from __future__ import annotations

import sys
from typing import Any

import typer

from provision.api.domains import effect_classes
from provision.cli.main import app

INTRODUCTION = """\
# Command line

`provision COMMAND --help` says the same as this page, which is made from the commands.

INVENTORY is a file, or the name of an inventory that ships with the tool: `inventories/lab.yaml`, or just
`lab`. With a `lab:` section in it, the command runs itself again, once, inside the lab's own network;
`apply` starts a lab that is not up, every other command says so.

Output goes to the terminal's width, with colours only on a terminal (`NO_COLOR` turns them off), in plain
ASCII where the encoding is not UTF-8. Results go to standard output, problems to standard error. What
ends with which code stands in [exit-codes.md](exit-codes.md), what `--json` prints in
[events.md](events.md).

The first Ctrl-C (or SIGTERM) begins nothing new and lets what runs end; the second one ends what runs on
the targets and leaves. While nothing acts (`plan`, `verify`, `apply` before its question)
the first one leaves. Running the same command again goes on where the run ended.

Signs of a plan: `+` made, `~` changed, `-/+` made anew, `-` removed, `!` needs attention.
"""
EFFECTS = """\
## Effect classes

What a change costs, in rising order of risk. `policy:` in the inventory and `--allow` name these.
`--allow` lifts *ask* for one run and never lifts *never*; what lacks consent waits, the rest goes on, and
the run ends with 5. `destroy` is its own consent: it asks for the inventory's name, or takes `--yes
--allow delete`.

| class | what happens | without a policy |
|---|---|---|
{rows}
"""
NOT_YET = """\
## Not tried

`bootstrap` was tried against stand-ins for `pveum`, `pvesh` and `pvesm` and a real SSH server. It was not run
against a real Proxmox VE: look at the role and the token that it made (`pveum role list`, `pveum acl list`).

## Not yet

Nothing real stands behind these yet, so there is no such command: {names}.
"""
PLANNED = ("kubeconfig",)


def reference() -> str:
    """Return the page."""
    root: Any = typer.main.get_command(app)  # typer's command classes are private to it
    parts = [INTRODUCTION, *_commands("provision", root)]
    effects = "\n".join(
        f"| `{cls}` | {cls.meaning} | {cls.default_consent} |" for cls in effect_classes().values()
    )
    names = ", ".join(f"`{each}`" for each in PLANNED)
    return "\n".join([*parts, EFFECTS.format(rows=effects), NOT_YET.format(names=names)])


def _commands(path: str, group: Any) -> list[str]:
    parts = []
    for name, command in group.commands.items():
        full = f"{path} {name}"
        if hasattr(command, "commands"):
            parts += _commands(full, command)
        else:
            parts.append(_command(full, command))
    return parts


def _command(path: str, command: Any) -> str:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option" and each.name != "help"]
    usage = " ".join([path, *(_name(each) for each in arguments)])
    lines = [f"## `{usage}`", "", command.help or "", ""]
    described = [each for each in arguments if each.help]
    if described or options:
        lines += ["| | |", "|---|---|"]
        lines += [f"| `{_cell(_name(each))}` | {_cell(each.help)} |" for each in described]
        lines += [f"| {_flags(each)} | {_cell(each.help or '')} |" for each in options]
        lines.append("")
    return "\n".join(lines)


def _name(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return str(name if argument.required else f"[{name}]")


def _flags(option: Any) -> str:
    metavar = "" if option.is_flag else f" {option.metavar or option.type.name.upper()}"
    return ", ".join(f"`{_cell(each + metavar)}`" for each in option.opts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
