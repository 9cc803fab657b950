"""NCCL between nodes: right results, and which way the data went."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from provision.contracts.check import Figure, NotDeclared, Site, Trials
from provision.contracts.query import Unknown
from provision.gpu.nccl import BetweenNodes, parse_between_nodes
from provision.kube.checks.pods import PodGroup
from provision.rdma.checks.pods import (
    Moved,
    Net,
    Place,
    between,
    leave_cards,
    nets_of,
    pairs_of,
    require_declared,
    serving,
    transferred,
    unknown,
)
from provision.rdma.measurements import all_reduce
from provision.rdma.measurements.pod_scripts import PodPort, counted

PROGRAM = Path(all_reduce.__file__).read_text()
RANKS, BYTES, TIMES = 2, 128 * 2**20, 40
PORT = 29400
SECONDS = 300
"""For each of the two pods of a pair, with the download of the image."""


@pytest.fixture
def nets(site: Site, cluster: str) -> list[Net]:
    """The declared networks of pods, where something is expected of NCCL."""
    del cluster
    if site.inventory.expect.nccl is None:
        raise NotDeclared("nothing is expected of NCCL")
    return nets_of(site)


def test_nccl_between_nodes(
    site: Site, nets: list[Net], trials: Trials, measured: Callable[[Figure], None]
) -> None:
    """A card on each of two nodes reduce with right results by RDMA, over the declared port alone."""
    for net in nets:
        for number, pair in enumerate(pairs_of(net, cards=True)):
            leave_cards(trials, pair)
            _reduce(site, net, trials, f"nccl-{number}", pair, measured)


def _reduce(
    site: Site,
    net: Net,
    trials: Trials,
    trial: str,
    pair: tuple[Place, Place],
    measured: Callable[[Figure], None],
) -> None:
    first, second = pair

    def command(rank: int, meeting: str) -> str:
        # `=` is an exact match: mlx5_1 would take mlx5_10, too. The index of the GID is that of this pod.
        port = "NCCL_IB_HCA==$hca:$port NCCL_IB_GID_INDEX=$gid NCCL_SOCKET_IFNAME=net1"
        settings = f"NCCL_DEBUG=INFO NCCL_COMM_ID={meeting}:{PORT} {port} CUDA_DISABLE_CONTROL=true"
        return f'{settings} timeout 120 python3 -c "$PROGRAM" {rank} {RANKS} {BYTES} {TIMES}'

    def group(place: Place, name: str, script: str) -> PodGroup:
        return net.group(site, place, name, script, purpose="nccl", cards=1, env={"PROGRAM": PROGRAM})

    def talk(own: PodPort) -> PodGroup:
        return group(second, "client", counted(command(1, str(own.address))))

    serve = group(first, "server", serving(command(0, "$own")))
    moved = transferred(site, second, between(site, trials, trial, serve, talk, seconds=SECONDS))
    result = parse_between_nodes(moved.text)
    who = f"{net.name}: {first.name} with {second.name}"
    if isinstance(result, Unknown):
        unknown(f"{who}: {result.reason}")
    _judge(site, moved, result, who)
    expected = site.inventory.expect.nccl
    share = expected.between_nodes if expected is not None else None
    rate = moved.rate
    if rate is None:
        unknown(f"{who}: {moved.own.hca} does not say its rate")
    if share is None:
        measured(Figure(f"NCCL, {who}", result.bandwidth, "GB/s"))
        return
    measured(Figure(f"NCCL, {who}", result.bandwidth, "GB/s", rate / 8, 1 - share))
    assert result.bandwidth >= share * rate / 8, (
        f"{who}: {result.bandwidth:.1f} GB/s are less than {share:.0%} of {rate / 8:g}"
    )


def _judge(site: Site, moved: Moved, result: BetweenNodes, who: str) -> None:
    """Refuse a result that is wrong, or that came another way than over the declared port."""
    assert result.ranks == RANKS, f"{who}: {result.ranks} of {RANKS} took part"
    assert result.is_right, f"{who}: results are wrong"
    ways = ", ".join(sorted(result.transports)) or "no channel that it names"
    assert result.transports == {"NET/IB"}, f"{who}: NCCL goes through {ways}"
    hcas, declared = set(result.hcas), f"{moved.port[0]}:{moved.port[1]}"
    assert hcas == {declared}, f"{who}: NCCL uses {', '.join(sorted(hcas)) or 'no port'}, not {declared}"
    expected = site.inventory.expect.rdma
    if expected is not None and expected.write_gpu is not None:
        assert result.gpu_direct, f"{who}: NCCL copies through host memory: no GPUDirect"
    require_declared(moved.judge(result.sent), who)
