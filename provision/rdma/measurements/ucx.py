"""What UCX says of its choice of transports with `UCX_PROTO_INFO=y` and `UCX_LOG_LEVEL=info`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from provision.contracts.query import Unknown

_RANGE = re.compile(r"[0-9]+[KMG]?(?:\.\.(?:[0-9]+[KMG]?|inf))?")
# Lanes are TRANSPORT/DEVICE, with a port for an HCA: rc_mlx5/mlx5_0:1/path0, tcp/eth0, cuda_ipc/cuda.
_LANE = re.compile(r"(?<![\w/])([a-z][a-z0-9_]*)/([A-Za-z0-9_.\-]+)(?::([0-9]{1,9}))?")
_CONFIG = re.compile(r"cfg[\[#][0-9]+\]?:? +((?:[a-z_0-9]+\([^)]*\) *)+)")
_LOG = re.compile(r"^(?:\[[0-9.]+\] )?(?:\[[^\]]+\] +)?(?:\S+\.c:[0-9]+ +UCX +INFO +)?")


@dataclass(frozen=True, slots=True)
class Lane:
    """A transport over a device.

    Args:
        port: of an HCA; 0 for anything else.
    """

    transport: str
    device: str
    port: int = 0

    @property
    def name(self) -> str:
        """As UCX writes it."""
        return f"{self.transport}/{self.device}" + (f":{self.port}" if self.port else "")


@dataclass(frozen=True, slots=True)
class Protocols:
    """All lanes that UCX chose, between processes of different nodes or of one."""

    inter_node: frozenset[Lane]
    intra_node: frozenset[Lane]


def parse_protocols(text: str) -> Protocols | Unknown:
    """Return the chosen lanes; Unknown where no table of them is in the text, or one has no end."""
    inter: set[Lane] = set()
    intra: set[Lane] = set()
    current, is_open, tables = inter, False, 0
    for line in text.splitlines():
        row = _LOG.sub("", line).strip()
        config = _CONFIG.search(row)
        if config is not None:
            tables += 1
            _target(row, inter, intra).update(_lanes(config[1]))
        elif row.startswith("+-"):
            is_open = False
        elif row.startswith("|"):
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            is_open = True
            if "cfg" in cells[0]:
                tables += 1
                current = _target(cells[0], inter, intra)
            elif _RANGE.fullmatch(cells[0]) and row.endswith("|"):
                current.update(_lanes(cells[-1]))
    if not tables:
        return Unknown("UCX printed no choice of protocols")
    if is_open:
        return Unknown("the last table of UCX has no end")
    if not inter and not intra:
        return Unknown("UCX printed protocols without a transport")
    return Protocols(frozenset(inter), frozenset(intra))


def fault(protocols: Protocols, hca: str, port: int) -> str:
    """Return why data between nodes would not go over one HCA alone; empty where it would.

    `self`, shared memory and copies within a process carry nothing between nodes and do not count.
    """
    lanes = protocols.inter_node
    declared = Lane("rc_mlx5", hca, port)
    if declared not in lanes:
        shown = ", ".join(sorted(lane.name for lane in lanes | protocols.intra_node))
        return f"UCX does not use {declared.name}: {shown}"
    wrong = sorted(
        lane.name
        for lane in lanes
        if lane.transport in ("tcp", "cuda_ipc") or (lane.port and (lane.device, lane.port) != (hca, port))
    )
    return f"UCX also uses {', '.join(wrong)}" if wrong else ""


def _target(title: str, inter: set[Lane], intra: set[Lane]) -> set[Lane]:
    """Return where lanes belong; older releases do not say it, and shared memory does."""
    of_node = "intra-node" in title or " self " in title or "/memory" in title
    return intra if of_node and "inter-node" not in title else inter


def _lanes(text: str) -> set[Lane]:
    return {Lane(name, device, int(port or 0)) for name, device, port in _LANE.findall(text)}
