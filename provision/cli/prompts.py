"""Questions to a person."""

from __future__ import annotations

import signal
import sys
import threading

from provision.report.style import printable

YES = frozenset({"y", "yes"})
NO = frozenset({"n", "no", ""})


def yes_or_no(question: str) -> bool:
    """Ask until the answer is yes or no; Enter and the end of input mean no."""
    while True:
        answer = line(f"{question} [y/N] ").strip().lower()
        if answer in YES:
            return True
        if answer in NO:
            return False


def exactly(question: str, word: str) -> bool:
    """Ask for a word; True when it was typed exactly."""
    return line(f"{question} Type {printable(word)} to continue: ").strip() == word


def line(prompt: str) -> str:
    """Return one line from the terminal; empty at the end of input.

    Raises:
        KeyboardInterrupt: the user pressed Ctrl-C: at a question it ends the command, not only the run.
    """
    if threading.current_thread() is not threading.main_thread():
        return _read(prompt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return _read(prompt)
    finally:
        signal.signal(signal.SIGINT, before)


def _read(prompt: str) -> str:
    sys.stdout.write(prompt)
    sys.stdout.flush()
    text = sys.stdin.readline()
    if not text.endswith("\n"):
        sys.stdout.write("\n")
    return text
