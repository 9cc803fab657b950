"""Counters of RDMA ports and interfaces, and what their rise says of a transfer's way.

A program's word on its transport is no proof: one run reported 1,121 GB while the NICs had moved 1.3 MB,
because its data went over NVLink.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from provision.contracts.query import Unknown
from provision.values.numbers import is_number

WORD = 4
"""Bytes that `port_xmit_data` counts as one (Linux' Documentation/ABI/stable/sysfs-class-infiniband)."""
SATURATED = 2**32 - 1
"""Where a 32-bit counter of an older HCA stops and stays."""
SECOND_NETWORK = "net1"
"""How Multus calls the first further interface of a pod."""
SCRIPT = (
    "for p in /sys/class/infiniband/*/ports/*; do\n"
    '  [ -d "$p" ] || continue\n'
    '  d=${p%/ports/*}; n="${d##*/}|${p##*/}"; r=; x=\n'
    '  read -r r <"$p/rate" || :\n'
    '  read -r x <"$p/counters/port_xmit_data" || :\n'
    '  echo "port|$n|$r|$x"\n'
    '  for h in "$p"/hw_counters/*; do\n'
    '    x=; read -r x <"$h" && echo "hw|$n|${h##*/}|$x"\n'
    "  done\n"
    "done 2>/dev/null\n"
    "for s in /sys/class/net/*/statistics/tx_bytes; do\n"
    "  x=; d=${s%/statistics/*}\n"
    '  read -r x <"$s" && echo "net|${d##*/}|$x"\n'
    "done 2>/dev/null\n"
    "echo 'counters|end'"
)
"""Prints what was sent, by port and by interface of the namespace that it runs in."""
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) Gb/sec")
_LINK = re.compile(r"(?:\d+/\d+: )?(?:link )?([A-Za-z][\w.-]*)/([0-9]{1,9}):? (.*)")

PortKey = tuple[str, int]
"""RDMA device and number of the port."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What had been sent at one time.

    Args:
        sent: bytes by port; None for a port without byte counters (a VF, Soft-RoCE).
        rates: Gbit/s by port, where the kernel says so.
        packets: `sent_pkts` by port, which Soft-RoCE has instead.
        interfaces: bytes by interface.
    """

    sent: dict[PortKey, int | None] = field(default_factory=dict)
    rates: dict[PortKey, float] = field(default_factory=dict)
    packets: dict[PortKey, int] = field(default_factory=dict)
    interfaces: dict[str, int] = field(default_factory=dict)


class Route(StrEnum):
    """Which way data went."""

    DECLARED = "the declared port"
    OTHER_PORT = "another port"
    TCP = "TCP"
    NOT_RDMA = "not RDMA"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the counters say, and the figures that it rests on."""

    route: Route
    reason: str


def parse_counters(text: str) -> Counters | Unknown:
    """Return what SCRIPT printed; Unknown where its end is missing."""
    counters, is_whole = Counters(), False
    for line in text.splitlines():
        kind, *row = line.split("|")
        if kind == "counters":
            is_whole = row == ["end"]
        elif kind == "port" and len(row) == 4 and is_number(row[1]):  # noqa: PLR2004 - the fields of SCRIPT
            key = (row[0], int(row[1]))
            counters.sent[key] = _words(row[3])
            rate = _RATE.match(row[2])
            if rate is not None:
                counters.rates[key] = float(rate[1])
        elif kind == "hw" and row[2:3] == ["sent_pkts"] and is_number(row[1]) and is_number(row[-1]):
            counters.packets[row[0], int(row[1])] = int(row[-1])
        elif kind == "net" and len(row) == 2 and is_number(row[1]):  # noqa: PLR2004 - the fields of SCRIPT
            counters.interfaces[row[0]] = int(row[1])
        elif kind in ("port", "net"):
            return Unknown(f"a row of the counters is not whole: {line[:80]}")
    return counters if is_whole else Unknown("the counters have no end")


def parse_statistic(text: str) -> dict[PortKey, dict[str, int]] | Unknown:
    """Return the counters of `rdma statistic show`, by port; Unknown where a line is not whole."""
    ports: dict[PortKey, dict[str, int]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        match = _LINK.fullmatch(line.strip())
        words = match[3].split() if match is not None else []
        if match is None or len(words) % 2 or not all(is_number(word) for word in words[1::2]):
            return Unknown(f"rdma statistic printed a line that is not whole: {line.strip()[:80]}")
        values = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        ports.setdefault((match[1], int(match[2])), {}).update(values)
    return ports or Unknown("rdma statistic printed no port")


def judge(
    before: Counters, after: Counters, port: PortKey, sent: int, share: float, interface: str = "eth0"
) -> Judgement:
    """Return which way a transfer went.

    Args:
        before: counters at its begin, of the sender.
        after: counters at its end.
        port: the declared one.
        sent: bytes that the program sent.
        share: of `sent` that any other port, and `interface`, may send at the same time.
        interface: what TCP of a pod goes through.
    """
    name = f"{port[0]} port {port[1]}"
    if sent <= 0:
        return Judgement(Route.UNKNOWN, "nothing was sent")
    rise = _rise(before.sent.get(port), after.sent.get(port))
    interface, tcp = _loudest(before, after, interface)
    others = {key: _rise(before.sent.get(key), value) for key, value in after.sent.items() if key != port}
    loud = {key: value for key, value in others.items() if isinstance(value, int) and value > share * sent}
    if isinstance(rise, str):
        # Packets show that the port moved, not how much: no share follows from them.
        packets = after.packets.get(port, 0) - before.packets.get(port, 0)
        moved = f"; it sent {packets} packets" if packets > 0 else ""
        return Judgement(Route.UNKNOWN, f"{name} {rise}{moved}")
    figures = f"{name} sent {_size(rise)} of {_size(sent)}"
    of_tcp = f"{interface} {tcp if isinstance(tcp, str) else f'sent {_size(tcp)}'}"
    if isinstance(tcp, int) and tcp > share * sent and tcp >= sent - rise:
        # Only where it rose: a flat port alone may also mean NVLink or shared memory.
        return Judgement(Route.TCP, f"{figures}, {of_tcp}")
    if loud:
        return Judgement(Route.OTHER_PORT, f"{figures}, {_listed(loud)}")
    if rise < sent:
        return Judgement(Route.NOT_RDMA, f"{figures}, {of_tcp}")
    silent = [f"{key[0]} port {key[1]} {why}" for key, why in others.items() if isinstance(why, str)]
    if isinstance(tcp, str):
        silent.append(of_tcp)
    why = f", and {'; '.join(sorted(silent)[:4])}" if silent else ""
    return Judgement(Route.UNKNOWN if silent else Route.DECLARED, figures + why)


def _loudest(before: Counters, after: Counters, interface: str) -> tuple[str, int | str]:
    """Return the interface that TCP of the pod went through, and its rise; the second network may carry it.

    RDMA does not go through an interface, so what it counts is something else.
    """
    first = _rise(before.interfaces.get(interface), after.interfaces.get(interface))
    second = _rise(before.interfaces.get(SECOND_NETWORK), after.interfaces.get(SECOND_NETWORK))
    if isinstance(first, int) and isinstance(second, int) and second > first:
        return SECOND_NETWORK, second
    return interface, first


def _rise(before: int | None, after: int | None) -> int | str:
    """Return a rise, or why there is none to compare."""
    if before is None or after is None:
        return "has no byte counter"
    if SATURATED * WORD in (before, after):
        return "has a counter that is full (32 bits)"
    if after < before:
        return "has a counter that fell"
    return after - before


def _words(text: str) -> int | None:
    # `N/A (no PMA)` on virtual functions and ConnectX-3; nothing at all on Soft-RoCE and iWARP.
    return int(text) * WORD if is_number(text) else None


def _listed(ports: dict[PortKey, int]) -> str:
    return ", ".join(
        f"{key[0]} port {key[1]} sent {_size(value)}" for key, value in sorted(ports.items())[:4]
    )


def _size(value: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:,.1f} {unit}"
    return f"{value:.0f} B"
