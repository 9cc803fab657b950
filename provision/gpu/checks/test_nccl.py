"""NCCL between the cards of a node: right results, bus bandwidth, and NVLink SHARP."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from provision.contracts.check import Figure, NotDeclared, NotRun, Site, Trials
from provision.contracts.query import Unknown
from provision.gpu.nccl import parse_all_reduce
from provision.inventory.models.cluster import ExpectNccl
from provision.inventory.models.node import Node
from provision.kube.checks.pods import PodGroup, image_of, run_pods, uses
from provision.kube.names import API, is_member

GPU = "nvidia.com/gpu"
GIGABYTE = 1e9
SECONDS = 600
OK = 200
PROGRAM = "PATH=$PATH:/opt/nccl-tests/build:/opt/nccl_tests/build:/usr/local/nccl-tests/build all_reduce_perf"
"""Where images of NCCL's tests have it."""


@pytest.fixture
def expected(site: Site) -> ExpectNccl:
    """What is expected of NCCL."""
    nccl = site.inventory.expect.nccl
    if nccl is None:
        raise NotDeclared("nothing is expected of NCCL")
    return nccl


def test_nccl_all_reduce(
    site: Site, node: str, expected: ExpectNccl, trials: Trials, measured: Callable[[Figure], None]
) -> None:
    """All cards of the node reduce with right results, at the declared bandwidth and NVLink SHARP."""
    declared = site.inventory.nodes[node]
    cards = declared.gpu_cards.count if declared.gpu_cards is not None else None
    if not is_member(site.inventory, declared) or cards is None or cards < 2:  # noqa: PLR2004 - one card has no bus
        raise NotDeclared("no two cards in the cluster")
    image, name = image_of(site, "nccl"), _registered(site, declared)
    held = uses(_pods(site), name, GPU)
    if held:
        raise NotRun(f"others use cards of {name}: {', '.join(sorted(held)[:4])}")
    wants = expected.nvls == "required"
    algorithm = "NCCL_NVLS_ENABLE=1 NCCL_ALGO=NVLS" if wants else "NCCL_NVLS_ENABLE=1"
    script = f"export NCCL_DEBUG=INFO {algorithm}\n{PROGRAM} -b 8M -e 128M -f 2 -g {cards} 2>&1"
    group = PodGroup(
        "all",
        image,
        script,
        node=name,
        resources={GPU: str(cards)},
        # What limits memory and cores of a card also takes part in the calls that are measured.
        env={"CUDA_DISABLE_CONTROL": "true"},
        capabilities=("IPC_LOCK",),
        runtime_class="nvidia",
        shared_memory="8Gi",
    )
    (end,) = run_pods(site, trials, "nccl", [group], seconds=SECONDS)
    result = parse_all_reduce(end.log)
    if isinstance(result, Unknown):
        assert not end.code, f"status {end.code}: {result.reason}"
        pytest.skip(f"unknown: {result.reason}")
    assert result.ranks == cards, f"{result.ranks} of {cards} cards took part"
    assert result.is_right is not False, "results are wrong"
    assert not result.transports & {"NET/IB", "NET/Socket"}, "cards of one node talk over the network"
    assert not wants or result.nvls, "NVLink SHARP is not set up"
    assert expected.nvls != "absent" or not result.nvls, "NVLink SHARP is set up"
    if expected.busbw is None:
        return
    wanted = expected.busbw.bits_per_second / 8 / GIGABYTE
    measured(Figure("mean bus bandwidth", result.average, "GB/s", wanted))
    assert result.average >= wanted, f"{result.average:g} GB/s are less than {wanted:g}"


def _registered(site: Site, declared: Node) -> str:
    address = {"type": "InternalIP", "address": declared.address}
    for item in _items(site, "/api/v1/nodes"):
        if item["metadata"]["name"] == declared.kubernetes_name or address in item["status"].get(
            "addresses", []
        ):
            return str(item["metadata"]["name"])
    raise NotRun("it has not joined the cluster")


def _pods(site: Site) -> list[dict[str, Any]]:
    return _items(site, "/api/v1/pods")


def _items(site: Site, path: str) -> list[dict[str, Any]]:
    reply = site.get(API, path)
    if reply.status != OK:
        pytest.skip(f"unknown: {path}: {reply.status} {reply.text}")
    items: list[dict[str, Any]] = json.loads(reply.text)["items"]
    return items
