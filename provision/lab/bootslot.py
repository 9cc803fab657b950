"""Limits a lab to two virtual machines that boot at the same time.

`python -m provision.lab.bootslot LAB KEY NAME` runs beside a paused QEMU: it waits for a slot, resumes
the processors, and holds the slot until the login prompt is on the serial console or a deadline passes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from provision.lab import qmp
from provision.lab.contracts import GuestError
from provision.lab.locks import take
from provision.lab.qemu import Machine

_SLOTS = 2
_WAIT = 1800.0
_BOOT = 600.0


def slot_files(lab: Path) -> tuple[Path, ...]:
    """Return the lock files of the slots."""
    return tuple(lab / f"boot-slot-{index}" for index in range(_SLOTS))


def hold(
    machine: Machine, begin: Callable[[], None], booted: Callable[[], bool], deadline: float = _BOOT
) -> bool:
    """Wait for a slot, call `begin`, and hold the slot until the boot ends; False if it took too long."""
    slot = take(slot_files(machine.lab), _WAIT)
    try:
        begin()
        end = time.monotonic() + deadline
        while machine.pid() is not None and time.monotonic() < end:
            if booted():
                return True
            time.sleep(0.5)
        return False
    finally:
        if slot is not None:
            os.close(slot)


def _main() -> None:
    lab, key, name = sys.argv[1:]
    machine = Machine(Path(lab), key, name)
    start = machine.console.stat().st_size

    def prompt() -> bool:
        with machine.console.open("rb") as log:
            log.seek(start)
            return b" login: " in log.read()

    def begin() -> None:
        qmp.command(machine.folder, "cont")

    try:
        hold(machine, begin, prompt)
    except GuestError as error:
        if machine.pid() is not None:  # nothing else explains the empty console
            with machine.console.open("a") as log:
                log.write(f"--- {name} did not start: {error}\n")


if __name__ == "__main__":
    _main()
