"""A testinfra backend over our session: each command is a question, prefetched if it was asked before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import pytest
from testinfra.backend.base import BaseBackend, CommandResult
from testinfra.host import Host

from provision.resources.contracts import CannotTell, Snapshot
from provision.resources.host.shell import Shell, ShellResult


class Answers(Protocol):
    """Where checks get their answers: the session of the run."""

    def ask(self, system: str, queries: Iterable[Any], *, fresh: bool = False) -> Snapshot:
        """Return answers: from the snapshot at hand where it has them, all by one round trip if `fresh`.

        Raises:
            ProvisionError: the system gives no answers.
        """
        ...

    def held(self, system: str) -> Snapshot:
        """Return the answers at hand, without a round trip; an empty snapshot when there are none."""
        ...

    def gather(self, wanted: Mapping[str, Iterable[Any]]) -> None:
        """Ask several systems at once, one round trip each; one that gives no answers is left out."""
        ...

    def away(self, system: str) -> str:
        """Return why a system cannot be asked (`vm-gpu is off by hand`), or an empty string."""
        ...


class SessionBackend(BaseBackend):  # type: ignore[misc]  # testinfra ships no types
    """Runs testinfra's commands as `Shell` questions to one system."""

    NAME = "provision"

    def __init__(self, system: str, answers: Answers) -> None:
        super().__init__(system)
        self._answers = answers

    def run(self, command: str, *args: str, **_: Any) -> CommandResult:
        """Run a command; a question without an answer skips the check as *cannot tell*."""
        line = self.get_command(command, *args)
        query = Shell(line)
        answer = self._answers.ask(self.hostname, (query,))[query]
        if isinstance(answer, CannotTell):
            pytest.skip(f"cannot tell: {answer.reason}")
        if not isinstance(answer, ShellResult):
            raise TypeError(f"unexpected answer {answer!r}")
        return self.result(answer.rc, line.encode(), answer.stdout, answer.stderr)

    @property
    def encoding(self) -> str:
        """UTF-8: scripts run with LC_ALL=C and file names are bytes."""
        return "utf-8"


def host_for(system: str, answers: Answers) -> Host:
    """Return testinfra's view of one system."""
    return Host(SessionBackend(system, answers))
