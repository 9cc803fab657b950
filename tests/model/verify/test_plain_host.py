"""A command of a check that fails is told in the machine's words, and not as an object of the program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.shell import ShellResult
from provision.verify.backend import host_for


class Saying:
    """Answers every command with the same result."""

    def __init__(self, result: ShellResult) -> None:
        self.result = result

    def ask(self, system: str, queries: Iterable[Any], *, fresh: bool = False) -> Snapshot:
        del fresh
        return Snapshot(system, answers=dict.fromkeys(queries, self.result))

    def held(self, system: str) -> Snapshot:
        return Snapshot(system)

    def away(self, system: str) -> str:
        del system
        return ""

    def gather(self, queries: Mapping[str, Iterable[Any]]) -> None:
        del queries


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ShellResult(1, b"", b"cat: /x: No such file or directory\n"), "cat: /x: No such file or directory"),
        (ShellResult(1, b"out\n", b""), "out"),
        (ShellResult(1, b"", b""), "it printed nothing"),
    ],
)
def test_what_a_failed_command_said_is_the_reason(result: ShellResult, text: str) -> None:
    with pytest.raises(AssertionError) as caught:
        host_for("n/ssh", Saying(result)).check_output("cat %s", "/x")
    assert str(caught.value) == f"`cat /x` ended with 1: {text}"


def test_what_a_command_printed_is_returned() -> None:
    assert host_for("n/ssh", Saying(ShellResult(0, b"a\nb\n", b""))).check_output("cat /x") == "a\nb"
