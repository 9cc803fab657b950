# ruff: noqa: E501 - lines as programs print them
"""What the counters of ports and interfaces say of the way that data took."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.contracts.query import Unknown
from provision.rdma.measurements.counters import Counters, Route, judge, parse_counters, parse_statistic

PORT = ("mlx5_8", 1)
TEXT = (
    "port|mlx5_8|1|400 Gb/sec (4X NDR)|1000\n"
    "hw|mlx5_8|1|out_of_sequence|3\n"
    "port|mlx5_9|1|400 Gb/sec (4X NDR)|50\n"
    "net|eth0|700\n"
    "net|net1|0\n"
    "counters|end\n"
)
RXE = "port|rxe0|1|2.5 Gb/sec (1X SDR)|\nhw|rxe0|1|sent_pkts|263\nnet|enp0s2|5\ncounters|end\n"
STATISTIC = "link mlx5_2/1 rx_write_requests 0 rx_read_requests 12 out_of_buffer 0 \nlink mlx5_3/1 rx_write_requests 5 \n"
GB = 10**9


def counters(port: int | None, other: int | None = 0, eth0: int | None = 0) -> Counters:
    interfaces = {} if eth0 is None else {"eth0": eth0}
    return Counters({PORT: port, ("mlx5_9", 1): other}, interfaces=interfaces)


def test_counters_are_read_in_bytes() -> None:
    read = parse_counters(TEXT)
    assert isinstance(read, Counters)
    # port_xmit_data counts words of 4 bytes.
    assert read.sent == {PORT: 4000, ("mlx5_9", 1): 200}
    assert (read.rates[PORT], read.interfaces["eth0"]) == (400.0, 700)
    soft = parse_counters(RXE)
    assert isinstance(soft, Counters)
    assert (soft.sent, soft.packets) == ({("rxe0", 1): None}, {("rxe0", 1): 263})
    virtual = parse_counters(TEXT.replace("|1000", "|N/A (no PMA)"))
    assert isinstance(virtual, Counters)
    assert virtual.sent[PORT] is None


@pytest.mark.parametrize(
    "text", ["", TEXT[:-4], TEXT.replace("counters|end\n", ""), TEXT.replace("net|eth0|700", "net|eth0")]
)
def test_counters_that_are_cut_are_unknown(text: str) -> None:
    assert isinstance(parse_counters(text), Unknown)


def test_statistics_of_iproute2_are_read_by_port() -> None:
    assert parse_statistic(STATISTIC) == {
        ("mlx5_2", 1): {"rx_write_requests": 0, "rx_read_requests": 12, "out_of_buffer": 0},
        ("mlx5_3", 1): {"rx_write_requests": 5},
    }
    for damaged in (
        "",
        "link mlx5_2/1 rx_write_requests\n",
        "link mlx5_2/1 a b\n",
        "hw_counters/SwLinkUp,32\n",
    ):
        assert isinstance(parse_statistic(damaged), Unknown)


@pytest.mark.parametrize(
    ("after", "route", "words"),
    [
        (counters(101 * GB), Route.DECLARED, "101.0 GB of 100.0 GB"),
        (counters(101 * GB, other=GB, eth0=GB), Route.DECLARED, ""),
        (counters(101 * GB, other=2 * GB), Route.OTHER_PORT, "mlx5_9 port 1 sent 2.0 GB"),
        (counters(0, other=101 * GB), Route.OTHER_PORT, "mlx5_9"),
        (counters(2 * GB, eth0=104 * GB), Route.TCP, "eth0 sent 104.0 GB"),
        (counters(101 * GB, eth0=2 * GB), Route.TCP, "eth0"),
        (counters(1_300_000), Route.NOT_RDMA, "1.3 MB of 100.0 GB, eth0 sent 0 B"),
        (counters(2 * GB, eth0=3 * GB), Route.NOT_RDMA, "eth0 sent 3.0 GB"),
        (counters(1_300_000, eth0=None), Route.NOT_RDMA, "eth0 has no byte counter"),
        (counters(None), Route.UNKNOWN, "mlx5_8 port 1 has no byte counter"),
        (counters(101 * GB, other=None), Route.UNKNOWN, "mlx5_9 port 1 has no byte counter"),
        (counters(101 * GB, eth0=None), Route.UNKNOWN, "eth0 has no byte counter"),
        (counters((2**32 - 1) * 4), Route.UNKNOWN, "full (32 bits)"),
    ],
)
def test_the_rise_says_which_way_data_went(after: Counters, route: Route, words: str) -> None:
    judgement = judge(counters(0), after, PORT, 100 * GB, 0.01)
    assert (judgement.route, words in judgement.reason) == (route, True), judgement


def test_data_over_nvlink_is_not_rdma_and_not_tcp() -> None:
    judgement = judge(counters(0), counters(1_300_000), PORT, 1_121 * GB, 0.01)
    assert judgement.route is Route.NOT_RDMA
    assert "1.3 MB of 1,121.0 GB" in judgement.reason


def test_tcp_over_the_second_network_is_no_rdma_either() -> None:
    before, after = counters(0), counters(10**6)
    before.interfaces["net1"], after.interfaces["net1"] = 0, 101 * GB
    judgement = judge(before, after, PORT, 100 * GB, 0.01)
    assert (judgement.route, "net1 sent 101.0 GB" in judgement.reason) == (Route.TCP, True)


def test_a_counter_that_fell_says_nothing() -> None:
    assert judge(counters(5), counters(4), PORT, GB, 0.01).route is Route.UNKNOWN


def test_packets_of_soft_roce_prove_no_share() -> None:
    before, after = parse_counters(RXE), parse_counters(RXE.replace("263", "300"))
    assert isinstance(before, Counters)
    assert isinstance(after, Counters)
    judgement = judge(before, after, ("rxe0", 1), 4096, 0.01, "enp0s2")
    assert judgement.route is Route.UNKNOWN
    assert "37 packets" in judgement.reason


def test_a_transfer_of_nothing_proves_nothing() -> None:
    assert judge(counters(0), counters(GB), PORT, 0, 0.01).route is Route.UNKNOWN


@pytest.mark.hypothesis
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**15), st.integers(0, 10**15), st.integers(0, 10**15), st.integers(1, 10**15))
def test_only_a_full_rise_of_the_declared_port_is_rdma(port: int, other: int, eth0: int, sent: int) -> None:
    route = judge(counters(0), counters(port, other, eth0), PORT, sent, 0.01).route
    if route is Route.DECLARED:
        assert port >= sent
        assert max(other, eth0) <= sent / 100
    if route is Route.TCP:
        assert eth0 > sent / 100


@pytest.mark.hypothesis
@settings(max_examples=40, deadline=None)
@given(st.sampled_from([TEXT, RXE, STATISTIC]), st.data())
def test_readers_of_counters_take_anything(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    damaged = text[:start] + data.draw(st.text(max_size=20)) + text[start + data.draw(st.integers(0, 30)) :]
    assert parse_counters(damaged) is not None
    assert parse_statistic(damaged) is not None
