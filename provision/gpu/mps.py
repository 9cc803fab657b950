"""What servers of MPS leave on a node: directories of the device plugin, its memory, and exclusive cards.

The control daemon of NVIDIA's device plugin makes cards exclusive for its server, keeps pipes and logs below
`/run/nvidia/mps/RESOURCE`, and a file `.started` there while it serves. One that ends in order takes the mode
and that file away, a killed one neither (NVIDIA/k8s-device-plugin, cmd/mps-control-daemon/mps/daemon.go and
mount/mount-shm.go). Inside its container the folder is called `/mps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from provision.contracts.change import Change, Op
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations.basic import Operation
from provision.hosts.resources.base import HostFactKind, HostResource, Operations, Rows

ROOT: Final = "/run/nvidia/mps"
SECONDS: Final = 180
"""How long a server may take to end after its pod was told to."""


@dataclass(frozen=True, slots=True)
class MpsState:
    """What is there of MPS servers of the device plugin."""

    kind: ClassVar[str] = "mps"


@dataclass(frozen=True, slots=True)
class MpsStatus:
    """Servers, and what they left.

    Args:
        runs: whether a server of the device plugin runs.
        other: whether another one does, which somebody else started.
        ended: folders of servers that ended in order.
        killed: folders of servers that did not, unless they run.
        has_memory: whether their shared memory is mounted.
        exclusive: UUIDs of cards that serve one process only.
    """

    runs: bool = False
    other: bool = False
    ended: tuple[str, ...] = ()
    killed: tuple[str, ...] = ()
    has_memory: bool = False
    exclusive: tuple[str, ...] = ()


# Names of programs are cut to 15 characters; `environ` of a container is readable for root of the host.
_FUNCTIONS = f"""r={ROOT}
servers() {{
  for p in /proc/[0-9]*; do
    c=; {{ read -r c <"$p/comm"; }} 2>/dev/null || continue
    [ "$c" = nvidia-cuda-mps ] || continue
    case $(tr '\\000' '\\n' 2>/dev/null <"$p/environ" | sed -n 's/^CUDA_MPS_PIPE_DIRECTORY=//p') in
      /mps/*|"$r"/*) echo own ;;
      *) echo other ;;
    esac
  done
}}
folders() {{
  for d in "$r"/*/*/; do
    if [ -e "$d.started" ]; then echo "killed|${{d%/}}"
    elif [ -d "$d"pipe ]; then echo "ended|${{d%/}}"
    fi
  done
}}
exclusive() {{
  l=$(timeout 60 nvidia-smi --query-gpu=uuid,compute_mode --format=csv,noheader) || return 1
  printf '%s\\n' "$l" | sed -n 's/^\\(GPU-[0-9a-fA-F-]*\\), *Exclusive_Process *$/\\1/p'
}}
has_memory() {{ grep -q "^[^ ]* $r/shm tmpfs " /proc/mounts; }}
"""
_SCRIPT = f"""{_FUNCTIONS}s=$(servers)
case $s in *own*) echo 'runs|yes' ;; *) echo 'runs|no' ;; esac
case $s in *other*) echo 'other|yes' ;; *) echo 'other|no' ;; esac
f=$(folders); [ -z "$f" ] || printf '%s\\n' "$f"
case $f in *killed*) exclusive 2>/dev/null | sed 's/^/card|/' ;; esac
if has_memory; then echo 'memory|yes'; fi
echo 'done|'
"""


def _read(rows: Rows) -> MpsStatus:
    def column(name: str) -> tuple[str, ...]:
        return tuple(row[0] for row in rows.get(name, ()))

    return MpsStatus(
        rows["runs"][0][0] == "yes",
        rows["other"][0][0] == "yes",
        column("ended"),
        column("killed"),
        bool(column("memory")),
        column("card"),
    )


MPS_STATE_KIND = HostFactKind(MpsState, "servers of MPS", _SCRIPT, _read)


@dataclass(frozen=True, slots=True)
class ClearMps:
    """Wait until servers of the device plugin have ended, and take away what they left.

    Cards become usable for all only where a server was killed and no other one runs.

    Args:
        seconds: how long to wait.
    """

    seconds: int = SECONDS

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        return f"""{_FUNCTIONS}n=0
while s=$(servers); case $s in *own*) true ;; *) false ;; esac; do
  n=$((n + 1))
  if [ "$n" -gt {self.seconds} ]; then
    echo 'a server of MPS still runs; see: pgrep -a nvidia-cuda-mps' >&2; exit 1
  fi
  if [ $((n % 20)) = 1 ]; then echo 'waiting for the end of the MPS server'; fi
  sleep 1
done
f=$(folders)
case $s/$f in
  *other*) ;;
  *killed*)
    c=$(exclusive)
    for u in $c; do nvidia-smi -i "$u" -c DEFAULT; done ;;
esac
if [ -z "$s" ] && has_memory; then umount "$r/shm"; fi
printf '%s\\n' "$f" | while IFS='|' read -r k d; do
  [ -n "$d" ] || continue
  rm -rf "$d/pipe" "$d/log"; rm -f "$d/.started"
  rmdir "$d" "${{d%/*}}" 2>/dev/null || :
done"""


@dataclass(frozen=True, slots=True)
class MpsCleared(HostResource):
    """Nothing is there of MPS servers of the device plugin; those of others are left alone."""

    kind: ClassVar[str] = "mps-cleared"

    def _key_name(self) -> str:
        return "mps"

    def queries(self) -> tuple[MpsState, ...]:
        """Return the one query."""
        return (MpsState(),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what goes."""
        status: MpsStatus = snapshot[MpsState()]
        changes = [Change(Op.UPDATE, "server", "runs", "ended")] if status.runs else []
        rows = ((status.killed, "of a killed server"), (status.ended, "of a server that ended"))
        changes += [Change(Op.DELETE, path, old, None) for paths, old in rows for path in paths]
        if status.killed and not status.other:
            changes += [Change(Op.UPDATE, uuid, "Exclusive_Process", "Default") for uuid in status.exclusive]
        if status.has_memory and not status.other:
            changes.append(Change(Op.DELETE, f"{ROOT}/shm", "mounted", None))
        return tuple(changes)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how it goes."""
        del snapshot
        operations: Sequence[Operation] = [ClearMps()]
        return operations

    def _seconds(self) -> float:
        return SECONDS + 120.0
