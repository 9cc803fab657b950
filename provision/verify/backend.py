"""A testinfra backend over our session: each command is a question, prefetched if it was asked before."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import pytest
from testinfra.backend.base import BaseBackend, CommandResult
from testinfra.host import Host

from provision.contracts.query import ApiReply, Unknown
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.shell import Shell, ShellResult

_OVERDUE = (124, 137)
"""What timeout(1) ends with when it had to end the command: by SIGTERM, by SIGKILL."""


MISSING_PROGRAM = re.compile(
    r"(?m)^(?:\S*sh: |\S+: (?=eval|line |\d))(?:(?:eval|line \d+|\d+): )*"
    r"([A-Za-z0-9_.-]+): (?:command )?not found$"
)
"""What dash, bash and busybox say of a command that is not there, also within a pipe."""
_NO_SYSTEMD = "not been booted with systemd"
"""Part of what systemctl says without a running systemd."""


class Answers(Protocol):
    """Where checks get their answers: the session of the run."""

    def ask(self, system: str, queries: Iterable[Any], *, fresh: bool = False) -> Snapshot:
        """Return answers: from the snapshot at hand where it has them, all by one round trip if `fresh`.

        Raises:
            ProvisionError: the system gives no answers.
        """

    def held(self, system: str) -> Snapshot:
        """Return the answers at hand, without a round trip; an empty snapshot when there are none."""

    def gather(self, queries: Mapping[str, Iterable[Any]]) -> None:
        """Ask several systems at once, one round trip each; one that gives no answers is left out."""

    def away(self, system: str) -> str:
        """Return why a system cannot be asked (`vm-gpu is off by hand`), or an empty string."""


class Requests(Protocol):
    """How checks that make something send their requests; see `contracts.check.Trials`."""

    def away(self, system: str) -> str:
        """Return why a system cannot be asked, or an empty string."""

    def send(self, system: str, method: str, path: str, body: Mapping[str, object] | None = None) -> ApiReply:
        """Send one request of a check to an API."""

    def pause(self, seconds: float, *, final: bool = False) -> None:
        """Wait."""


class SessionBackend(BaseBackend):  # type: ignore[misc]  # testinfra ships no types
    """Runs testinfra's commands as `Shell` questions to one system.

    Args:
        system: whom it asks.
        answers: the session.
        timeout: seconds that a command may take; it is ended on the host by timeout(1) then.
    """

    NAME = "provision"

    def __init__(self, system: str, answers: Answers, timeout: int | None = None) -> None:
        super().__init__(system)
        self._answers = answers
        self._timeout = timeout

    def run(self, command: str, *args: str, **_: Any) -> CommandResult:
        """Run a command; a question without an answer skips the check as *unknown*."""
        line = self.get_command(command, *args)
        query = Shell(within(line, self._timeout))
        answer = self._answers.ask(self.hostname, (query,))[query]
        if isinstance(answer, Unknown):
            pytest.skip(f"unknown: {answer.reason}")
        if not isinstance(answer, ShellResult):
            raise TypeError(f"unexpected answer {answer!r}")
        if self._timeout is not None and answer.rc in _OVERDUE:
            pytest.skip(f"unknown: `{line}` took longer than {self._timeout} s (verify.timeout)")
        if reason := _cannot_run(answer):
            pytest.skip(f"unknown: {reason} on {self.hostname.removesuffix('/ssh')}")
        return self.result(answer.rc, line.encode(), answer.stdout, answer.stderr)

    @property
    def encoding(self) -> str:
        """UTF-8: scripts run with LC_ALL=C and file names are bytes."""
        return "utf-8"


class PlainHost(Host):  # type: ignore[misc]  # testinfra ships no types
    """Testinfra's view of a system; a command that fails is told in the words of the machine."""

    def check_output(self, command: str, *args: str, **options: Any) -> str:
        """Return what a command printed; the check fails where it ended with an error."""
        out = self.run(command, *args, **options)
        said = (out.stderr.strip() or out.stdout.strip() or "it printed nothing").splitlines()[-1]
        if out.rc != 0:
            raise AssertionError(f"`{self.backend.get_command(command, *args)}` ended with {out.rc}: {said}")
        return str(out.stdout.rstrip("\r\n"))


def _cannot_run(answer: ShellResult) -> str:
    """Return what a command lacked to look at anything, or an empty string."""
    text = answer.stderr.decode(errors="replace")
    if tool := MISSING_PROGRAM.search(text):
        return f"{tool[1]} is not installed"
    return "systemd does not run" if answer.rc and _NO_SYSTEMD in text else ""


def within(command: str, timeout: int | None) -> str:
    """Return a command that ends after some seconds, if any are given."""
    return command if timeout is None else f"timeout -k 2 {timeout} sh -c {shlex.quote(command)}"


def host_for(system: str, answers: Answers, timeout: int | None = None) -> Host:
    """Return testinfra's view of one system."""
    return PlainHost(SessionBackend(system, answers, timeout))
