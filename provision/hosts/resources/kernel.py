"""Kernel modules, blacklists and the kernel command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from provision.contracts.change import Change, Op, Settles
from provision.contracts.effect import Effect
from provision.contracts.remedy import Impossible
from provision.contracts.snapshot import Snapshot
from provision.hosts import host_effects
from provision.hosts.operations import basic as ops
from provision.hosts.operations import edit as ops_edit
from provision.hosts.operations import notes
from provision.hosts.queries.boot_line import GRUB_DROP_IN, BootLine, BootLineStatus
from provision.hosts.queries.file import FileText, digest_of
from provision.hosts.queries.kernel import CMDLINE, ModuleState, module_name
from provision.hosts.resources.base import HEADER, Composite, Live, Operations, Part, checked_name
from provision.hosts.resources.built_in import BuiltIn, initcall_of
from provision.hosts.resources.file import File
from provision.hosts.resources.next_line import (
    ADDED,
    NextLine,
    has_booted_since,
    in_order,
    lacking_at_boot,
    record,
    recorded,
)
from provision.inventory.kernel_line import (
    OPPOSITES,
    OPTION_LISTS,
    Entry,
    argument_problem,
    entries,
    grub_word,
    is_single,
    missing_arguments,
    parse,
    united_arguments,
    without_arguments,
)

KERNEL_CMDLINE = "/etc/kernel/cmdline"
LOADERS = ("grub", "systemd-boot")
"""Boot loaders whose arguments are managed."""
INITRAMFS = Effect(host_effects.INITRAMFS)
BOOT_LOADER = Effect(host_effects.BOOT_LOADER)


@dataclass(frozen=True, slots=True)
class KernelModule(Composite):
    """A module that is loaded now and at boot, with options; or no longer at boot.

    Args:
        name: module name.
        options: module options (`a=1 b=2`); empty is none of ours.
        absent: our files must not be there; the module itself stays loaded until the next boot.
        reboot: what makes a module that is loaded take other options; None leaves it with those it has.
    """

    kind: ClassVar[str] = "kernel-module"

    name: str
    options: str = ""
    absent: bool = False
    reboot: Effect | None = None

    def __post_init__(self) -> None:
        checked_name(self.name)
        if "\n" in self.options:
            raise ValueError(f"options of {self.name} hold a newline")

    def _key_name(self) -> str:
        return module_name(self.name)

    @property
    def files(self) -> tuple[File, File]:
        """The files of modules-load.d(5) and modprobe.d(5)."""
        load = None if self.absent else f"{HEADER}{self.name}\n"
        options = (
            f"{HEADER}options {self.name} {self.options}\n" if self.options and not self.absent else None
        )
        paths = (
            f"/etc/modules-load.d/provision-{self.name}.conf",
            f"/etc/modprobe.d/provision-{self.name}-options.conf",
        )
        return (
            File.of_text(self.system, paths[0], load, self.source),
            File.of_text(self.system, paths[1], options, self.source),
        )

    @property
    def _state(self) -> ModuleState:
        return ModuleState(module_name(self.name))

    def parts(self) -> Mapping[str, Part]:
        """Return both files, and the loaded module: it takes its options while it is loaded."""
        load, options = self.files
        parts: dict[str, Part] = {"options": options, "at boot": load}
        if self.options and not self.absent:
            arguments = tuple(f"{self.name}.{option.plain}" for option in parse(self.options))
            quoted = tuple(f'"{argument}"' if " " in argument else argument for argument in arguments)
            parts["built in"] = BuiltIn(self, self._state, "options in modprobe.d have", quoted)
        if not self.absent:
            parts["loaded"] = Live(
                self._state,
                lambda state: "not loaded" if state == "absent" else "loaded",
                "loaded",
                (notes.Note(notes.MODULE, self.name, notes.MISSING), ops.LoadModule(self.name)),
            )
        return parts

    def _due_effects(self, snapshot: Snapshot, /) -> tuple[Effect, ...]:
        _, options = self.files
        if not options.changes(snapshot):
            return self.effects
        # A module takes its options when it is loaded; there is no other safe way for one that is in use.
        takes_reboot = self.reboot is not None and not self.absent and snapshot[self._state] == "loaded"
        return (INITRAMFS, *self.effects, *((self.reboot,) if self.reboot and takes_reboot else ()))


@dataclass(frozen=True, slots=True)
class ModprobeBlacklist(Composite):
    """Modules that are kept off: a file in modprobe.d, in every initramfs, and none of them loaded.

    Args:
        name: part of the file's name.
        modules: module names; none removes the file.
        reboot: what gets rid of a module that is loaded; None leaves it loaded.
    """

    kind: ClassVar[str] = "modprobe-blacklist"

    name: str
    modules: tuple[str, ...]
    reboot: Effect | None = None

    def __post_init__(self) -> None:
        for name in (self.name, *self.modules):
            checked_name(name)

    def _key_name(self) -> str:
        return self.name

    def merge(self, other: ModprobeBlacklist) -> ModprobeBlacklist | None:
        """Return the union of two lists for one file."""
        if self.reboot != other.reboot:
            return None
        modules = tuple(sorted({*self.modules, *other.modules}))
        return replace(self, modules=modules, effects=tuple(dict.fromkeys((*self.effects, *other.effects))))

    @property
    def file(self) -> File:
        """The file of modprobe.d(5)."""
        content = HEADER + "".join(f"blacklist {module}\n" for module in self.modules)
        path = f"/etc/modprobe.d/provision-{self.name}.conf"
        return File.of_text(self.system, path, content if self.modules else None, self.source)

    @property
    def _states(self) -> tuple[ModuleState, ...]:
        if self.reboot is None:
            return ()
        return tuple(ModuleState(name) for name in dict.fromkeys(map(module_name, self.modules)))

    def parts(self) -> Mapping[str, Part]:
        """Return the file, and each module, which only a reboot gets rid of."""
        parts: dict[str, Part] = {"file": self.file}
        for query in self._states:
            parts[query.name] = _KeptOff(self, query)
            arguments = (f"initcall_blacklist={initcall_of(query.name)}",)
            parts[f"{query.name} built in"] = BuiltIn(self, query, "a blacklist has", arguments)
        return parts

    def _due_effects(self, snapshot: Snapshot, /) -> tuple[Effect, ...]:
        loaded = any(snapshot[query] == "loaded" for query in self._states)
        return (INITRAMFS, *self.effects, *((self.reboot,) if self.reboot and loaded else ()))


@dataclass(frozen=True, slots=True)
class _KeptOff:
    """A module that is not loaded; only a boot gets rid of it, and only one after our file was written."""

    resource: ModprobeBlacklist
    query: ModuleState

    def queries(self) -> tuple[ModuleState, ...]:
        return (self.query,)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        if snapshot[self.query] != "loaded":
            return ()
        return (Change(Op.UPDATE, "value", "loaded", "not loaded", settles=Settles.AFTER_EFFECT),)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return nothing where the reboot does it, or that one after our file was written has not helped.

        A reboot that our file needs is owed until it was: a host that owes none has booted with the file.
        """
        owes = any(
            pending.effect.cls.reboots or pending.effect.cls == host_effects.INITRAMFS
            for pending in snapshot.pending
        )
        file = self.resource.file
        if owes or file.changes(snapshot):
            return ()
        name = self.query.name
        return self.resource.refusal(
            "MODULE_LOADED_ANYWAY",
            f"{name} is loaded although {file.path} keeps it off: something loads it by its name",
            untouched=f"{name} was not unloaded",
            remedy=f"unload it (`modprobe -r {name}`), and find what loads it: `grep -rw {name} /etc`",
        )


@dataclass(frozen=True, slots=True)
class KernelArguments(Composite):
    """Arguments on the kernel command line: at the next boot, and active.

    Args:
        arguments: like `nomodeset`, `modprobe.blacklist=a,b`; others that were added before are removed.
        loader: `grub` or `systemd-boot`, from the host's facts; anything else refuses.
        reboot: what makes them active.
        absent: nothing that we added may be there at the next boot; what is active is left alone.
    """

    kind: ClassVar[str] = "kernel-arguments"

    arguments: tuple[str, ...]
    loader: str
    reboot: Effect
    absent: bool = False

    def __post_init__(self) -> None:
        for argument in self.arguments:
            problem = argument_problem(argument)
            if problem is not None:
                raise ValueError(f"{argument!r} is not a kernel argument: {problem}")

    def _key_name(self) -> str:
        return "cmdline"  # one for each host, because all arguments share one line

    def merge(self, other: KernelArguments) -> KernelArguments | None:
        """Return the union; comma lists of modules are united."""
        if (self.loader, self.reboot, self.absent) != (other.loader, other.reboot, other.absent):
            return None
        united = parse(united_arguments(" ".join(self.arguments), other.arguments))
        effects = tuple(dict.fromkeys((*self.effects, *other.effects)))
        return replace(self, arguments=tuple(argument.text for argument in united), effects=effects)

    @property
    def file(self) -> File:
        """The drop-in of /etc/default/grub: shell that grub-mkconfig sources; adds what is not there yet."""
        additions = map(_grub_addition, entries(parse(" ".join(self.arguments))))
        content = HEADER + "".join(additions)
        return File.of_text(self.system, GRUB_DROP_IN, content if self.desired else None, self.source)

    @property
    def desired(self) -> tuple[str, ...]:
        """The arguments that the next boot should have from us."""
        return () if self.absent else self.arguments

    def parts(self) -> Mapping[str, Part]:
        """Return where the next boot takes its line from, and the active line."""
        at_boot = self.written
        if self.absent or self.loader not in LOADERS:
            return {"at boot": at_boot} if self.absent else {"at boot": at_boot, "active": _ActiveLine(self)}
        next_line = NextLine(self, self.loader, self.arguments, at_boot)
        return {"at boot": at_boot, "next boot": next_line, "active": _ActiveLine(self)}

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how the next boot's line is written; only a boot changes the active one."""
        if self.loader not in LOADERS:
            return self.refused(
                "BOOT_LOADER_UNKNOWN",
                "the host has no known boot loader (GRUB or systemd-boot) that takes kernel arguments",
                "boot the host by GRUB or systemd-boot, or set the arguments yourself: "
                + " ".join(self.desired),
            )
        return Composite.operations(self, snapshot)

    def _due_effects(self, snapshot: Snapshot, /) -> tuple[Effect, ...]:
        inactive = not self.absent and _ActiveLine(self).changes(snapshot)
        return (BOOT_LOADER, *self.effects, *((self.reboot,) if inactive else ()))

    @property
    def written(self) -> Part:
        """The file that we write for the boot loader."""
        return _CommandLineFile(self) if self.loader == "systemd-boot" else _GrubDropIn(self)

    def refused(self, code: str, summary: str, remedy: str, *evidence: str) -> Impossible:
        """Return why the command line is not changed."""
        return self._refused(
            code,
            summary,
            evidence=evidence,
            untouched="the kernel command line was not changed",
            remedy=remedy,
        )


def _grub_addition(entry: Entry) -> str:
    """Return shell text that adds arguments to GRUB's variable if they are not there yet."""
    first = entry[0]
    words = " ".join(grub_word(argument.text) for argument in entry)
    key, equals, rest = words.partition("=")
    pattern = "[-_]".join(map(ops.quote, re.split("[-_]", f" {key}"))) + ops.quote(f"{equals}{rest}")
    end = "[' ,']" if first.name in OPTION_LISTS and first.value else "' '"
    addition = f'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT "{ops.quote(words)} ;;\n'
    # What a later value of the same key overrides is added once more: the last one counts.
    later = is_single(first.name) or any(option in first.members for pair in OPPOSITES for option in pair)
    same_key = "[-_]".join(map(ops.quote, re.split("[-_]", f"{key}=")))
    return (
        'case " $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT " in\n'
        + (f"  *{pattern}{end}*{same_key}*) {addition}" if later and equals else "")
        + f"  *{pattern}{end}*) ;;\n  *) {addition}esac\n"
    )


@dataclass(frozen=True, slots=True)
class _ActiveLine:
    """The arguments of the running kernel; only a boot changes them."""

    resource: KernelArguments

    def queries(self) -> tuple[Any, ...]:
        return CMDLINE, ADDED, BootLine()

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        active, desired = snapshot[CMDLINE], self.resource.arguments
        if active is None:
            return (Change(Op.ATTENTION, "value", _NO_CMDLINE, " ".join(desired)),)
        line = active.decode("utf-8", "replace")
        return tuple(self._change(line, argument) for argument in missing_arguments(line, desired))

    @staticmethod
    def _change(line: str, argument: str) -> Change:
        """Return a missing argument beside the values of the same key in the line."""
        name = parse(argument)[0].name
        old = " ".join(present.text for present in parse(line) if present.name == name)
        op = Op.UPDATE if old else Op.CREATE
        return Change(op, "value", old or None, argument, settles=Settles.AFTER_EFFECT)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        if snapshot[CMDLINE] is None:
            return self.resource.refused("UNKNOWN", _NO_CMDLINE, "mount /proc, then run the command again")
        return self._not_taken(snapshot) if self._has_not_helped(snapshot) else ()

    def _has_not_helped(self, snapshot: Snapshot) -> bool:
        """Whether the next boot would hand over what the last one had to hand over already."""
        resource = self.resource
        if resource.written.changes(snapshot) or not has_booted_since(snapshot):
            return False
        return not lacking_at_boot(snapshot, resource.loader, resource.arguments)

    def _not_taken(self, snapshot: Snapshot) -> Impossible:
        status: BootLineStatus = snapshot[BootLine()]
        active = snapshot[CMDLINE].decode("utf-8", "replace").strip()
        lines = (f"{file}: {line}" for file, line in status.of(self.resource.loader))
        return self.resource.refused(
            "KERNEL_LINE_NOT_TAKEN",
            "the host has booted since its kernel arguments were written, and its kernel runs without them",
            "find what the host boots from: `proxmox-boot-tool status`, `efibootmgr -v`",
            f"/proc/cmdline: {active}",
            *lines,
        )


_NO_CMDLINE = "unknown: there is no /proc/cmdline"


@dataclass(frozen=True, slots=True)
class _GrubDropIn:
    """The arguments of the next boot by GRUB."""

    resource: KernelArguments

    def queries(self) -> tuple[Any, ...]:
        return *self.resource.file.queries(), ADDED

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        changes = tuple(map(self._readable, self.resource.file.changes(snapshot)))
        if not changes and not self.resource.desired and snapshot[ADDED] is not None:
            return (Change(Op.DELETE, "ours", recorded(snapshot[ADDED]), None),)
        return changes

    def _readable(self, change: Change) -> Change:
        """Return a change of the content as arguments instead of shell text."""
        if change.path not in ("content", "file"):
            return change
        return replace(
            change, old=change.old and "other arguments", new=" ".join(self.resource.desired) or None
        )

    def operations(self, snapshot: Snapshot, /) -> Operations:
        note = record(in_order(" ".join(self.resource.desired)), snapshot.boot_id)
        if not self.resource.file.changes(snapshot):
            return (note,)
        operations = self.resource.file.operations(snapshot)
        return operations if isinstance(operations, Impossible) else (note, *operations)


@dataclass(frozen=True, slots=True)
class _CommandLineFile:
    """The arguments of the next boot by systemd-boot: one line, of which others own the rest."""

    resource: KernelArguments

    def queries(self) -> tuple[FileText, ...]:
        return FileText(KERNEL_CMDLINE), ADDED

    def _lines(self, snapshot: Snapshot) -> tuple[str, str, str, str]:
        """Return the line and what of it is ours, as they are and as they should be."""
        line, ours = _words(snapshot[FileText(KERNEL_CMDLINE)]), recorded(snapshot[ADDED])
        desired = self.resource.desired
        dropped = missing_arguments(" ".join(desired), (ours,))
        kept = united_arguments(without_arguments(ours, dropped), missing_arguments(line, desired))
        return line, ours, united_arguments(without_arguments(line, dropped), desired), in_order(kept)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        line, ours, desired_line, desired_ours = self._lines(snapshot)
        if desired_line != line:
            return (Change(Op.UPDATE, "value", _readable(line) or None, _readable(desired_line)),)
        return (
            (Change(Op.UPDATE, "ours", ours or None, desired_ours or None),) if desired_ours != ours else ()
        )

    def operations(self, snapshot: Snapshot, /) -> Operations:
        line, ours, desired_line, desired_ours = self._lines(snapshot)
        if not any(argument.name == "root" and argument.value for argument in parse(line)):
            return self.resource.refused(
                "KERNEL_CMDLINE_NO_ROOT",
                f"{KERNEL_CMDLINE} has no root=: the host would not boot with it",
                f"write the whole line, with its root=, into {KERNEL_CMDLINE}, then run the command again",
            )
        operations: list[ops.Operation] = []
        both = in_order(f"{ours} {desired_ours}")
        if both != ours or desired_line != line:  # what a killed run has added is taken out again
            operations.append(record(both, snapshot.boot_id))
        if desired_line != line:
            content = f"{desired_line}\n".encode("utf-8", "surrogateescape")
            digest = digest_of(snapshot[FileText(KERNEL_CMDLINE)])
            copy = "" if self.resource.absent else f"{KERNEL_CMDLINE}.provision-{digest[:8]}"
            operations.append(ops_edit.ReplaceUnchanged(KERNEL_CMDLINE, content, digest, copy))
        if desired_ours != both:
            operations.append(record(desired_ours, snapshot.boot_id))
        return operations


def _words(line: bytes | None) -> str:
    """Return a kernel command line with single blanks; no byte of it is lost."""
    return " ".join((line or b"").decode("utf-8", "surrogateescape").split())


def _readable(line: str) -> str:
    return line.encode("utf-8", "replace").decode()
