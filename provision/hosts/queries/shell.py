"""A free query: run a read-only command, get its exit status and both streams.

Verification asks through these, so that what was asked last time is fetched with the plan's own execution.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.query import Frame, Unknown


@dataclass(frozen=True, slots=True)
class Shell:
    """One command line for `sh`; it must not change anything."""

    kind: ClassVar[str] = "shell"
    command: str


@dataclass(frozen=True, slots=True)
class ShellResult:
    """What a command answered."""

    rc: int
    stdout: bytes
    stderr: bytes


def _mark(query: Shell) -> bytes:
    return b"@" + hashlib.sha256(query.command.encode()).hexdigest()[:24].encode() + b" "


class ShellKind:
    """All commands in one fragment, each between marks that name its digest on both streams."""

    query = Shell

    def script(self, queries: Sequence[Shell]) -> str:
        """Return the fragment; each command runs in a subshell of its own without `set -e`."""
        lines = ["set +eu"]
        for query in queries:
            mark = _mark(query).decode()
            lines += [
                f"printf '\\n{mark}b\\n'; printf '\\n{mark}b\\n' >&2",
                # in a literal, so that a missing quote ends this command alone
                f"( eval {shlex.quote(query.command)}\n) </dev/null; provision_rc=$?",
                f"printf '\\n{mark}e %s\\n' \"$provision_rc\"; printf '\\n{mark}e\\n' >&2",
            ]
        lines.append("true")
        return "\n".join(lines)

    def parse(self, frame: Frame, queries: Sequence[Shell]) -> Mapping[Shell, object]:
        """Return a ShellResult for each command whose both marks came."""
        return {query: self._one(frame, query) for query in queries}

    @staticmethod
    def _one(frame: Frame, query: Shell) -> object:
        mark = _mark(query)
        _, began, rest = frame.stdout.partition(b"\n" + mark + b"b\n")
        stdout, ended, tail = rest.partition(b"\n" + mark + b"e ")
        code = tail.partition(b"\n")[0]
        if not began or not ended or not code.isdigit():
            return Unknown(f"no answer to `{query.command}`")
        stderr = frame.stderr.partition(b"\n" + mark + b"b\n")[2].partition(b"\n" + mark + b"e\n")[0]
        return ShellResult(int(code), stdout, stderr)
