"""The system as a whole: host name, time zone, time servers, swap, host key."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import SecretStr

from provision.contracts.change import Change, Key, Op, Settles
from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.remedy import Impossible, Remedy
from provision.contracts.snapshot import Snapshot
from provision.hosts import host_effects
from provision.hosts.operations import basic as ops
from provision.hosts.operations import edit as ops_edit
from provision.hosts.queries.file import FileText, LinkTarget
from provision.hosts.queries.system import ClockState, HostKeys
from provision.hosts.resources.base import cannot_tell, unknown
from provision.hosts.resources.file import File
from provision.hosts.resources.kernel import HEADER, part_changes, part_ops, together
from provision.hosts.resources.service import Service
from provision.values.diagnostics import Source

LIVE_HOSTNAME = FileText("/proc/sys/kernel/hostname")
HOSTS = FileText("/etc/hosts")
SWAPS = FileText("/proc/swaps")
FSTAB = FileText("/etc/fstab")
LOCALTIME = LinkTarget("/etc/localtime")
_ZONES = "/usr/share/zoneinfo/"
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,2}")
_HOST = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9-]{1,63}(?<!-))*")


def _text(answer: object) -> str:
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else ""


@dataclass(frozen=True, slots=True)
class Hostname:
    """The host's name: live, at boot, and found in /etc/hosts (otherwise sudo waits for the network).

    Args:
        system: `vm-1/ssh`.
        name: DNS name.
        effects: what must happen after a change.
        source: inventory line.
    """

    system: str
    name: str
    effects: tuple[Effect, ...] = ()
    source: Source | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if _HOST.fullmatch(self.name) is None:
            raise ValueError(f"{self.name!r} is no host name")

    @property
    def key(self) -> Key:
        """Identity."""
        return Key(self.system, "hostname", "hostname")

    @property
    def file(self) -> File:
        """The file that names it at boot; see hostname(5)."""
        return File(self.system, "/etc/hostname", f"{self.name}\n".encode(), source=self.source)

    def queries(self) -> tuple[Any, ...]:
        """Return the questions: live name, file, hosts."""
        return LIVE_HOSTNAME, HOSTS, self.file.query

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return what differs live, at boot and in /etc/hosts."""
        found: list[Change] = []
        live, hosts = seen[LIVE_HOSTNAME], seen[HOSTS]
        if isinstance(live, Unknown):
            found.append(unknown("hostname", live, self.name))
        elif _text(live).strip() != self.name:
            found.append(Change(Op.UPDATE, "hostname", _text(live).strip(), self.name))
        found += part_changes(self.file, seen, "at boot")
        if isinstance(hosts, Unknown):
            found.append(unknown("/etc/hosts", hosts, self.name))
        elif not self._in_hosts(_text(hosts)):
            found.append(Change(Op.CREATE, "/etc/hosts", None, self._line()))
        return tuple(found)

    def _line(self) -> str:
        short = self.name.partition(".")[0]
        return f"127.0.1.1 {self.name}" + (f" {short}" if short != self.name else "")

    def _in_hosts(self, text: str) -> bool:
        return any(self.name in line.partition("#")[0].split()[1:] for line in text.split("\n"))

    def fix(self, seen: Snapshot) -> Remedy:
        """Return how all three are set; a 127.0.1.1 line of another name is replaced."""
        live, hosts = seen[LIVE_HOSTNAME], seen[HOSTS]
        for answer in (live, hosts):
            if isinstance(answer, Unknown):
                return cannot_tell(self.key, answer.reason, self.source)
        more: list[ops.Operation] = []
        if not self._in_hosts(_text(hosts)):
            more.append(ops.SetLine(HOSTS.path, self._line(), "127.0.1.1"))
        if _text(live).strip() != self.name:
            more.append(ops.SetHostname(self.name))
        return together((self.file,), seen, more, self.effects)


@dataclass(frozen=True, slots=True)
class Timezone:
    """The time zone: the link /etc/localtime and Debian's /etc/timezone.

    Args:
        system: `vm-1/ssh`.
        zone: name in the time zone database (`Etc/UTC`).
        effects: what must happen after a change.
        source: inventory line.
    """

    system: str
    zone: str
    effects: tuple[Effect, ...] = ()
    source: Source | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if _ZONE.fullmatch(self.zone) is None:
            raise ValueError(f"{self.zone!r} is no time zone like Etc/UTC or Europe/Berlin")

    @property
    def key(self) -> Key:
        """Identity."""
        return Key(self.system, "timezone", "timezone")

    @property
    def file(self) -> File:
        """Debian's own note of the zone."""
        return File(self.system, "/etc/timezone", f"{self.zone}\n".encode(), source=self.source)

    def queries(self) -> tuple[Any, ...]:
        """Return the questions: the link, the file."""
        return LOCALTIME, self.file.query

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return the zone when it differs."""
        target = seen[LOCALTIME]
        if isinstance(target, Unknown):
            return (unknown("zone", target, self.zone),)
        zone = target.rpartition("zoneinfo/")[2]
        if zone != self.zone:
            return (Change(Op.UPDATE, "zone", zone or None, self.zone),)
        return part_changes(self.file, seen, "/etc/timezone")

    def fix(self, seen: Snapshot) -> Remedy:
        """Return how the link is set; a zone that the host does not know fails and changes nothing."""
        target = seen[LOCALTIME]
        if isinstance(target, Unknown):
            return cannot_tell(self.key, target.reason, self.source)
        more: list[ops.Operation] = []
        if target.rpartition("zoneinfo/")[2] != self.zone:
            more.append(ops.LinkTo(LOCALTIME.path, _ZONES + self.zone))
        part = part_ops(self.file, seen)
        if isinstance(part, Impossible):
            return part
        return ops.fix([*more, *part], self.effects)


DAEMONS = {"chrony": "chrony.service", "timesyncd": "systemd-timesyncd.service"}
"""Units of the time daemons by the name that TimeSync takes."""


@dataclass(frozen=True, slots=True)
class TimeSync:
    """The clock follows time servers: the daemon is configured, runs, and has synchronised.

    Args:
        system: `vm-1/ssh`.
        daemon: `chrony` or `timesyncd`.
        servers: names or addresses; none leaves the daemon's own configuration.
        deadline: seconds within which the clock must be synchronised.
        effects: what must happen besides after a change.
        source: inventory line.
    """

    system: str
    daemon: str
    servers: tuple[str, ...] = ()
    deadline: float = 180.0
    effects: tuple[Effect, ...] = ()
    source: Source | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.daemon not in DAEMONS:
            raise ValueError(f"{self.daemon!r} is no time daemon: {', '.join(DAEMONS)} are")
        for each in self.servers:
            if not re.fullmatch(r"[A-Za-z0-9.:-]+", each):
                raise ValueError(f"{each!r} is no time server")

    @property
    def key(self) -> Key:
        """Identity."""
        return Key(self.system, "time-sync", "time-sync")

    @property
    def unit(self) -> Service:
        """The daemon's unit."""
        return Service(self.system, DAEMONS[self.daemon], running=True, enabled=True, source=self.source)

    @property
    def file(self) -> File:
        """Our part of its configuration; see chrony.conf(5) on sourcedir, timesyncd.conf(5) on drop-ins."""
        if self.daemon == "chrony":
            path = "/etc/chrony/sources.d/provision.sources"
            content = HEADER + "".join(f"server {each} iburst\n" for each in self.servers)
        else:
            path = "/etc/systemd/timesyncd.conf.d/provision.conf"
            content = f"{HEADER}[Time]\nNTP={' '.join(self.servers)}\n"
        gone = not self.servers
        return File(self.system, path, None if gone else content.encode(), absent=gone, source=self.source)

    def queries(self) -> tuple[Any, ...]:
        """Return the questions: file, unit, clock."""
        return self.file.query, *self.unit.queries(), ClockState()

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return what differs in servers, the daemon, and the clock's state (polled)."""
        found = list(part_changes(self.file, seen, "servers"))
        found += [replace(each, path=f"{self.daemon}: {each.path}") for each in self.unit.changes(seen)]
        clock = seen[ClockState()]
        if isinstance(clock, Unknown):
            found.append(unknown("synchronised", clock, "yes"))
        elif not clock.synchronised and not clock.container:
            found.append(
                Change(Op.UPDATE, "synchronised", "no", "yes", settles=Settles.WITHIN, deadline=self.deadline)
            )
        return tuple(found)

    def fix(self, seen: Snapshot) -> Remedy:
        """Return how it is configured; the restart makes the daemon ask at once."""
        clock = seen[ClockState()]
        if isinstance(clock, Unknown):
            return cannot_tell(self.key, clock.reason, self.source)
        more: tuple[ops.Operation, ...] = ()
        if self.unit.changes(seen):
            repair = self.unit.fix(seen)
            if isinstance(repair, Impossible):
                return repair
            more = tuple(each for each in getattr(repair, "ops", ()) if isinstance(each, ops.Operation))
        restart = Effect(host_effects.RESTART, self.unit.unit)
        return together((self.file,), seen, more, (restart, *self.effects))


@dataclass(frozen=True, slots=True)
class SwapIsOff:
    """No swap, now and at boot; lines of /etc/fstab are kept as comments.

    Args:
        system: `vm-1/ssh`.
        effects: what must happen after a change.
        source: inventory line.
    """

    system: str
    effects: tuple[Effect, ...] = ()
    source: Source | None = field(default=None, compare=False)

    @property
    def key(self) -> Key:
        """Identity."""
        return Key(self.system, "swap", "swap")

    def queries(self) -> tuple[Any, ...]:
        """Return the questions: active swap, fstab."""
        return SWAPS, FSTAB

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return active swap areas, and those of the next boot."""
        found: list[Change] = []
        for query, path in ((SWAPS, "active"), (FSTAB, "at boot")):
            answer = seen[query]
            if isinstance(answer, Unknown):
                found.append(unknown(path, answer, None))
                continue
            areas = _active(_text(answer).split("\n")) if query is SWAPS else _at_boot(answer or b"")
            if areas:
                found.append(Change(Op.DELETE, path, ", ".join(areas), None))
        return tuple(found)

    def fix(self, seen: Snapshot) -> Remedy:
        """Return how it is switched off, first for the next boot."""
        for query in self.queries():
            answer = seen[query]
            if isinstance(answer, Unknown):
                return cannot_tell(self.key, answer.reason, self.source)
        done: list[ops.Operation] = []
        if any(map(ops_edit.is_swap, (seen[FSTAB] or b"").split(b"\n"))):
            done.append(ops_edit.CommentOutSwap(FSTAB.path))
        if _active(_text(seen[SWAPS]).split("\n")):
            done.append(ops.SwapOff())
        return ops.fix(done, self.effects)


def _active(lines: list[str]) -> list[str]:
    return [each.split()[0] for each in lines[1:] if each.split()]


def _at_boot(fstab: bytes) -> list[str]:
    lines = [each.decode("utf-8", "replace") for each in fstab.split(b"\n") if ops_edit.is_swap(each)]
    return [each.split()[0] for each in lines]


@dataclass(frozen=True, slots=True)
class HostKey:
    """The SSH host key is this one, and there is no other.

    Args:
        system: `vm-1/ssh`.
        private: OpenSSH private key (ed25519).
        public: its public key, `ssh-ed25519 BASE64`, with or without a comment.
        effects: what must happen after a change; by default sshd is restarted.
        source: inventory line.
    """

    system: str
    private: SecretStr
    public: str
    effects: tuple[Effect, ...] = (Effect(host_effects.RESTART, "ssh.service"),)
    source: Source | None = field(default=None, compare=False)

    PATH = "/etc/ssh/ssh_host_ed25519_key"

    @property
    def key(self) -> Key:
        """Identity."""
        return Key(self.system, "host-key", "host-key")

    @property
    def _public(self) -> str:
        return " ".join(self.public.split()[:2])

    def queries(self) -> tuple[Any, ...]:
        """Return the question: the public keys that are there."""
        return (HostKeys(),)

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return the key that is replaced, and those that go."""
        keys = seen[HostKeys()]
        if isinstance(keys, Unknown):
            return (unknown("key", keys, self._public),)
        found = [Change(Op.DELETE, path, key, None) for path, key in keys if path != self.PATH]
        present = dict(keys).get(self.PATH)
        if present != self._public:
            found.insert(0, Change(Op.REPLACE if present else Op.CREATE, "key", present, self._public))
        return tuple(found)

    def fix(self, seen: Snapshot) -> Remedy:
        """Return how it is put in place: the public key last, because it is what is compared."""
        keys = seen[HostKeys()]
        if isinstance(keys, Unknown):
            return cannot_tell(self.key, keys.reason, self.source)
        done: list[ops.Operation] = []
        if dict(keys).get(self.PATH) != self._public:
            private = self.private.get_secret_value().rstrip("\n") + "\n"
            done.append(ops.WriteFile(self.PATH, private.encode(), "0600", "root", "root"))
            public = f"{self._public}\n".encode()
            done.append(ops.WriteFile(f"{self.PATH}.pub", public, "0644", "root", "root"))
        for path, _ in keys:
            if path != self.PATH:
                done += [ops.RemoveFile(f"{path}.pub"), ops.RemoveFile(path)]
        return ops.fix(done, self.effects, secrets=(self.private,))
