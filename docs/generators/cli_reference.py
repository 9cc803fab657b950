"""`docs/cli.md`, made from the commands themselves: `python -m provision.cli.reference`."""

from __future__ import annotations

from typing import Any

import typer

from provision.api.domains import effect_classes
from provision.cli.main import app

INTRODUCTION = """\
# Commands

<!-- run: starter fresh -->
```console
$ provision --help
```

`provision COMMAND --help` shows what this page shows for one command.

- **INVENTORY** is a file, or the name of a shipped inventory: `inventories/lab.yaml`, or just `lab`. If it
  has the section `lab:`, the command runs inside [the lab's](lab.md) network. `apply` starts a lab that is
  not up.
- **Output**: results go to standard output, problems to standard error. Colours are used only on a
  terminal, and `NO_COLOR` turns them off. See also [exit codes](exit-codes.md) and [events](events.md)
  (`--json`).
- **Ctrl-C** (or SIGTERM): the first one begins nothing new and lets running actions finish. The second one
  ends what runs on the targets, and leaves. Run the same command again to resume. A command that only looks
  (`plan`, `verify`) leaves at the first one.
- **Signs of a plan**: `+` created, `~` changed, `-/+` replaced, `-` removed, `!` needs attention.
"""
EFFECTS = """\
## Effect classes

What a change may cost, in rising order of risk: the words of `--allow` and of `policy:` in the inventory.
[Consent](consent.md) explains how they work.

| class | what happens | without a policy |
|---|---|---|
{rows}
"""

NOT_YET = """\
## Not tested yet

`bootstrap` was run against stand-ins for `pveum`, `pvesh` and `pvesm` and a real SSH server, not against a
real Proxmox VE host. Look at the role and the token that it created: `pveum role list`, `pveum acl list`.

`kubeconfig` was run against a stand-in of the cluster's API only.
"""


def reference() -> str:
    """Return the page."""
    root: Any = typer.main.get_command(app)  # typer's command classes are private to it
    parts = [INTRODUCTION, *_commands("provision", root)]
    effects = "\n".join(
        f"| `{cls}` | {cls.meaning} | {cls.default_consent} |" for cls in effect_classes().values()
    )
    return "\n".join([*parts, EFFECTS.format(rows=effects), NOT_YET])


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
    shown = [param for param in command.params if not getattr(param, "hidden", False)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option" and each.name != "help"]
    usage = " ".join([path, *(_name(argument) for argument in arguments)])
    lines = [f"## `{usage}`", "", command.help or "", ""]
    described = [argument for argument in arguments if argument.help]
    if described or options:
        lines += ["| argument or option | meaning |", "|---|---|"]
        lines += [f"| `{_cell(_name(each))}` | {_cell(each.help)} |" for each in described]
        lines += [f"| {_flags(option)} | {_cell(option.help or '')} |" for option in options]
        lines.append("")
    return "\n".join(lines)


def _name(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return str(name if argument.required else f"[{name}]")


def _flags(option: Any) -> str:
    metavar = "" if option.is_flag else f" {option.metavar or option.type.name.upper()}"
    return ", ".join(f"`{_cell(opt + metavar)}`" for opt in option.opts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
