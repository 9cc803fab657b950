from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import provision
from provision.cli.main import app

SOURCE = Path(provision.__file__).parent
NAMED = re.compile(r"(?<![\w./-])provision ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?")
PROSE = frozenset(
    {
        "itself",
        "does not",
        "did not",
        "would lock",
        "changes nothing",
        "event",
        "runs on",
        "inventory",
        "out",
        "lab guest",
    }
)
"""What follows the name where no command is meant."""


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield all texts that a user may read: strings, with what is filled in left as X; no docstrings."""
    silent: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            silent.add(node.value)  # docstrings, also of attributes
        if isinstance(node, ast.JoinedStr):
            silent.update(node.values)
            parts = [each.value if isinstance(each, ast.Constant) else "X" for each in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in silent:
            yield node.lineno, node.value


@cache
def commands() -> dict[str, tuple[str, ...]]:
    """Return all commands, with those of a group."""
    root: Any = typer.main.get_command(app)
    return {name: tuple(getattr(each, "commands", ())) for name, each in root.commands.items()}


def wrong(text: str, known: dict[str, tuple[str, ...]]) -> list[str]:
    """Return what a text names as a command and is none."""
    found = []
    for match in NAMED.finditer(text):
        first, second = match[1], match[2] or ""
        if first in PROSE or f"{first} {second}" in PROSE:
            continue
        if first not in known or (known[first] and second and second not in known[first]):
            found.append(match[0])
    return found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("provision trust X router", []),
        ("take it over: provision impart X", ["provision impart"]),
        ("provision lab up X", []),
        ("provision lab upp X", ["provision lab upp"]),
        ("provision runs on X, which has to reboot", []),
        ("provision-lab is", []),
    ],
)
def test_a_command_that_does_not_exist_is_found(text: str, said: list[str]) -> None:
    assert wrong(text, commands()) == said


def test_every_command_that_a_text_names_is_one() -> None:
    known = commands()
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {each}"
        for path in SOURCE.rglob("*.py")
        if "provision " in (source := path.read_text(encoding="utf-8"))  # parsing all takes seconds
        for line, text in texts(ast.parse(source))
        for each in wrong(text, known)
    ]
    assert found == []


QUOTED = re.compile(r"`[^`]*`")
COMMAND = re.compile(
    r"(?<![\\w./-])(?:provision (?:plan|apply|verify|pin|image|import|rebuild|trust|bootstrap|cards|lab)"
    r"|ssh-keygen|ssh-copy-id|qm|pvesm|pveum|systemctl|lspci|journalctl) [a-z{X-]"
)
"""A command that a user would copy."""


POSITIONS = {"usage": 2, "LabError": 1}
"""Where the remedy is among the arguments of what raises."""


def remedies(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the texts that are given as a remedy: by keyword, to a variable of that name, or to `usage`."""
    for node in ast.walk(tree):
        values: list[ast.expr] = []
        if isinstance(node, ast.keyword) and node.arg == "remedy":
            values = [node.value]
        elif isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            named = [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            if any(name.id == "remedy" for name in named):
                values = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in POSITIONS:
            values = node.args[POSITIONS[node.func.id] :]
        for value in values:
            yield from texts(value)


def unquoted(text: str) -> list[str]:
    """Return the commands of a text that do not stand in backticks."""
    return [match[0] for match in COMMAND.finditer(QUOTED.sub("", text))]


def test_an_unquoted_command_is_found() -> None:
    assert unquoted("make it: provision apply X") == ["provision apply X"]
    assert unquoted("see `lspci -nn`, or `provision cards X`") == []


def test_commands_of_remedies_are_quoted() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {command}"
        for path in SOURCE.rglob("*.py")
        if any(word in (source := path.read_text(encoding="utf-8")) for word in ("remedy", *POSITIONS))
        for line, text in remedies(ast.parse(source))
        for command in unquoted(text)
    ]
    assert found == []


@pytest.mark.parametrize("page", sorted((SOURCE.parent / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_every_command_that_a_page_names_is_one(page: Path) -> None:
    code = re.findall(
        r"^```sh\n.*?^```|`[^`\n]+`", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert [found for each in code for found in wrong(each, commands())] == []
