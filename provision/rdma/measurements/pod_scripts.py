"""Shell text that checks run in pods of an RDMA network, and the parts of what it prints.

Images have a shell, iproute2 and the tools of their purpose. The pod finds its port by its own address: names
and indexes differ from pod to pod.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address

from provision.contracts.query import Unknown
from provision.rdma.measurements import counters, gids
from provision.rdma.measurements.counters import Counters
from provision.rdma.measurements.gids import GidEntry
from provision.values.numbers import is_number

_PART = "provision: part "
_MARK = re.compile(rf"{_PART}(?P<run>[0-9a-f-]{{1,40}}) (?:end (?P<code>[0-9]{{1,9}})|(?P<name>\w+))")
_DRAW = "read -r part_mark </proc/sys/kernel/random/uuid"
"""Draws what marks the parts of one run. No program of a part knows it: it is neither in an argument nor in
the environment, and the first line that has one was printed before any of them began."""
FIND = (
    "own=$(ip -4 -o addr show net1 2>/dev/null | sed -n 's/.* inet \\([0-9.]*\\)\\/.*/\\1/p' | head -n 1)\n"
    "hca=; port=; gid=\n"
    'if [ -n "$own" ]; then\n'
    "  own_gid=$(IFS=.; set -- $own; printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' \"$@\")\n"
    "  for g in /sys/class/infiniband/*/ports/*/gids/*; do\n"
    '    x=; { read -r x <"$g"; } 2>/dev/null; [ "$x" = "$own_gid" ] || continue\n'
    '    t=; { read -r t <"${g%/gids/*}/gid_attrs/types/${g##*/}"; } 2>/dev/null\n'
    '    [ "$t" = "RoCE v2" ] || continue\n'
    "    d=${g#/sys/class/infiniband/}; hca=${d%%/*}; d=${g%/gids/*}; port=${d##*/}; gid=${g##*/}\n"
    "  done\n"
    "fi\n"
    'echo "own|$own|$hca|$port|$gid|$(ulimit -l)"\n'
    "for u in /dev/infiniband/uverbs*; do\n"
    '  n=; { read -r n <"/sys/class/infiniband_verbs/${u##*/}/ibdev"; } 2>/dev/null\n'
    '  echo "verbs|${u##*/}|$n"\n'
    "done"
)
"""Finds the pod's address, and port and index of its RoCE v2 entry: `$own`, `$hca`, `$port`, `$gid`."""


def part(name: str, script: str) -> str:
    """Return shell text whose output is a part of that name, followed by its exit status."""
    return f'echo "{_PART}$part_mark {name}"\n{{ {script}\n}} 2>&1\necho "{_PART}$part_mark end $?"'


LOOK = "\n".join((_DRAW, part("own", FIND), part("gids", gids.SCRIPT)))
COUNT = counters.SCRIPT


def counted(script: str) -> str:
    """Return shell text that reads counters, runs something, and reads them again."""
    return "\n".join(
        (_DRAW, part("own", FIND), part("before", COUNT), part("transfer", script), part("after", COUNT))
    )


@dataclass(frozen=True, slots=True)
class Part:
    """What a part printed.

    Args:
        text: of both outputs.
        code: exit status of its last command.
    """

    text: str
    code: int


def parts_of(log: str) -> dict[str, Part]:
    """Return the parts that came to their end, by name; lines with another mark than the first are text."""
    parts: dict[str, Part] = {}
    lines: list[str] = []
    name = run = ""
    for line in log.split("\n"):
        mark = _MARK.fullmatch(line)
        run = run or (mark["run"] if mark is not None else "")
        if mark is not None and mark["run"] != run:
            mark = None
        if mark is not None and mark["code"] and name:
            parts[name] = Part("".join(lines), int(mark["code"]))
            name = ""
        elif mark is not None and mark["name"] and not name:
            name, lines = mark["name"], []
        else:
            lines.append(f"{line}\n")
    return parts


class NoSecondNetwork(Unknown):
    """The pod has no second network: none was declared where it runs, or Multus came after it."""


@dataclass(frozen=True, slots=True)
class PodPort:
    """What a pod has of RDMA.

    Args:
        address: of net1.
        hca: RDMA device whose table has the address; empty if none has.
        port: of it.
        index: of the entry.
        memlock: what `ulimit -l` says.
        devices: RDMA devices whose files the pod has.
    """

    address: IPv4Address
    hca: str
    port: int
    index: int
    memlock: str
    devices: frozenset[str]


def parse_own(text: str) -> PodPort | Unknown:
    """Return what FIND printed; Unknown where the pod has no address, or a row is not whole."""
    rows = [line.split("|") for line in text.splitlines()]
    own = next((row for row in rows if row[0] == "own" and len(row) == 6), None)  # noqa: PLR2004 - fields
    if own is None:
        return Unknown("the pod did not say what it has")
    try:
        address = IPv4Address(own[1])
    except ValueError:
        return NoSecondNetwork(f"the pod has no address on {counters.SECOND_NETWORK}")
    devices = frozenset(row[2] for row in rows if row[0] == "verbs" and len(row) == 3 and row[2])  # noqa: PLR2004 - fields
    port, index = (int(value) if is_number(value) else -1 for value in own[3:5])
    return PodPort(address, own[2], port, index, own[5].strip(), devices)


def parse_look(log: str) -> tuple[PodPort, tuple[GidEntry, ...]] | Unknown:
    """Return what LOOK printed."""
    parts = parts_of(log)
    if "own" not in parts or "gids" not in parts:
        return Unknown("the pod did not come to its end")
    own, table = parse_own(parts["own"].text), gids.parse_gids(parts["gids"].text)
    if isinstance(own, Unknown):
        return own
    return table if isinstance(table, Unknown) else (own, table)


def parse_counted(log: str) -> tuple[PodPort, Counters, Part, Counters] | Unknown:
    """Return what `counted` printed: the port, counters, the transfer, counters."""
    parts = parts_of(log)
    missing = [name for name in ("own", "before", "transfer", "after") if name not in parts]
    if missing:
        return Unknown(f"the pod did not come to its end: {', '.join(missing)} missing")
    own = parse_own(parts["own"].text)
    before = counters.parse_counters(parts["before"].text)
    after = counters.parse_counters(parts["after"].text)
    if isinstance(own, Unknown):
        return own
    if isinstance(before, Unknown):
        return before
    return after if isinstance(after, Unknown) else (own, before, parts["transfer"], after)
