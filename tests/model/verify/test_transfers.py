# ruff: noqa: E501 - tables with one case a line
"""Two nodes with RoCE, verified whole: pods that print what real ones do prove it, and damaged ones turn checks red."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from provision.api.domains import load_inventory as load
from provision.rdma.checks import test_all_reduce as reduces
from provision.rdma.checks import test_transfers as checks
from provision.testing.model_pods import Run
from provision.verify.model import CheckOutcome
from tests.model.model_site import ModelSite
from tests.model.verify.test_transfer_pods import GIDS, GOOD, OWN, SITE, part
from tests.unit.gpu.test_nccl import NVLS, RANKS, TABLE

NCCL = "test_nccl_all_reduce"
CHECKS = {function.__name__ for function in GOOD} | {NCCL}
"""Checks of pods that talk to each other."""


def log_of(script: str, *, is_damaged: bool) -> str:
    """Return what a pod prints whose script has these words."""
    if "all_reduce_perf" in script:
        return RANKS + NVLS + (TABLE.replace("95.3009", "12.5") if is_damaged else TABLE)
    words: dict[str, Callable[..., None]] = {
        '"$PROGRAM" 1': reduces.test_nccl_between_nodes,
        "rping -c": checks.test_rping_between_nodes,
        "--use_cuda": checks.test_rdma_bandwidth_of_gpus,
        "ib_write_bw": checks.test_rdma_bandwidth,
        "ucx_perftest": checks.test_ucx_uses_the_rail,
        "nixl": checks.test_nixl_starts_on_the_rail,
    }
    function = next((function for word, function in words.items() if word in script), None)
    log = (
        GOOD[function].replace("mlx5_0", "mlx5_8")
        if function is not None
        else part("own", OWN) + part("gids", GIDS)
    )
    if not is_damaged:
        return log
    damages = (
        ("rdma-ping-9", "lost"),
        ("377.5", "9.5"),
        ("391.87", "9.5"),
        ("[send] via NET/IB/0/GDRDMA", "[send] via NET/Socket/0"),
        ("rc_mlx5/", "tcp/"),
        ("Backend UCX", ""),
    )
    for old, new in (*damages, ("unlimited", "64")):
        log = log.replace(old, new)
    return log


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> ModelSite:
    folder = tmp_path_factory.mktemp("pair")
    for name, text in {"key": "k", "key.pub": "ssh-ed25519 AAAA me", "k3s": "binary"}.items():
        (folder / name).write_text(text)
    text = SITE.replace("{ user: root }", "{ user: debian, key: ./key }").replace(
        "+k3s1 }", "+k3s1, binary: ./k3s }"
    )
    (folder / "pair.yaml").write_text(text)
    site = ModelSite(load(folder / "pair.yaml"), folder / "state", checks=True)
    site.apply()
    return site


def verdicts(site: ModelSite, *, is_damaged: bool) -> set[tuple[str, CheckOutcome]]:
    def run(pod: dict[str, Any]) -> Run:
        script = pod["spec"]["containers"][0]["command"][2]
        if "provision: done" in script:
            return Run(f"{OWN}provision: done\n", None)
        return Run(log_of(script, is_damaged=is_damaged))

    site.cluster.pods.behaviours[:] = [run]
    return {(one.check, one.outcome) for one in site.verify().checks if one.check in CHECKS}


def test_pods_over_the_declared_port_are_proven(applied: ModelSite) -> None:
    assert verdicts(applied, is_damaged=False) == {(check, CheckOutcome.PROVEN) for check in CHECKS}


def test_pods_that_show_a_fault_turn_their_checks_red(applied: ModelSite) -> None:
    assert verdicts(applied, is_damaged=True) == {(check, CheckOutcome.FAILED) for check in CHECKS}
