"""Kernel modules, blacklists and the kernel command line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from provision.contracts.change import Change, Key, Op, Settles
from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.remedy import Fix, Impossible, Remedy
from provision.contracts.snapshot import Snapshot
from provision.hosts import host_effects
from provision.hosts.operations import basic as ops
from provision.hosts.operations import edit as ops_edit
from provision.hosts.queries.file import FileText, digest_of
from provision.hosts.queries.kernel import (
    CMDLINE,
    ModuleState,
    missing_arguments,
    module_name,
    split_list,
    united_arguments,
    unsafe_argument,
    without_arguments,
)
from provision.hosts.resources.base import cannot_tell, checked_name, unknown
from provision.hosts.resources.file import File
from provision.values.diagnostics import Diagnostic, Source

HEADER = "# Written by provision; changes are overwritten.\n"
KERNEL_CMDLINE = "/etc/kernel/cmdline"
ADDED = "/etc/kernel/provision-arguments"
"""What provision has added to KERNEL_CMDLINE: of that line only this is ever taken out again."""
GRUB_DROP_IN = "/etc/default/grub.d/50-provision.cfg"
LOADERS = ("grub", "systemd-boot")
"""Boot loaders whose arguments are managed."""
INITRAMFS = Effect(host_effects.INITRAMFS)
BOOT_LOADER = Effect(host_effects.BOOT_LOADER)


def part_changes(part: File, seen: Snapshot, path: str) -> tuple[Change, ...]:
    """Return a file's changes under a name that says what the file is for."""
    return tuple(
        replace(each, path=path if each.path in ("content", "file") else f"{path}: {each.path}")
        for each in part.changes(seen)
    )


def part_ops(part: File, seen: Snapshot) -> tuple[ops.Operation, ...] | Impossible:
    """Return a file's operations, none when it is as desired."""
    if not part.changes(seen):
        return ()
    repair = part.fix(seen)
    if isinstance(repair, Fix):
        return tuple(each for each in repair.ops if isinstance(each, ops.Operation))
    if isinstance(repair, Impossible):
        return repair
    return cannot_tell(part.key, "it has no fix", part.source)


def together(
    parts: Iterable[File], seen: Snapshot, more: Iterable[ops.Operation], effects: Iterable[Effect]
) -> Remedy:
    """Return the fix of some files and further operations; the first file that cannot be mended ends it."""
    done: list[ops.Operation] = []
    for part in parts:
        found = part_ops(part, seen)
        if isinstance(found, Impossible):
            return found
        done += found
    return ops.fix([*done, *more], effects)


@dataclass(frozen=True, slots=True)
class KernelModule:
    """A module that is loaded now and at boot, with options; or no longer at boot.

    Args:
        system: `vm-1/ssh`.
        name: module name.
        options: module options (`a=1 b=2`); empty is none of ours.
        absent: our files must not be there; the module itself stays loaded until the next boot.
        reboot: what makes a module that is loaded take other options; None leaves it with those it has.
        effects: what must happen after a change.
        source: inventory line.
    """

    system: str
    name: str
    options: str = ""
    absent: bool = False
    reboot: Effect | None = None
    effects: tuple[Effect, ...] = ()
    source: Source | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        checked_name(self.name)
        if "\n" in self.options:
            raise ValueError(f"options of {self.name} hold a newline")

    @property
    def key(self) -> Key:
        """Identity."""
        return Key(self.system, "kernel-module", module_name(self.name))

    @property
    def query(self) -> ModuleState:
        """The question about the module itself."""
        return ModuleState(module_name(self.name))

    @property
    def files(self) -> tuple[File, File]:
        """The files of modules-load.d(5) and modprobe.d(5)."""
        load = f"{HEADER}{self.name}\n".encode()
        options = f"{HEADER}options {self.name} {self.options}\n".encode()
        no_options = self.absent or not self.options
        return (
            File(
                self.system,
                f"/etc/modules-load.d/provision-{self.name}.conf",
                None if self.absent else load,
                absent=self.absent,
                source=self.source,
            ),
            File(
                self.system,
                f"/etc/modprobe.d/provision-{self.name}-options.conf",
                None if no_options else options,
                absent=no_options,
                source=self.source,
            ),
        )

    def queries(self) -> tuple[Any, ...]:
        """Return the questions: the module, its two files."""
        load, options = self.files
        return self.query, load.query, options.query

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return what differs: loaded, at boot, options."""
        load, options = self.files
        found = [*part_changes(load, seen, "at boot"), *part_changes(options, seen, "options")]
        state = seen[self.query]
        if isinstance(state, Unknown):
            found.insert(0, unknown("loaded", state, "loaded"))
        elif not self.absent and state == "absent":
            found.insert(0, Change(Op.UPDATE, "loaded", "not loaded", "loaded"))
        return tuple(found)

    def fix(self, seen: Snapshot) -> Remedy:
        """Return how files are written, then the module is loaded."""
        load, options = self.files
        state = seen[self.query]
        if isinstance(state, Unknown):
            return cannot_tell(self.key, state.reason, self.source)
        more = [ops.LoadModule(self.name)] if not self.absent and state == "absent" else []
        effects = self.effects
        if options.changes(seen):
            # A module takes its options when it is loaded; there is no other safe way for one that is in use.
            takes_reboot = self.reboot is not None and state == "loaded" and not self.absent
            effects = (INITRAMFS, *effects, *filter(None, (self.reboot if takes_reboot else None,)))
        return together((options, load), seen, more, effects)


@dataclass(frozen=True, slots=True)
class ModprobeBlacklist:
    """Modules that are kept off: a file in modprobe.d, in every initramfs, and none of them loaded.

    Args:
        system: `pve/ssh`.
        name: part of the file's name.
        modules: module names; none removes the file.
        reboot: what gets rid of a module that is loaded; None leaves it loaded.
        effects: what must happen besides after a change.
        source: inventory line.
    """

    system: str
    name: str
    modules: tuple[str, ...]
    reboot: Effect | None = None
    effects: tuple[Effect, ...] = ()
    source: Source | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for each in (self.name, *self.modules):
            checked_name(each)

    @property
    def key(self) -> Key:
        """Identity."""
        return Key(self.system, "modprobe-blacklist", self.name)

    def merge(self, other: ModprobeBlacklist) -> ModprobeBlacklist | None:
        """Return the union of two lists for one file."""
        if self.reboot != other.reboot:
            return None
        modules = tuple(sorted({*self.modules, *other.modules}))
        return replace(self, modules=modules, effects=tuple(dict.fromkeys((*self.effects, *other.effects))))

    @property
    def file(self) -> File:
        """The file of modprobe.d(5)."""
        content = HEADER + "".join(f"blacklist {each}\n" for each in self.modules)
        return File(
            self.system,
            f"/etc/modprobe.d/provision-{self.name}.conf",
            content.encode() if self.modules else None,
            absent=not self.modules,
            source=self.source,
        )

    @property
    def _states(self) -> tuple[ModuleState, ...]:
        if self.reboot is None:
            return ()
        return tuple(ModuleState(each) for each in dict.fromkeys(map(module_name, self.modules)))

    def queries(self) -> tuple[Any, ...]:
        """Return the questions: the file, and each module."""
        return (self.file.query, *self._states)

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return what differs in the file, and each module that is loaded still."""
        found = list(part_changes(self.file, seen, "file"))
        for query in self._states:
            state = seen[query]
            if isinstance(state, Unknown):
                found.append(unknown(query.name, state, "not loaded"))
            elif state == "loaded":
                found.append(
                    Change(Op.UPDATE, query.name, "loaded", "not loaded", settles=Settles.AFTER_EFFECT)
                )
        return tuple(found)

    def fix(self, seen: Snapshot) -> Remedy:
        """Return how the file is written; a module that is loaded takes an initramfs and a reboot."""
        states = [seen[each] for each in self._states]
        for state in states:
            if isinstance(state, Unknown):
                return cannot_tell(self.key, state.reason, self.source)
        loaded = "loaded" in states
        reboot = (self.reboot,) if loaded and self.reboot is not None else ()
        return together((self.file,), seen, (), (INITRAMFS, *self.effects, *reboot))


@dataclass(frozen=True, slots=True)
class KernelArguments:
    """Arguments on the kernel command line: at the next boot, and active.

    Args:
        system: `pve/ssh`.
        arguments: like `nomodeset`, `modprobe.blacklist=a,b`; what was added before and is none of them goes.
        absent: nothing that we added may be there at the next boot; what is active is left alone.
        loader: `grub` or `systemd-boot`, from the host's facts; anything else refuses.
        reboot: what makes them active.
        effects: what must happen besides after a change.
        source: inventory line.
    """

    system: str
    arguments: tuple[str, ...]
    loader: str
    reboot: Effect
    absent: bool = False
    effects: tuple[Effect, ...] = ()
    source: Source | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for each in self.arguments:
            if unsafe_argument(each):
                raise ValueError(f"{each!r} is no kernel argument")

    @property
    def key(self) -> Key:
        """Identity: one for each host, because all of them share one line."""
        return Key(self.system, "kernel-arguments", "cmdline")

    def merge(self, other: KernelArguments) -> KernelArguments | None:
        """Return the union; comma lists of modules are united."""
        if (self.loader, self.reboot, self.absent) != (other.loader, other.reboot, other.absent):
            return None
        united = united_arguments(" ".join(self.arguments), other.arguments).split()
        effects = tuple(dict.fromkeys((*self.effects, *other.effects)))
        return replace(self, arguments=tuple(united), effects=effects)

    @property
    def file(self) -> File:
        """The drop-in of /etc/default/grub: shell that grub-mkconfig sources; adds what is not there yet."""
        gone = self.absent or not self.arguments
        content = (
            f"{HEADER}for provision_argument in {' '.join(self.arguments)}; do\n"
            '  case " $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT " in\n'
            '    *" $provision_argument "*) ;;\n'
            '    *) GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT $provision_argument" ;;\n'
            "  esac\n"
            "done\n"
        )
        return File(
            self.system,
            GRUB_DROP_IN,
            None if gone else content.encode(),
            absent=gone,
            source=self.source,
        )

    def queries(self) -> tuple[Any, ...]:
        """Return the questions: the active line, and where the next boot takes its own from."""
        if self.loader == "systemd-boot":
            return CMDLINE, FileText(KERNEL_CMDLINE), FileText(ADDED)
        return CMDLINE, self.file.query

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return what the next boot lacks, and what the running kernel was not given."""
        found = list(self._at_boot(seen))
        if self.absent:
            return tuple(found)
        active = seen[CMDLINE]
        if isinstance(active, Unknown) or active is None:
            reason = active if active is not None else Unknown("/proc/cmdline is missing")
            found.append(unknown("active", reason, " ".join(self.arguments)))
            return tuple(found)
        line = active.decode("utf-8", "replace")
        for argument in missing_arguments(line, self.arguments):
            old = _like(line, argument)
            found.append(
                Change(
                    Op.CREATE if old is None else Op.UPDATE,
                    "active",
                    old,
                    argument,
                    settles=Settles.AFTER_EFFECT,
                )
            )
        return tuple(found)

    def _next(self, line: str, added: str) -> tuple[str, str]:
        """Return the line of the next boot, and what of it is ours.

        Args:
            line: the line as it is.
            added: what we added to it before.
        """
        wanted = () if self.absent else self.arguments
        dropped = missing_arguments(" ".join(wanted), added.split())
        ours = united_arguments(without_arguments(added, dropped), missing_arguments(line, wanted))
        return united_arguments(without_arguments(line, dropped), wanted), _in_order(ours)

    def _at_boot(self, seen: Snapshot) -> tuple[Change, ...]:
        if self.loader == "systemd-boot":
            line, added = seen[FileText(KERNEL_CMDLINE)], seen[FileText(ADDED)]
            for answer in (line, added):
                if isinstance(answer, Unknown):
                    return (unknown("at boot", answer, " ".join(self.arguments)),)
            text, before = _words(line), _ours(added)
            wanted, ours = self._next(text, before)
            if wanted != text:
                return (Change(Op.UPDATE, "at boot", _readable(text) or None, _readable(wanted)),)
            return (Change(Op.UPDATE, "ours", before or None, ours or None),) if ours != before else ()
        return tuple(
            replace(
                each,
                path="at boot",
                old=each.old and "other arguments",
                new=None if self.file.absent else " ".join(self.arguments),
            )
            if each.path in ("content", "file")
            else each
            for each in self.file.changes(seen)
        )

    def fix(self, seen: Snapshot) -> Remedy:
        """Return how the next boot's line is written; a reboot is owed while an argument is not active."""
        active = seen[CMDLINE]
        if isinstance(active, Unknown) or active is None:
            return cannot_tell(self.key, "/proc/cmdline could not be read", self.source)
        lacking = () if self.absent else missing_arguments(active.decode("utf-8", "replace"), self.arguments)
        effects = (BOOT_LOADER, *self.effects, *((self.reboot,) if lacking else ()))
        if self.loader == "systemd-boot":
            return self._fix_line(seen, effects)
        if self.loader != "grub":
            return self._refused(
                "BOOT_LOADER_UNKNOWN",
                "no boot loader was found that takes kernel arguments (GRUB and systemd-boot are known)",
                "boot the host by GRUB or systemd-boot, or give the arguments by hand: " + " ".join(lacking),
            )
        return together((self.file,), seen, (), effects)

    def _fix_line(self, seen: Snapshot, effects: tuple[Effect, ...]) -> Remedy:
        line, added = seen[FileText(KERNEL_CMDLINE)], seen[FileText(ADDED)]
        for answer in (line, added):
            if isinstance(answer, Unknown):
                return cannot_tell(self.key, answer.reason, self.source)
        text, before = _words(line), _ours(added)
        if not any(each.startswith("root=") for each in text.split()):
            return self._refused(
                "KERNEL_CMDLINE_NO_ROOT",
                f"{KERNEL_CMDLINE} names no root=: a host that boots by it would not come up",
                f"write the whole line, with its root=, into {KERNEL_CMDLINE} by hand, then run again",
            )
        wanted, ours = self._next(text, before)
        done: list[ops.Operation] = []
        both = _in_order(f"{before} {ours}")
        if both != before:  # a run that is killed here takes out again what it had added
            done.append(_record(both))
        if wanted != text:
            new, seen_as = f"{wanted}\n".encode("utf-8", "surrogateescape"), digest_of(line)
            copy = f"{KERNEL_CMDLINE}.provision-{seen_as[:8]}"
            done.append(ops_edit.ReplaceSeen(KERNEL_CMDLINE, new, seen_as, copy))
        if ours != both:
            done.append(_record(ours))
        return ops.fix(done, effects)

    def _refused(self, code: str, summary: str, remedy: str) -> Impossible:
        return Impossible(
            Diagnostic(
                code,
                summary,
                subject=self.system,
                source=self.source,
                untouched="the kernel command line was left as it is",
                remedy=remedy,
            )
        )


def _words(line: bytes | None) -> str:
    """Return a kernel command line with single blanks; no byte of it is lost."""
    return " ".join((line or b"").decode("utf-8", "surrogateescape").split())


def _readable(line: str) -> str:
    return line.encode("utf-8", "replace").decode()


def _ours(added: bytes | None) -> str:
    """Return what the record says; remarks are no arguments."""
    lines = (added or b"").decode("utf-8", "replace").split("\n")
    return _in_order(" ".join(each for each in lines if not each.startswith("#")))


def _in_order(arguments: str) -> str:
    """Return arguments sorted, each member of a comma list by itself: one way to write a record down."""
    found: set[str] = set()
    for each in arguments.split():
        pair = split_list(each)
        found |= {each} if pair is None else {f"{pair[0]}={member}" for member in pair[1]}
    return " ".join(sorted(found))


def _record(ours: str) -> ops.Operation:
    return ops.WriteFile(ADDED, f"{HEADER}{ours}\n".encode()) if ours else ops.RemoveFile(ADDED)


def _like(line: str, argument: str) -> str | None:
    """Return what a command line says about the same key, for the plan."""
    pair = split_list(argument)
    name = argument.partition("=")[0] if pair is None else pair[0]
    same = [each for each in line.split() if each.partition("=")[0] == name]
    return " ".join(same) or None
