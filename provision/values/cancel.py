"""Explicit cancellation: first Ctrl-C drains, the second one leaves."""

from __future__ import annotations

import threading


class Interrupted(Exception):  # noqa: N818 - an outcome, not an error
    """The run was told to leave at once."""


class Cancel:
    """Shared by all threads of a run.

    `drain` means: begin nothing new, let what runs end. `leave` means: kill what runs on the targets and go.
    """

    def __init__(self) -> None:
        self._drain = threading.Event()
        self._leave = threading.Event()

    @property
    def draining(self) -> bool:
        """Whether nothing new may begin."""
        return self._drain.is_set()

    @property
    def leaving(self) -> bool:
        """Whether everything must end now."""
        return self._leave.is_set()

    def drain(self) -> None:
        """First Ctrl-C."""
        self._drain.set()

    def leave(self) -> None:
        """Second Ctrl-C."""
        self._drain.set()
        self._leave.set()

    def looking(self) -> Cancel:
        """Return it as those see it who only look: nothing acts that would have to end, so drain is leave."""
        view = Cancel()
        view._drain = view._leave = self._drain
        return view

    def wait(self, seconds: float) -> None:
        """Sleep, but raise Interrupted as soon as the run must leave."""
        if self._leave.wait(seconds):
            raise Interrupted
