# ruff: noqa: E501 - tables with one case a line
"""Checks of RDMA between pods, against pods that print what real ones print, and against every way it goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from provision.api.domains import load_inventory as load
from provision.contracts.check import Figure, NotDeclared, NotRun, Site
from provision.contracts.query import ApiReply
from provision.gpu.checks import test_nccl as nccl
from provision.inventory import Inventory
from provision.rdma.checks import test_all_reduce as reduces
from provision.rdma.checks import test_transfers as checks
from provision.rdma.checks.pods import nets_of
from provision.testing.model_cluster import ModelCluster
from provision.testing.model_pods import Run
from tests.unit.gpu.test_nccl import IB, NVLS, PAIR_LOG, RANKS, REDUCED, SOCKET, TABLE
from tests.unit.kube.test_pods import Bench
from tests.unit.rdma.test_measurements import CUDA, GBITS, NIXL, OLD, PINGS
from tests.unit.rdma.test_measurements import TABLE as UCX

DIGEST = "@sha256:" + "ab" * 32
SITE = f"""version: 1
name: pair
access: {{ user: root }}
nodes:
  a: {{ address: 10.0.0.5, k3s: server, rails: &rails {{ r0: {{ device: rdma7, hca: mlx5_8 }} }},
       rail_addresses: {{ r0: 10.224.7.143/12 }}, gpu_cards: {{ count: 8 }} }}
  b: {{ address: 10.0.0.6, k3s: agent, rails: {{ r0: {{ device: rdma7, hca: mlx5_8 }} }},
       rail_addresses: {{ r0: 10.224.7.236/12 }}, gpu_cards: {{ count: 8 }} }}
k3s: {{ version: v1.35.7+k3s1 }}
rdma:
  operator: {{ version: v26.4.0 }}
  resources: {{ ib: {{ rail: r0, pods_per_node: 64 }} }}
  networks: {{ roce: {{ rail: r0, namespaces: [bench], pool: {{ subnet: 10.224.240.0/24, block: 16 }} }} }}
expect:
  rdma: {{ write: 90%, write_gpu: 75%, other_nic_share: 1% }}
  nccl: {{ busbw: 90GBps, nvls: required, between_nodes: 90% }}
verify: {{ images: {{ rdma: "r.example/rdma{DIGEST}", nccl: "r.example/nccl{DIGEST}", nixl: "r.example/nixl{DIGEST}" }} }}
""".replace("&rails ", "")
OWN = "own|10.224.240.5|mlx5_8|1|3|unlimited\nverbs|uverbs8|mlx5_8\n"
SENT = 65536 * 664644
"""What the quoted tables of ib_write_bw sum up to."""


def part(name: str, text: str, code: int = 0) -> str:
    return f"provision: part 6a0f-1b0d {name}\n{text}provision: part 6a0f-1b0d end {code}\n"


def count(declared: int | str, other: int = 0, eth0: int = 0) -> str:
    words = declared // 4 if isinstance(declared, int) else declared
    return (
        f"port|mlx5_8|1|400 Gb/sec (4X NDR)|{words}\nport|mlx5_9|1|400 Gb/sec (4X NDR)|{other // 4}\n"
        f"net|eth0|{eth0}\ncounters|end\n"
    )


def moved(text: str, after: str = count(SENT + 10**9), own: str = OWN, code: int = 0) -> str:
    own_part, before = part("own", own), part("before", count(0))
    return own_part + before + part("transfer", text, code) + part("after", after)


@dataclass
class Pair:
    """A cluster of two nodes, and what its pods print."""

    inventory: Inventory
    cluster: ModelCluster
    log: str = ""
    code: int = 0
    figures: list[Figure] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)

    def run(self, pod: dict[str, Any]) -> Run:
        script = pod["spec"]["containers"][0]["command"][2]
        self.scripts.append(script)
        if "provision: done" in script:
            return Run(f"{OWN}provision: done\n", None)
        return Run(self.log, self.code)

    @property
    def site(self) -> Site:
        driver = self.cluster.driver()

        class Shown:
            inventory = self.inventory

            def is_away(self, system: str) -> bool:
                del system
                return False

            def get(self, system: str, path: str) -> ApiReply:
                del system
                return driver.send("GET", path)

        return cast(Site, Shown())

    def check(self, function: Callable[..., None], *more: Any) -> None:
        arguments: list[Any] = [self.site, nets_of(self.site), Bench(self.cluster)]
        if "bandwidth" in function.__name__ or "nccl" in function.__name__:
            arguments.append(self.figures.append)
        function(*arguments, *more)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    (tmp_path / "pair.yaml").write_text(SITE)
    cluster = ModelCluster()
    cluster.add_node("a", "10.0.0.5")
    cluster.add_node("b", "10.0.0.6")
    pair = Pair(load(tmp_path / "pair.yaml", environ={}), cluster)
    cluster.pods.behaviours.append(pair.run)
    return pair


PAIR_SENT = 45 * 134217728
"""What the ranks of REDUCED sum up to."""
GIDS = "gid|mlx5_8|1|3|0000:0000:0000:0000:0000:ffff:0ae0:f005|RoCE v2|net1\ngids|end\n"
GOOD: dict[Callable[..., None], str] = {
    checks.test_rdma_pods_have_a_port: part("own", OWN) + part("gids", GIDS),
    checks.test_rping_between_nodes: moved(PINGS),
    checks.test_rping_within_a_node: moved(PINGS),
    checks.test_rdma_bandwidth: moved(GBITS),
    checks.test_rdma_bandwidth_of_gpus: moved(CUDA.replace("MB/sec", "Gb/sec").replace("11728.47", "377.5")),
    checks.test_ucx_uses_the_rail: moved(UCX.replace("mlx5_0", "mlx5_8"), count(100 * 2**27)),
    reduces.test_nccl_between_nodes: moved(PAIR_LOG + REDUCED, count(PAIR_SENT + 10**8)),
    checks.test_nixl_starts_on_the_rail: moved("I0112 nixl_agent.cpp: Backend UCX was instantiated\n"),
}


@pytest.mark.parametrize("function", GOOD, ids=lambda function: function.__name__)
def test_pods_that_use_the_declared_port_prove_it(pair: Pair, function: Callable[..., None]) -> None:
    pair.log = GOOD[function].replace("mlx5_0", "mlx5_8")
    pair.check(function)
    assert not pair.cluster.store.listed(pair.cluster.store.kind("Pod")), "all pods are gone"


PORT, PING, WRITE = (
    checks.test_rdma_pods_have_a_port,
    checks.test_rping_between_nodes,
    checks.test_rdma_bandwidth,
)
REDUCE = reduces.test_nccl_between_nodes
WRONG = [
    (PORT, ("10.224.240.5", "10.224.7.5"), "10.224.7.5 is not of the pool"),
    (PORT, ("own|10.224.240.5|mlx5_8|1|3|", "own|||||"), "the pod has no address on net1; see `kubectl"),
    (PING, ("own|10.224.240.5|mlx5_8|1|3|", "own|||||"), "the pod has no address on net1; see `kubectl"),
    (PORT, ("5|mlx5_8|1|3|", "5||||"), "no port has a RoCE v2 entry of 10.224.240.5"),
    (PORT, ("|mlx5_8|1|3|", "|mlx5_9|1|3|"), "is on mlx5_9, not on mlx5_8"),
    (PORT, ("verbs|uverbs8|mlx5_8\n", "verbs|uverbs8|mlx5_8\nverbs|uverbs9|mlx5_9\n"), "files of mlx5_9"),
    (PORT, ("verbs|uverbs8|mlx5_8\n", ""), "no device file of mlx5_8"),
    (PORT, ("unlimited", "8192"), "may lock 8192 KiB"),
    (PING, (PINGS, PINGS[: PINGS.index("ping data: rdma-ping-7")]), "7 of 10 pings"),
    (
        PING,
        (part("transfer", PINGS), part("transfer", "connect error -1\n", 1)),
        "status 1: connect error -1",
    ),
    (WRITE, ("391.87", "150.00"), "150.0 Gbit/s are less than 90% of 400"),
    (WRITE, ("Device         : mlx5_8", "Device         : mlx5_9"), "it used mlx5_9 with entry 3"),
    (WRITE, ("GID index       : 3", "GID index       : 1"), "with entry 1"),
    (WRITE, (count(SENT + 10**9), count(1_300_000)), "not RDMA: mlx5_8 port 1 sent 1.3 MB of 43.6 GB"),
    (WRITE, (count(SENT + 10**9), count(10**6, eth0=SENT + 10**9)), "TCP: mlx5_8 port 1 sent 1.0 MB"),
    (WRITE, (count(SENT + 10**9), count(SENT, other=SENT)), "another port"),
    (checks.test_rdma_bandwidth_of_gpus, ("allocated GPU buffer", "none"), "the data was not in GPU memory"),
    (
        checks.test_ucx_uses_the_rail,
        ("rc_mlx5/mlx5_8:1", "tcp/eth0"),
        "UCX does not use rc_mlx5/mlx5_8:1: tcp/eth0",
    ),
    (checks.test_ucx_uses_the_rail, (count(100 * 2**27), count(10**6)), "not RDMA"),
    (
        REDUCE,
        ("[receive] via NET/IB/0/GDRDMA", "[receive] via NET/Socket/0"),
        "NCCL goes through NET/IB, NET/Socket",
    ),
    (REDUCE, (PAIR_LOG, SOCKET), "NCCL goes through NET/Socket"),
    (REDUCE, (PAIR_LOG, "NCCL INFO Channel 00 : 1[0] -> 0[0] via P2P/CUMEM\n"), "goes through P2P"),
    (REDUCE, ("[0]mlx5_8:1", "[0]mlx5_9:1"), "NCCL uses mlx5_9:1, not mlx5_8:1"),
    (REDUCE, (":1/RoCE", ":1/RoCE [1]mlx5_80:1/RoCE"), "NCCL uses mlx5_80:1, mlx5_8:1, not mlx5_8:1"),
    (REDUCE, ("/GDRDMA", ""), "no GPUDirect"),
    (REDUCE, ("|right", "|wrong"), "results are wrong"),
    (REDUCE, ("reduced|2", "reduced|1"), "1 of 2 took part"),
    (REDUCE, ("0.113000", "0.500000"), "10.7 GB/s are less than 90% of 50"),
    (REDUCE, (count(PAIR_SENT + 10**8), count(1_300_000)), "not RDMA: mlx5_8 port 1 sent 1.3 MB of 6.0 GB"),
    (REDUCE, (count(PAIR_SENT + 10**8), count(10**6, eth0=PAIR_SENT)), "TCP: mlx5_8 port 1 sent 1.0 MB"),
    (REDUCE, (count(PAIR_SENT + 10**8), count(PAIR_SENT, other=PAIR_SENT)), "another port"),
    (checks.test_nixl_starts_on_the_rail, ("Backend UCX", "NIXL_ERR_BACKEND"), "NIXL_ERR_BACKEND"),
    (checks.test_nixl_starts_on_the_rail, ("was instantiated", "x"), "no backend UCX"),
    (
        checks.test_nixl_starts_on_the_rail,
        ("instantiated\n", "instantiated\nUCX INFO ep_cfg[0]: tag(tcp/net1 tcp/eth0)\n"),
        "tcp/net1",
    ),
    (
        checks.test_nixl_starts_on_the_rail,
        ("instantiated\n", "instantiated\nUCX WARN no RDMA transports available, falling back to TCP\n"),
        "no RDMA transports available",
    ),
]


@pytest.mark.parametrize(("function", "change", "words"), WRONG)
def test_every_other_way_is_seen(
    pair: Pair, function: Callable[..., None], change: tuple[str, str], words: str
) -> None:
    good = GOOD[function].replace("mlx5_0", "mlx5_8")
    assert change[0] in good
    pair.log = good.replace(*change)
    with pytest.raises(AssertionError) as raised:
        pair.check(function)
    assert words in str(raised.value)


UNREADABLE = [
    (REDUCE, (REDUCED, "")),
    (REDUCE, ("400 Gb/sec (4X NDR)", "")),
    (PORT, (GIDS, "")),
    (PING, (PINGS, "")),
    (WRITE, ("0.110767\n---", "0.110767\nx---")),
    (WRITE, (count(SENT + 10**9), "")),
    (WRITE, (count(SENT + 10**9), count("N/A (no PMA)"))),
    (checks.test_ucx_uses_the_rail, (UCX.replace("mlx5_0", "mlx5_8"), "UCX INFO\n")),
]


@pytest.mark.parametrize(("function", "change"), UNREADABLE)
def test_what_cannot_be_read_proves_nothing(
    pair: Pair, function: Callable[..., None], change: tuple[str, str]
) -> None:
    good = GOOD[function].replace("mlx5_0", "mlx5_8")
    assert change[0] in good
    pair.log = good.replace(*change)
    with pytest.raises(pytest.skip.Exception, match="unknown"):
        pair.check(function)
    assert not pair.figures


def test_a_figure_has_value_unit_and_expectation(pair: Pair) -> None:
    pair.log = GOOD[WRITE].replace("mlx5_0", "mlx5_8")
    pair.check(WRITE)
    figure = pair.figures[0]
    assert (round(figure.value, 2), figure.unit, figure.expected) == (391.87, "Gbit/s", 400)
    assert figure.margin == pytest.approx(0.1)
    assert len(pair.figures) == 2, "from each node to the other"


def test_a_figure_over_another_way_is_not_reported(pair: Pair) -> None:
    pair.log = GOOD[WRITE].replace("mlx5_0", "mlx5_8").replace(count(SENT + 10**9), count(1_300_000))
    with pytest.raises(AssertionError):
        pair.check(WRITE)
    assert pair.figures == []


def test_ranks_meet_at_the_first_pod_and_use_the_port_of_their_own(pair: Pair) -> None:
    pair.log = GOOD[REDUCE].replace("mlx5_0", "mlx5_8")
    pair.check(REDUCE)
    first, second = pair.scripts[:2]
    assert "NCCL_COMM_ID=$own:29400" in first
    assert '"$PROGRAM" 0 2 134217728 40' in first
    assert "NCCL_COMM_ID=10.224.240.5:29400 NCCL_IB_HCA==$hca:$port NCCL_IB_GID_INDEX=$gid" in second
    assert '"$PROGRAM" 1 2 134217728 40' in second
    assert "CUDA_DISABLE_CONTROL=true" in second, "NCCL hangs where HAMi's library takes part in its calls"
    assert [(figure.unit, figure.expected) for figure in pair.figures] == [("GB/s", 50.0)] * 2


def test_without_a_share_the_figure_between_nodes_is_reported_alone(pair: Pair, tmp_path: Path) -> None:
    file = tmp_path / "bare.yaml"
    file.write_text(SITE.replace(", between_nodes: 90%", ""))
    pair.inventory = load(file, environ={})
    pair.log = GOOD[REDUCE].replace("0.113000", "0.500000")
    pair.check(REDUCE)
    assert [figure.expected for figure in pair.figures] == [None, None]


@pytest.mark.parametrize(
    "function",
    [
        REDUCE,
        checks.test_rdma_bandwidth_of_gpus,
        checks.test_ucx_uses_the_rail,
        checks.test_nixl_starts_on_the_rail,
    ],
)
def test_nobody_waits_for_cards_that_others_use(pair: Pair, function: Callable[..., None]) -> None:
    limits = {"limits": {"nvidia.com/gpu": "8"}}
    spec = {"nodeName": "b", "containers": [{"resources": limits}]}
    metadata = {"name": "engine", "namespace": "work"}
    pair.cluster.store.seed({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    with pytest.raises(NotRun, match="others use all cards of b: work/engine"):
        pair.check(function)
    assert pair.scripts == []


def test_one_node_alone_proves_nothing_between_nodes(pair: Pair) -> None:
    pair.cluster.store.delete(pair.cluster.store.kind("Node"), ("", "b"))
    with pytest.raises(NotRun, match="fewer than two nodes"):
        pair.check(PING)


def test_without_an_image_nothing_is_run(pair: Pair, tmp_path: Path) -> None:
    file = tmp_path / "bare.yaml"
    file.write_text(SITE[: SITE.index("verify:")])
    pair.inventory = load(file, environ={})
    with pytest.raises(NotRun, match=r"verify\.images\.rdma"):
        pair.check(PING)


def test_without_networks_of_pods_nothing_is_claimed(pair: Pair, tmp_path: Path) -> None:
    file = tmp_path / "bare.yaml"
    file.write_text(SITE.replace("namespaces: [bench], ", ""))
    pair.inventory = load(file, environ={})
    with pytest.raises(NotDeclared):
        pair.check(PING)


def all_reduce(pair: Pair, log: str, code: int = 0) -> None:
    pair.log, pair.code = log, code
    expected = pair.inventory.expect.nccl
    assert expected is not None
    nccl.test_nccl_all_reduce(pair.site, "a", expected, Bench(pair.cluster), pair.figures.append)


def test_cards_that_reduce_over_nvlink_prove_it(pair: Pair) -> None:
    all_reduce(pair, RANKS + NVLS + TABLE)
    assert [(figure.value, figure.unit, figure.expected) for figure in pair.figures] == [
        (95.3009, "GB/s", 90.0)
    ]
    assert "NCCL_ALGO=NVLS" in pair.scripts[-1]
    assert "-g 8" in pair.scripts[-1]


@pytest.mark.parametrize(
    ("log", "code", "words"),
    [
        (RANKS + TABLE, 0, "NVLink SHARP is not set up"),
        (RANKS.splitlines()[0] + "\n" + NVLS + TABLE, 0, "1 of 8 cards"),
        (RANKS + NVLS + TABLE.replace("0 OK", "3 FAILED"), 0, "results are wrong"),
        (RANKS + NVLS + SOCKET + TABLE, 0, "over the network"),
        (RANKS + NVLS + IB + TABLE, 0, "over the network"),
        (RANKS + NVLS + TABLE.replace("95.3009", "40.1"), 0, "40.1 GB/s are less than 90"),
        ("NCCL WARN Cuda failure 802 'system not yet initialized'\n", 3, "802"),
    ],
)
def test_an_all_reduce_that_is_not_as_declared_is_red(pair: Pair, log: str, code: int, words: str) -> None:
    with pytest.raises(AssertionError) as raised:
        all_reduce(pair, log, code)
    assert words in str(raised.value)


def test_an_all_reduce_that_is_cut_proves_nothing(pair: Pair) -> None:
    with pytest.raises(pytest.skip.Exception, match="unknown"):
        all_reduce(pair, RANKS + NVLS + TABLE[:-60])


def test_cards_that_others_use_are_left_to_them(pair: Pair) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "engine", "namespace": "work"},
        "spec": {"nodeName": "a", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        "status": {"phase": "Running"},
    }
    pair.cluster.store.seed(pod)
    with pytest.raises(NotRun, match="work/engine"):
        all_reduce(pair, RANKS + NVLS + TABLE)


def test_lanes_of_older_releases_are_judged_too(pair: Pair) -> None:
    good = GOOD[checks.test_ucx_uses_the_rail]
    for text, words in ((OLD, "does not use"), (NIXL, "does not use rc_mlx5/mlx5_8:1")):
        pair.log = moved(text, count(100 * 2**27))
        assert pair.log != good
        with pytest.raises(AssertionError, match=words):
            pair.check(checks.test_ucx_uses_the_rail)
