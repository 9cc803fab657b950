"""A program that a machine lacks makes a check unknown, whatever its shell calls that."""

from __future__ import annotations

import re

import pytest

from provision.hosts.queries.shell import Shell, ShellKind, ShellResult
from provision.verify import backend
from tests.model.shells import SHELLS, run


@pytest.mark.parametrize("command", ["nosuchtool x", "true | nosuchtool", "nosuchtool x | cat"])
@pytest.mark.parametrize("shell", SHELLS)
def test_a_missing_program_is_named_in_every_shell(shell: str, command: str) -> None:
    query = Shell(command)
    frame = run(shell, ShellKind().script([query]))
    result = ShellKind().parse(frame, [query])[query]
    assert isinstance(result, ShellResult), result
    text = result.stderr.decode(errors="replace")
    match = re.search(backend.MISSING_PROGRAM, text)
    assert match is not None, text
    assert match[1] == "nosuchtool"
