"""The NVLink fabric of a host with NVSwitches: what kernel, daemon and cards say, and how it is reset.

A daemon that was killed leaves the fabric out of step with the cards: nvidia-smi goes on to say Completed,
and programs fail with CUDA error 802. The cure ends the daemon and all users of the cards, then resets all
cards and switches (NVIDIA's Fabric Manager User Guide).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from provision.hosts.operations.basic import quote
from provision.hosts.resources.base import HostFactKind, Rows

DAEMON: Final = "nvidia-fabricmanager.service"
MARK: Final = "/run/provision-fabric-reset"
"""Seconds since boot at which the fabric was reset; gone with the boot, as the kernel's log is."""
SIGN: Final = "NV_ERR_FABRIC"
"""Begins what the kernel says of a fabric that is not in order."""
READ_LOG: Final = (
    "l=$(journalctl -k -b -q --no-pager -o short-monotonic 2>/dev/null) || l=\n"
    '[ -n "$l" ] || l=$(dmesg 2>/dev/null) || l=\n'
)
_LINE = re.compile(r"\[ *([0-9]+\.[0-9]+)\] ?(.*)")


@dataclass(frozen=True, slots=True)
class FabricState:
    """The NVLink fabric of a host."""

    kind: ClassVar[str] = "nvlink-fabric"


@dataclass(frozen=True, slots=True)
class FabricStatus:
    """What a host says of it.

    Args:
        daemon: state of the fabric manager (`active`, `inactive`, `failed`); empty where there is none.
        cards: state and status of each card, as `Completed, Success`.
        errors: lines of the kernel since boot, or since the last reset.
        is_readable: whether the kernel's log could be read.
    """

    daemon: str = ""
    cards: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    is_readable: bool = False

    @property
    def faults(self) -> tuple[tuple[str, str, str], ...]:
        """What is not in order: name, state, and what it should be. The daemon's absence is no fault here."""
        wrong = [("fabric manager", self.daemon, "active")] if self.daemon not in ("", "active") else []
        cards = sorted({card for card in self.cards if not card.startswith(("Completed", "[N/A]", "N/A"))})
        wrong += [("fabric state", card, "Completed") for card in cards[:1]]
        wrong += [("kernel log", line, "no error of the fabric") for line in self.errors[-1:]]
        return tuple(wrong)


_SCRIPT = (
    "u=$(systemctl show -p LoadState -p ActiveState --value "
    + DAEMON
    + " 2>/dev/null | tr '\\n' ' ') || u=\n"
    "case $u in *not-found*) u= ;; esac\n"
    'for w in $u; do case $w in loaded|masked) ;; *) echo "unit|$w" ;; esac; done\n'
    f"r=; {{ read -r r <{MARK}; }} 2>/dev/null || :\n"
    'echo "reset|$r"\n'
    f"{READ_LOG}"
    'if [ -n "$l" ]; then echo "log|yes"; fi\n'
    f"printf '%s\\n' \"$l\" | grep {SIGN} | tail -n 50 | tr '|' ' ' | sed 's/^/line|/' || :\n"
    "t=; if command -v timeout >/dev/null 2>&1; then t='timeout -k 2 60'; fi\n"
    "if command -v nvidia-smi >/dev/null 2>&1; then\n"
    "  q=pci.bus_id,fabric.state,fabric.status\n"
    "  o=$($t nvidia-smi --query-gpu=$q --format=csv,noheader 2>/dev/null) || o=\n"
    "  [ -z \"$o\" ] || printf '%s\\n' \"$o\" | sed 's/^/card|/'\n"
    "fi\n"
    "echo 'done|'"
)


def _read(rows: Rows) -> FabricStatus:
    """Read everything; what is not understood in one line spoils no other."""
    reset = _seconds("|".join(rows["reset"][0])) if rows.get("reset") else 0.0
    errors = []
    for row in rows.get("line", ()):
        match = _LINE.search("|".join(row))
        # A line without a time cannot be older than a reset for sure: it counts.
        if match is None or float(match[1]) > reset:
            errors.append(("|".join(row) if match is None else match[2])[:160])
    cards = []
    for row in rows.get("card", ()):
        bus, *state = [field.strip() for field in "|".join(row).split(",")]
        if state and re.match(r"[0-9A-Fa-f]+:", bus):
            cards.append(", ".join(state))
    unit = rows["unit"][0][0] if rows.get("unit") else ""
    return FabricStatus(unit, tuple(cards), tuple(errors), "log" in rows)


def _seconds(text: str) -> float:
    return float(text) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else 0.0


FABRIC_STATE_KIND = HostFactKind(FabricState, "NVLink fabric", _SCRIPT, _read)

KNOWN_USERS: Final = (
    "dcgm-exporter",
    "nv-hostengine",
    "nvidia-device-p",
    "nvidia-mig-mana",
    "gpu-feature-dis",
    "nvidia-persiste",
    "nv-fabricmanage",
)
"""Programs that may be ended, as the kernel cuts their names (15 characters): all come back by themselves."""
_STOPPED: Final = (
    "nvidia-snapshot.timer",
    "nvidia-snapshot.service",
    "nvidia-dcgm.service",
    "nvidia-persistenced.service",
    DAEMON,
)
_RESET = r"""users() {
  find /proc/[0-9]*/fd -lname '/dev/nvidia*' 2>/dev/null | cut -d / -f 3 | sort -u | while read -r p; do
    n=; { read -r n <"/proc/$p/comm"; } 2>/dev/null || continue
    echo "$p $n"
  done
}
strangers() {
  users | while read -r p n; do
    case " @KNOWN@ " in *" $n "*) ;; *) echo "$n (process $p)" ;; esac
  done
}
s=$(strangers)
if [ -n "$s" ]; then printf 'in use by %s\n' "$s" >&2; exit 1; fi
was=
for u in @UNITS@; do if systemctl -q is-active "$u"; then was="$u $was"; fi; done
back() { for u in $was; do systemctl start "$u" || :; done; }
trap back EXIT
for u in @UNITS@; do systemctl stop "$u" 2>/dev/null || :; done
i=0
while l=$(users) && [ -n "$l" ]; do
  s=$(strangers)
  if [ -n "$s" ] || [ $i -ge 60 ]; then printf 'in use by %s\n' "${s:-$l}" >&2; exit 1; fi
  printf '%s\n' "$l" | while read -r p n; do kill -TERM "$p" 2>/dev/null || :; done
  i=$((i + 1)); sleep 1
done
nvidia-smi -r
cut -d ' ' -f 1 /proc/uptime >@MARK@
systemctl reset-failed @DAEMON@ 2>/dev/null || :
systemctl start @DAEMON@
sleep 10"""


@dataclass(frozen=True, slots=True)
class ResetFabric:
    """Reset all cards and switches, and begin the fabric anew; what was stopped for it is started again.

    Nothing is touched while a program uses a card that is not known to come back by itself.

    Args:
        units: further units that start users of cards, as k3s does.
    """

    units: tuple[str, ...] = ()

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        units = " ".join(map(quote, (*self.units, *_STOPPED)))
        text = _RESET.replace("@UNITS@", units).replace("@KNOWN@", " ".join(KNOWN_USERS))
        return text.replace("@MARK@", MARK).replace("@DAEMON@", DAEMON)
