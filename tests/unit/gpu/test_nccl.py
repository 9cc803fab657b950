# ruff: noqa: E501 - lines as programs print them
"""What nccl-tests print, with the log of NCCL between the rows.

Quoted from NVIDIA/nccl-tests#252, #7, #71, #294, #264, NVIDIA/nccl#1453, #1029, #1488 and aws-k8s-tester#503.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.contracts.query import Unknown
from provision.gpu.nccl import AllReduce, BetweenNodes, parse_all_reduce, parse_between_nodes

RANKS = "".join(
    f"#  Rank  {n} Group  0 Pid 89554{n} on     h100-2 device  {n} [0x0{n}] NVIDIA H100 80GB HBM3\n"
    for n in range(8)
)
TABLE = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   536870912     134217728     float     sum      -1    10052   53.41   93.46      0   9676.9   55.48   97.09      0
  8589934592    2147483648     float     sum      -1   158070   54.34   95.10      0   158561   54.17   94.80      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 95.3009
#
"""
OLD = """\
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
       32768          8192   float     sum    159.4    0.21    0.39  2e-07    201.8    0.16    0.31  2e-07
 Out of bounds values : 248 FAILED
# Avg bus bandwidth    : 0.35
"""
IB = (
    "node23:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_8:1/RoCE [1]mlx5_9:1/RoCE [RO]; OOB eth0:10.224.3.43<0>\n"
    "node23:1:2 [0] NCCL INFO Channel 01/0 : 16[0] -> 0[0] [receive] via NET/IBext_v8/7/GDRDMA\n"
    "node23:1:2 [0] NCCL INFO Channel 02/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n"
)
SOCKET = "node23:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/Socket/0\n"
NVLS = "h100:227602:227792 [0] NCCL INFO NVLS comm 0x5639e9f0e8c0 headRank 0 nHeads 8 buffSize 1048576\n"


def read(text: str) -> AllReduce:
    result = parse_all_reduce(text)
    assert isinstance(result, AllReduce), result
    return result


def test_an_all_reduce_has_mean_best_and_ranks() -> None:
    result = read(RANKS + TABLE)
    assert (result.ranks, result.average, result.best, result.is_right) == (8, 95.3009, 97.09, True)
    prefixed = "".join(f"[1,0]<stdout>:{line}\n" for line in (RANKS + TABLE).splitlines())
    assert read(prefixed) == result


def test_wrong_results_are_said_in_every_release() -> None:
    assert read(RANKS + OLD).is_right is False
    assert read(RANKS + OLD.replace("248 FAILED", "0 OK")).is_right is True
    assert read(RANKS + TABLE.replace("93.46      0", "93.46     12")).is_right is False
    # With -c 0 nobody compares.
    assert read(RANKS + TABLE.replace("93.46      0", "93.46    N/A")).is_right is None


def test_the_log_names_the_way_between_nodes() -> None:
    over_ib = read(RANKS + IB + TABLE)
    assert over_ib.transports == {"NET/IB", "P2P"}
    assert (over_ib.gpu_direct, over_ib.hcas, over_ib.nvls) == (True, ("mlx5_8:1", "mlx5_9:1"), False)
    assert not read(RANKS + IB.replace("/GDRDMA", "") + TABLE).gpu_direct
    over_tcp = read(RANKS + SOCKET + TABLE)
    assert (over_tcp.transports, over_tcp.gpu_direct) == (frozenset({"NET/Socket"}), False)
    assert read(RANKS + NVLS + TABLE).nvls


def test_a_run_of_one_card_is_seen() -> None:
    # Without MPI in the build, every process is rank 0 of 1 and measures nothing.
    assert read(RANKS.splitlines()[0] + "\n" + TABLE.replace("95.3009", "0")).ranks == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "end"),
        (RANKS + TABLE[:-40], "end"),
        (
            RANKS + "[0] transport/nvls.cc:244 NCCL WARN Cuda failure 802 'system not yet initialized'\n",
            "802",
        ),
        ("node: Test CUDA failure common.cu:941 'system not yet initialized'\n", "not yet initialized"),
        (TABLE, "took part"),
    ],
)
def test_an_all_reduce_without_its_end_is_unknown(text: str, reason: str) -> None:
    result = parse_all_reduce(text)
    assert isinstance(result, Unknown)
    assert reason in result.reason


@pytest.mark.hypothesis
@settings(max_examples=40, deadline=None)
@given(st.sampled_from([RANKS + IB + TABLE, RANKS + OLD]), st.data())
def test_the_reader_of_nccl_takes_anything(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    damaged = text[:start] + data.draw(st.text(max_size=20)) + text[start + data.draw(st.integers(0, 40)) :]
    assert parse_all_reduce(damaged) is not None


def test_a_channel_that_is_cut_after_its_kind_of_network_names_none() -> None:
    cut = RANKS + IB.replace("NET/IBext_v8", "NET:") + TABLE
    assert parse_all_reduce(cut) is not None


PAIR_LOG = (
    "a:7:7 [0] NCCL INFO NET/IB : Using [0]mlx5_8:1/RoCE [RO]; OOB net1:10.224.240.5<0>\n"
    "a:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA\n"
    "a:7:9 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0/GDRDMA\n"
)
REDUCED = "reduced|2|134217728|45|40|0.113000|right\n"


def test_a_pair_of_nodes_says_its_way_and_how_much_it_sent() -> None:
    pair = parse_between_nodes(PAIR_LOG + REDUCED)
    assert isinstance(pair, BetweenNodes), pair
    assert (pair.ranks, pair.sent, pair.is_right) == (2, 45 * 134217728, True)
    assert round(pair.bandwidth, 2) == 47.51
    assert (pair.transports, pair.gpu_direct, pair.hcas) == (frozenset({"NET/IB"}), True, ("mlx5_8:1",))


H200_ALONE = """\
vm:433:433 [0] NCCL INFO ncclCommInitRank comm 0x20c78e30 rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 60 commId 0xb518810acec505dc - Init COMPLETE
reduced|1|67108864|25|20|0.000711|right
vm:433:433 [0] NCCL INFO comm 0x20c78e30 rank 0 nranks 1 cudaDev 0 busId 60 - Destroy COMPLETE
"""
H200_TWICE = """\
vm:448:448 [0] NCCL INFO Using network Socket
[2026-12-01 14:01:37] vm:448:448 [0] init.cc:808 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60
vm:448:448 [0] NCCL INFO init.cc:1537 -> 5
fault|ncclCommInitRank returned 5
"""
"""What our program printed on one H200 (driver 580, CUDA 13): alone, and as two ranks on the same card."""


def test_a_rank_that_is_alone_sends_nothing() -> None:
    alone = parse_between_nodes(H200_ALONE)
    assert isinstance(alone, BetweenNodes), alone
    assert (alone.ranks, alone.sent, alone.is_right, alone.transports) == (1, 0, True, frozenset())


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (H200_TWICE, "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60"),
        (PAIR_LOG, "did not come to its end"),
        (PAIR_LOG + REDUCED[:-7], "did not come to its end"),
        (REDUCED.replace("0.113000", "0.000000"), "did not come to its end"),
        (
            PAIR_LOG + "a:7:9 [0] misc/socket.cc:484 NCCL WARN socketPollConnect: connect to x failed\n",
            "failed",
        ),
        ("fault|cuInit returned 100\n", "cuInit returned 100"),
        ("OSError: libnccl.so.2: cannot open shared object file: No such file\n", "libnccl.so.2"),
    ],
)
def test_a_pair_that_is_cut_is_unknown_with_its_complaint(log: str, reason: str) -> None:
    result = parse_between_nodes(log)
    assert isinstance(result, Unknown)
    assert reason in result.reason
