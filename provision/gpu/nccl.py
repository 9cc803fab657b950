"""Output of nccl-tests (`all_reduce_perf`), with the log of NCCL in between (`NCCL_DEBUG=INFO`)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from provision.contracts.query import Unknown
from provision.values.numbers import is_number

_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
_WRONG = r"(?:[0-9]+|N/A|[0-9.]+e[+-]?[0-9]+)"
_PREFIX = re.compile(r"^(?:\[[0-9]+,[0-9]+\]<std(?:out|err)>:|\[[0-9]+\] ?)")
_ROW = re.compile(
    rf"^ *([0-9]+) +[0-9]+ +[a-z][a-z0-9_]* +\w+ +(?:-?[0-9]+ +)?"
    rf"{_NUMBER} +{_NUMBER} +({_NUMBER}) +({_WRONG})(?: +{_NUMBER} +{_NUMBER} +({_NUMBER}) +({_WRONG}))?$"
)
_RANK = re.compile(r"^# +Rank +([0-9]+) ")
_BOUNDS = re.compile(r"^ ?#? *Out of bounds values *: *[0-9]+ (OK|FAILED)")
_AVERAGE = re.compile(rf"^# Avg bus bandwidth *: *({_NUMBER})\s*$")
_VIA = re.compile(r"Channel [0-9/]+ ?:? .* via ([A-Za-z0-9_]+)(?:/([A-Za-z0-9_]+))?(\S*)")
_HCAS = re.compile(r"NET/IB\w* *: *Using((?: \[[0-9]+\][^ ;\[]+)+)")
_HCA = re.compile(r"\[[0-9]+\](?:\{[0-9]+\} )?([A-Za-z0-9_\-]+:[0-9]+)")
_WARN = re.compile(r"(?:NCCL WARN|Test NCCL failure|Test CUDA failure|Cuda failure) (.*)")
_FAULT = re.compile(r"(?:NCCL WARN|fault\||Error: |Cuda failure) ?(.*)")
_REDUCED = re.compile(
    r"reduced\|([1-9][0-9]{0,8})\|([0-9]{1,15})\|([0-9]{1,9})\|([0-9]{1,9})\|([0-9]{1,9}\.[0-9]{1,9})\|(right|wrong)"
)
_NVLS = re.compile(r"NVLS comm 0x|Connected NVLS|NVLS tree")


@dataclass(frozen=True, slots=True)
class AllReduce:
    """One run.

    Args:
        ranks: GPUs that took part.
        average: mean bus bandwidth in GB/s (10^9 bytes), as the program sums it up.
        best: the highest of all rows.
        is_right: whether all results were right; None where nobody compared them.
        transports: `NET/IB`, `NET/Socket`, `P2P`, `SHM`: what channels go through.
        gpu_direct: whether all channels of NET/IB use GPUDirect.
        hcas: `DEVICE:PORT` that NCCL took.
        nvls: whether NVLink SHARP was set up.
    """

    ranks: int
    average: float
    best: float
    is_right: bool | None
    transports: frozenset[str]
    gpu_direct: bool
    hcas: tuple[str, ...]
    nvls: bool


@dataclass(slots=True)
class _Reading:
    """What was read so far."""

    ranks: set[str] = field(default_factory=set)
    bandwidths: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    transports: set[str] = field(default_factory=set)
    hcas: dict[str, None] = field(default_factory=dict)
    bounds: str = ""
    average: float | None = None
    complaint: str = ""
    is_direct: bool = True

    def row(self, match: re.Match[str]) -> None:
        self.bandwidths += [float(value) for value in (match[2], match[4]) if value]
        self.wrong += [value for value in (match[3], match[5]) if value]

    def rank(self, match: re.Match[str]) -> None:
        self.ranks.add(match[1])

    def verdict(self, match: re.Match[str]) -> None:
        self.bounds = match[1]

    def mean(self, match: re.Match[str]) -> None:
        self.average = float(match[1])

    def channel(self, match: re.Match[str]) -> None:
        # Plugins have names of their own: NET/IBext_v8.
        way, kind = match[1], match[2] or ""
        name = f"NET/{'IB' if kind.startswith('IB') else kind}" if way == "NET" else way
        self.transports.add(name)
        self.is_direct &= name != "NET/IB" or "GDRDMA" in match[3]

    def devices(self, match: re.Match[str]) -> None:
        self.hcas.update(dict.fromkeys(_HCA.findall(match[1])))

    def warning(self, match: re.Match[str]) -> None:
        self.complaint = self.complaint or match[1]


_READERS = (
    (_ROW, _Reading.row),
    (_RANK, _Reading.rank),
    (_BOUNDS, _Reading.verdict),
    (_AVERAGE, _Reading.mean),
    (_VIA, _Reading.channel),
    (_HCAS, _Reading.devices),
    (_WARN, _Reading.warning),
)
_BETWEEN = ((_VIA, _Reading.channel), (_HCAS, _Reading.devices), (_FAULT, _Reading.warning))


def parse_all_reduce(text: str) -> AllReduce | Unknown:
    """Return what the program printed; Unknown, with its complaint, where the summary is missing."""
    reading = _Reading()
    for raw in text.splitlines():
        line = _PREFIX.sub("", raw).rstrip()
        for pattern, read in _READERS:
            match = pattern.search(line)
            if match is not None:
                read(reading, match)
                break
    if reading.average is None or not reading.bounds or not reading.bandwidths:
        return Unknown(reading.complaint[:160] or "all_reduce_perf did not come to its end")
    if not reading.ranks:
        return Unknown("all_reduce_perf does not say who took part")
    is_right = reading.bounds == "OK" and not any(map(_is_wrong, reading.wrong))
    return AllReduce(
        len(reading.ranks),
        reading.average,
        max(reading.bandwidths),
        None if "N/A" in reading.wrong else is_right,
        frozenset(reading.transports),
        reading.is_direct and "NET/IB" in reading.transports,
        tuple(reading.hcas),
        _NVLS.search(text) is not None,
    )


@dataclass(frozen=True, slots=True)
class BetweenNodes:
    """One all-reduce between pods, as `rdma/measurements/all_reduce.py` prints it.

    Args:
        ranks: pods that took part.
        sent: bytes that each rank has sent, also before the clock ran.
        bandwidth: bus bandwidth in GB/s (10^9 bytes).
        is_right: whether all results were right.
        transports: `NET/IB`, `NET/Socket`: what channels go through.
        gpu_direct: whether all channels of NET/IB use GPUDirect.
        hcas: `DEVICE:PORT` that NCCL took.
    """

    ranks: int
    sent: int
    bandwidth: float
    is_right: bool
    transports: frozenset[str]
    gpu_direct: bool
    hcas: tuple[str, ...]


def parse_between_nodes(text: str) -> BetweenNodes | Unknown:
    """Return what a rank printed; Unknown, with its complaint, where the result is missing."""
    reading, result = _Reading(), None
    for line in text.splitlines():
        result = _REDUCED.fullmatch(line.strip()) or result
        for pattern, read in (
            (_VIA, _Reading.channel),
            (_HCAS, _Reading.devices),
            (_FAULT, _Reading.warning),
        ):
            match = pattern.search(line)
            if match is not None:
                read(reading, match)
                break
    if result is None or not float(result[5]):
        return Unknown(reading.complaint[:160] or "the all-reduce did not come to its end")
    ranks, size, calls, timed = (int(result[index]) for index in range(1, 5))
    # A ring sends each byte to the next rank 2(n-1)/n times (nccl-tests, doc/PERFORMANCE.md).
    sent = size * 2 * (ranks - 1) / ranks
    return BetweenNodes(
        ranks,
        round(sent * calls),
        sent * timed / float(result[5]) / 1e9,
        result[6] == "right",
        frozenset(reading.transports),
        reading.is_direct and "NET/IB" in reading.transports,
        tuple(reading.hcas),
    )


def _is_wrong(value: str) -> bool:
    # Older releases print the greatest error (`2e-07`), newer ones how many values are wrong.
    return is_number(value) and int(value) > 0
