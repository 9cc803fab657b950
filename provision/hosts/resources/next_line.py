"""The kernel line of the next boot, judged by what boot loaders will read; and whether a boot has helped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from provision.contracts.change import Change, Op, Settles
from provision.contracts.snapshot import Snapshot
from provision.hosts import host_effects
from provision.hosts.operations import basic as ops
from provision.hosts.queries.boot_line import GRUB_DROP_IN, OURS, BootLine, BootLineStatus
from provision.hosts.queries.file import FileText
from provision.hosts.resources.base import HEADER, HostResource, Operations, Part
from provision.inventory.kernel_line import missing_arguments, split_entries

ADDED = FileText("/etc/kernel/provision-arguments")
"""What provision has added to the kernel line, and during which boot: only this is ever removed from it."""
_BOOT = re.compile(rb"(?m)^# boot (\S+)$")


def record(arguments: str, boot: str) -> ops.Operation:
    """Return what notes our arguments and the present boot; without arguments there is no note."""
    if not arguments:
        return ops.RemoveFile(ADDED.path)
    return ops.WriteFile(ADDED.path, f"{HEADER}# boot {boot}\n{arguments}\n".encode())


def in_order(arguments: str) -> str:
    """Return arguments sorted, each member of a module list by itself: one way to write a record down."""
    return " ".join(sorted(set(split_entries(arguments))))


def recorded(content: bytes | None) -> str:
    """Return the arguments in our record; comments are not arguments."""
    lines = (content or b"").decode("utf-8", "replace").split("\n")
    return in_order(" ".join(line for line in lines if not line.startswith("#")))


def lacking_at_boot(snapshot: Snapshot, loader: str, arguments: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the arguments that generated configurations lack, by file; nothing where none was readable."""
    status: BootLineStatus = snapshot[BootLine()]
    lacking = {file: missing_arguments(line, arguments) for file, line in status.of(loader)}
    return {file: missing for file, missing in lacking.items() if missing}


def has_booted_since(snapshot: Snapshot) -> bool:
    """Whether the host has booted since our arguments were written, and owes nothing for them."""
    match = _BOOT.search(snapshot[ADDED] or b"")
    if match is None or match[1].decode("ascii", "replace") == snapshot.boot_id:
        return False
    owed = (pending.effect.cls for pending in snapshot.pending)
    return not any(cls == host_effects.BOOT_LOADER or cls.reboots for cls in owed)


@dataclass(frozen=True, slots=True)
class NextLine:
    """What boot loaders will read has our arguments, and no other file drops them.

    Args:
        resource: the resource that writes them.
        loader: `grub` or `systemd-boot`.
        arguments: what the next boot must have.
        written: the file that we write.
    """

    resource: HostResource
    loader: str
    arguments: tuple[str, ...]
    written: Part

    def queries(self) -> tuple[Any, ...]:
        """Return the queries: what is generated, our record, our file."""
        return BootLine(), ADDED, *self.written.queries()

    def _dropped(self, snapshot: Snapshot) -> tuple[str, tuple[str, ...]]:
        """Return the file that is read after ours and drops or overrides arguments of it, and these."""
        status: BootLineStatus = snapshot[BootLine()]
        if self.loader != "grub":
            return "", ()
        missing = missing_arguments(status.defaults, self.arguments)
        if status.overriding and missing:
            return status.overriding, missing
        lines = ((file, line.replace(OURS, " ".join(self.arguments))) for file, line in status.later)
        rows = [(file, missing_arguments(line, self.arguments)) for file, line in lines]
        # only the last state counts; who brought it about is the first file since when it is so
        if not rows or not rows[-1][1]:
            return "", ()
        start = max((index for index, (_, lacking) in enumerate(rows) if not lacking), default=-1) + 1
        return rows[start][0], rows[-1][1]

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what the next boot lacks although our file is as it should be, or would be dropped."""
        file, dropped = self._dropped(snapshot)
        if dropped:
            return (Change(Op.ATTENTION, "value", f"dropped by {file}", " ".join(dropped)),)
        if self.written.changes(snapshot):
            return ()
        return tuple(
            Change(Op.UPDATE, "value", f"not in {file}", " ".join(missing), Settles.AFTER_EFFECT)
            for file, missing in lacking_at_boot(snapshot, self.loader, self.arguments).items()
        )

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return the note of the boot in which the configuration is generated again, or who drops it."""
        file, dropped = self._dropped(snapshot)
        if not dropped:
            return (record(in_order(" ".join(self.arguments)), snapshot.boot_id),)
        return self.resource.refusal(
            "KERNEL_LINE_OVERRIDDEN",
            f"{file} is read after {GRUB_DROP_IN} and drops or overrides what that adds: {' '.join(dropped)}",
            untouched="the kernel command line was not changed",
            remedy=f"begin its value in {file} with what was there, and leave these keys to the inventory: "
            'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT ..."',
        )
