"""Questions about the system as a whole: clock, host keys, bridges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.query import Frame
from provision.hosts.resources.base import why


@dataclass(frozen=True, slots=True)
class ClockState:
    """Whether the clock is synchronised."""

    kind: ClassVar[str] = "clock"


@dataclass(frozen=True, slots=True)
class ClockStatus:
    """State of the clock.

    Args:
        synchronised: the kernel's clock is disciplined by a time server.
        container: the name of the container technology; its clock is the machine's, and empty means none.
    """

    synchronised: bool
    container: str = ""


class ClockStateKind:
    """The time daemon knows; timedatectl(1) reads the kernel's flag, whoever sets it."""

    query = ClockState

    def script(self, queries: Sequence[ClockState]) -> str:
        """Return the fragment."""
        del queries
        return (
            # systemd leaves the container's name there; without systemd nothing would be there to ask
            "v= s=\n"
            "if [ -r /run/systemd/container ]; then read -r v </run/systemd/container || :; fi\n"
            "if command -v chronyc >/dev/null 2>&1; then\n"
            "  case $(chronyc -c tracking 2>/dev/null) in\n"
            "    '') ;; *'Not synchronised') s=no;; *) s=yes;;\n  esac\n"
            "fi\n"
            'if [ -z "$s" ] && [ -e /run/systemd/timesync/synchronized ]; then s=yes; fi\n'
            # last, since it starts a daemon over D-Bus for one flag: seconds on a slow machine
            'if [ -z "$s" ]; then s=$(timedatectl show -p NTPSynchronized --value 2>/dev/null) || s=; fi\n'
            'printf \'clock|%s|%s\\n\' "$s" "$v"'
        )

    def parse(self, frame: Frame, queries: Sequence[ClockState]) -> Mapping[ClockState, object]:
        """Return a ClockStatus."""
        answer: object = why(frame, "the clock")
        for line in frame.stdout.decode("utf-8", "replace").split("\n")[:-1]:
            fields = line.split("|")
            if fields[0] == "clock" and len(fields) == 3 and fields[1] in ("yes", "no"):  # noqa: PLR2004 - format
                answer = ClockStatus(fields[1] == "yes", fields[2])
        return dict.fromkeys(queries, answer)


@dataclass(frozen=True, slots=True)
class HostKeys:
    """The SSH host keys: public keys by file, as a tuple of (path of the private key, `TYPE BASE64`)."""

    kind: ClassVar[str] = "host-keys"


class HostKeysKind:
    """Reads the public key files of /etc/ssh."""

    query = HostKeys

    def script(self, queries: Sequence[HostKeys]) -> str:
        """Return the fragment."""
        del queries
        return (
            "for f in /etc/ssh/ssh_host_*_key; do\n"
            '  if [ -e "$f" ]; then k=; if [ -r "$f.pub" ]; then read -r k <"$f.pub" || :; fi\n'
            '    printf \'%s|%s\\n\' "$f" "$k"; fi\n'
            "done\n"
            "echo 'done|'"
        )

    def parse(self, frame: Frame, queries: Sequence[HostKeys]) -> Mapping[HostKeys, object]:
        """Return the keys, without their comments."""
        lines = frame.stdout.decode("utf-8", "replace").split("\n")
        if "done|" not in lines or frame.dropped:
            return dict.fromkeys(queries, why(frame, "host keys"))
        found = tuple(
            (path, " ".join(key.split()[:2]))
            for path, mark, key in (line.partition("|") for line in lines)
            if mark and path.startswith("/")
        )
        return dict.fromkeys(queries, found)


@dataclass(frozen=True, slots=True)
class Bridges:
    """The names of the network bridges."""

    kind: ClassVar[str] = "bridges"


class BridgesKind:
    """Reads /sys/class/net."""

    query = Bridges

    def script(self, queries: Sequence[Bridges]) -> str:
        """Return the fragment."""
        del queries
        return (
            'for b in /sys/class/net/*; do if [ -d "$b/bridge" ]; then '
            "printf 'bridge|%s\\n' \"${b##*/}\"; fi; done\n"
            "echo 'done|'"
        )

    def parse(self, frame: Frame, queries: Sequence[Bridges]) -> Mapping[Bridges, object]:
        """Return a tuple of names."""
        lines = frame.stdout.decode("utf-8", "replace").split("\n")
        if "done|" not in lines or frame.dropped:
            return dict.fromkeys(queries, why(frame, "bridges"))
        found = tuple(line.partition("|")[2] for line in lines if line.startswith("bridge|"))
        return dict.fromkeys(queries, found)
