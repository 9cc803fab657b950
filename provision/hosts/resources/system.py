"""The system as a whole: host name, time zone, time servers, swap, host key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import SecretStr

from provision.contracts.change import Change, Op, Settles
from provision.contracts.effect import Effect
from provision.contracts.snapshot import Snapshot
from provision.hosts import host_effects
from provision.hosts.names import DAEMONS
from provision.hosts.operations import basic as ops
from provision.hosts.operations import edit as ops_edit
from provision.hosts.queries.boot_swap import NO_UNIT, UNITS, BootSwap, SwapUnit
from provision.hosts.queries.file import FileText, LinkTarget
from provision.hosts.queries.system import ClockState, HostKeys
from provision.hosts.resources.base import HEADER, Composite, HostResource, Live, Operations, Part
from provision.hosts.resources.file import File
from provision.hosts.resources.service import Service

LIVE_HOSTNAME = FileText("/proc/sys/kernel/hostname")
HOSTS = FileText("/etc/hosts")
SWAPS = FileText("/proc/swaps")
FSTAB = FileText("/etc/fstab")
_OWN_ADDRESS = "127.0.1.1"
"""Debian's address of a host's own name; see the Debian reference on the hostname resolution."""
LOCALTIME = LinkTarget("/etc/localtime")
_ZONES = "/usr/share/zoneinfo/"
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,2}")
_HOST = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9-]{1,63}(?<!-))*")


def _text(content: object) -> str:
    return content.decode("utf-8", "replace").strip() if isinstance(content, bytes) else ""


@dataclass(frozen=True, slots=True)
class Hostname(Composite):
    """The host's name: live, at boot, and in /etc/hosts (otherwise sudo waits for the network).

    Args:
        name: DNS name.
    """

    kind: ClassVar[str] = "hostname"

    name: str

    def __post_init__(self) -> None:
        if _HOST.fullmatch(self.name) is None:
            raise ValueError(f"{self.name!r} is not a host name")

    @property
    def file(self) -> File:
        """The file that names it at boot; see hostname(5)."""
        return File(self.system, "/etc/hostname", f"{self.name}\n".encode(), source=self.source)

    def parts(self) -> Mapping[str, Part]:
        """Return all three; on the line of 127.0.1.1 other names and the comment stay."""
        return {
            "at boot": self.file,
            "/etc/hosts": _HostsEntry(self.name),
            "hostname": Live(LIVE_HOSTNAME, _text, self.name, (ops.SetHostname(self.name),)),
        }


@dataclass(frozen=True, slots=True)
class _HostsEntry:
    """A line of /etc/hosts that names the host: any line with the name will do."""

    name: str

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.name, self.name.partition(".")[0])))

    def queries(self) -> tuple[FileText, ...]:
        return (HOSTS,)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        content: bytes = snapshot[HOSTS] or b""
        if any(self.name in map(str.lower, ops_edit.host_words(line)[1:]) for line in _lines(content)):
            return ()
        old = self._own_line(content)
        new = self._own_line(ops_edit.with_host_names(content, _OWN_ADDRESS, self._names))
        return (Change(Op.UPDATE if old else Op.CREATE, "value", old, new),)

    @staticmethod
    def _own_line(content: bytes) -> str | None:
        lines = (line for line in _lines(content) if ops_edit.host_words(line)[:1] == [_OWN_ADDRESS])
        return next((" ".join(line.split()) for line in lines), None)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        del snapshot
        return (ops_edit.AddHostNames(HOSTS.path, _OWN_ADDRESS, self._names),)


def _lines(content: bytes) -> list[str]:
    return content.decode("utf-8", "replace").split("\n")


@dataclass(frozen=True, slots=True)
class Timezone(Composite):
    """The time zone: the link /etc/localtime and Debian's /etc/timezone.

    Args:
        zone: name in the time zone database (`Etc/UTC`).
    """

    kind: ClassVar[str] = "timezone"

    zone: str

    def __post_init__(self) -> None:
        if _ZONE.fullmatch(self.zone) is None:
            raise ValueError(f"{self.zone!r} is not a time zone like Etc/UTC or Europe/Berlin")

    @property
    def file(self) -> File:
        """Debian's own note of the zone."""
        return File(self.system, "/etc/timezone", f"{self.zone}\n".encode(), source=self.source)

    def parts(self) -> Mapping[str, Part]:
        """Return the link first: a zone that the host does not know fails there and changes nothing."""
        link = (ops.LinkTo(LOCALTIME.path, _ZONES + self.zone),)
        zone = Live(LOCALTIME, lambda target: target.rpartition("zoneinfo/")[2] or None, self.zone, link)
        return {"zone": zone, "/etc/timezone": self.file}


@dataclass(frozen=True, slots=True)
class TimeSync(Composite):
    """The clock follows time servers: the daemon is configured, runs, and has synchronised.

    Args:
        daemon: `chrony` or `timesyncd`.
        servers: names or addresses; none leaves the daemon's own configuration.
        deadline: seconds within which the clock must be synchronised.
    """

    kind: ClassVar[str] = "time-sync"

    daemon: str
    servers: tuple[str, ...] = ()
    deadline: float = 180.0

    def __post_init__(self) -> None:
        if self.daemon not in DAEMONS:
            raise ValueError(f"{self.daemon!r} is not a time daemon; known are {', '.join(DAEMONS)}")
        for server in self.servers:
            if not re.fullmatch(r"[A-Za-z0-9.:-]+", server):
                raise ValueError(f"{server!r} is not a time server")

    @property
    def unit(self) -> Service:
        """The daemon's unit."""
        return Service(self.system, DAEMONS[self.daemon], running=True, enabled=True, source=self.source)

    @property
    def file(self) -> File:
        """Our part of its configuration; see chrony.conf(5) on sourcedir, timesyncd.conf(5) on drop-ins."""
        if self.daemon == "chrony":
            path = "/etc/chrony/sources.d/provision.sources"
            content = HEADER + "".join(f"server {server} iburst\n" for server in self.servers)
        else:
            path = "/etc/systemd/timesyncd.conf.d/provision.conf"
            content = f"{HEADER}[Time]\nNTP={' '.join(self.servers)}\n"
        return File.of_text(self.system, path, content if self.servers else None, self.source)

    def parts(self) -> Mapping[str, Part]:
        """Return the configuration, the unit, and the clock, which takes its time (polled)."""
        clock = Live(
            ClockState(),
            lambda clock: "yes" if clock.synchronised or clock.container else "no",
            "yes",
            settles=Settles.WITHIN,
            deadline=self.deadline,
        )
        return {"servers": self.file, self.daemon: self.unit, "synchronised": clock}

    def _due_effects(self, snapshot: Snapshot, /) -> tuple[Effect, ...]:
        del snapshot  # the restart makes the daemon ask at once
        return (Effect(host_effects.RESTART, self.unit.unit), *self.effects)


@dataclass(frozen=True, slots=True)
class SwapIsOff(Composite):
    """No swap, now and at boot; lines of /etc/fstab are kept as comments, other units are masked."""

    kind: ClassVar[str] = "swap"

    def parts(self) -> Mapping[str, Part]:
        """Return the swap areas of the next boot, then those in use."""
        return _SWAP_PARTS

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return what switches it off; commands that somebody wrote into a script are theirs to remove."""
        scripts = [unit for unit in snapshot[BootSwap()] if unit.is_script]
        if scripts:
            names = ", ".join(unit.name for unit in scripts)
            return self.refusal(
                "SWAP_BY_SCRIPT",
                f"{names} starts swap: {scripts[0].origin}",
                untouched="Swap was not changed.",
                remedy=f"Take `swapon` out of {names}, or declare no `swap: off`",
            )
        return Composite.operations(self, snapshot)


def _active_areas(content: object) -> str | None:
    return ", ".join(line.split()[0] for line in _text(content).split("\n")[1:] if line.split()) or None


def _areas_at_boot(content: bytes | None) -> str | None:
    lines = (content or b"").split(b"\n")
    return ", ".join(_text(line).split()[0] for line in lines if ops_edit.is_swap(line)) or None


@dataclass(frozen=True, slots=True)
class _SwapUnits:
    """Units that start swap at the next boot: masked, or no longer wanted if they are the administrator's."""

    def queries(self) -> tuple[BootSwap, ...]:
        return (BootSwap(),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        units: tuple[SwapUnit, ...] = snapshot[BootSwap()]
        return tuple(
            Change(Op.ATTENTION, unit.name, unit.origin, "no swapon")
            if unit.is_script
            else Change(Op.UPDATE, unit.name, f"by {unit.origin}", "not at boot" if unit.links else "masked")
            for unit in units
        )

    def operations(self, snapshot: Snapshot, /) -> Operations:
        operations: list[ops.Operation] = []
        for unit in snapshot[BootSwap()]:
            operations += [ops.RemoveFile(link) for link in unit.links]
            if not unit.links:
                operations.append(ops.LinkTo(f"{UNITS}/{unit.name}", NO_UNIT))
        return operations


_SWAP_PARTS: Mapping[str, Part] = {
    "at boot": Live(FSTAB, _areas_at_boot, None, (ops_edit.CommentOutSwap(FSTAB.path),)),
    "units at boot": _SwapUnits(),
    "active": Live(SWAPS, _active_areas, None, (ops.SwapOff(),)),
}


@dataclass(frozen=True, slots=True)
class HostKey(HostResource):
    """This SSH host key is the only one; by default sshd is restarted after a change.

    Args:
        private: OpenSSH private key (ed25519).
        public: its public key, `ssh-ed25519 BASE64`, with or without a comment.
    """

    kind: ClassVar[str] = "host-key"
    PATH: ClassVar[str] = "/etc/ssh/ssh_host_ed25519_key"

    private: SecretStr
    public: str
    effects: tuple[Effect, ...] = field(default=(Effect(host_effects.RESTART, "ssh.service"),), kw_only=True)

    @property
    def _public(self) -> str:
        return " ".join(self.public.split()[:2])

    def queries(self) -> tuple[Any, ...]:
        """Return the query: the public keys that are there."""
        return (HostKeys(),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the key that is replaced, and those that go."""
        keys = dict(snapshot[HostKeys()])
        present = keys.pop(self.PATH, None)
        changes = [Change(Op.DELETE, path, key, None) for path, key in keys.items()]
        if present != self._public:
            changes.insert(0, Change(Op.REPLACE if present else Op.CREATE, "key", present, self._public))
        return tuple(changes)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how it is put in place: the public key last, because it is what is compared."""
        keys = dict(snapshot[HostKeys()])
        operations: list[ops.Operation] = []
        if keys.pop(self.PATH, None) != self._public:
            private, public = self.private.get_secret_value().rstrip("\n") + "\n", f"{self._public}\n"
            operations.append(ops.WriteFile(self.PATH, private.encode(), "0600", "root", "root", save=False))
            operations.append(
                ops.WriteFile(f"{self.PATH}.pub", public.encode(), "0644", "root", "root", save=False)
            )
        for path in keys:
            operations += [ops.RemoveFile(f"{path}.pub", save=False), ops.RemoveFile(path, save=False)]
        return operations

    def _secrets(self) -> tuple[SecretStr, ...]:
        return (self.private,)
