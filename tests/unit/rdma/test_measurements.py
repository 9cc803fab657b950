# ruff: noqa: E501 - lines as programs print them
"""What measuring programs print becomes figures, or nothing.

Quoted from public reports: perftest#234, #241, #336, #82, NVIDIA/nccl#1573, openucx/ucx#7950, #9427, #10194,
ai-dynamo/nixl#149, openucx/ucx#9560. The others have the form that the program's source prints.
"""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.contracts.query import Unknown
from provision.rdma.measurements.gids import own_entry, parse_gids, parse_show_gids
from provision.rdma.measurements.perftest import Bandwidth, parse_bandwidth
from provision.rdma.measurements.rping import Rping, parse_rping
from provision.rdma.measurements.ucx import Lane, Protocols, fault, parse_protocols

RULE = "-" * 87
PINGS = "".join(
    f"ping data: rdma-ping-{n}: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr\n" for n in range(10)
)
BANDWIDTH = f"""\
{RULE}
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: ON
 ibv_wr* API     : ON
 CQ Moderation   : 1
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 3
 Max inline data : 0[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
{RULE}
 local address: LID 0000 QPN 0x0108 PSN 0x63ad7d RKey 0x17eedf VAddr 0x007f760c947000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:255:255:05
 remote address: LID 0000 QPN 0x0076 PSN 0xf3810c RKey 0x201600 VAddr 0x007fbb4c981000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:255:255:04
{RULE}
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      664644           0.00               11728.47\t\t   0.110767
{RULE}
"""
GBITS = BANDWIDTH.replace("MB/sec", "Gb/sec").replace("11728.47", "391.87")
CUDA = f"""\
Perftest doesn't supports CUDA tests with inline messages: inline size set to 0
initializing CUDA
Listing all CUDA devices in system:
CUDA device 0: PCIe address is 17:00

Picking device No. 0
[pid = 3669, dev = 0] device name = [NVIDIA A30]
creating CUDA Ctx
making it the current CUDA Ctx
cuMemAlloc() of a 67108864 bytes GPU buffer
allocated GPU buffer address at 00007f3fa4000000 pointer=0x7f3fa4000000
{BANDWIDTH}deallocating RX GPU buffer 00007f3fa4000000
destroying current CUDA Ctx
"""
SHOWN = (
    "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n"
    "---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n"
    "mlx5_0\t1\t4\tfe80:0000:0000:0000:a4ed:ccff:fe8b:1994\t\t\tv1\tnet1\n"
    "mlx5_0\t1\t5\tfe80:0000:0000:0000:a4ed:ccff:fe8b:1994\t\t\tv2\tnet1\n"
    "mlx5_0\t1\t6\t0000:0000:0000:0000:0000:ffff:0a98:000c\t10.152.0.12  \tv1\tnet1\n"
    "mlx5_0\t1\t7\t0000:0000:0000:0000:0000:ffff:0a98:000c\t10.152.0.12  \tv2\tnet1\n"
    "n_gids_found=4\n"
)
GIDS = (
    "gid|mlx5_0|1|3|0000:0000:0000:0000:0000:ffff:0ae0:078f|RoCE v2|\n"
    "gid|mlx5_0|1|6|0000:0000:0000:0000:0000:ffff:0ae0:f005|IB/RoCE v1|net1\n"
    "gid|mlx5_0|1|7|0000:0000:0000:0000:0000:ffff:0ae0:f005|RoCE v2|net1\n"
    "gids|end\n"
)
TABLE = """\
[1645019897.519901] [vulcan04:13202:0]     proto_debug.c:406  UCX  INFO  +---------------+---------------+------+
[1645019897.519920] [vulcan04:13202:0]     proto_debug.c:406  UCX  INFO  | mpi ep_cfg[3] | tagged message by ucp_tag_send*() from host memory |
[1645019897.519924] [vulcan04:13202:0]     proto_debug.c:406  UCX  INFO  +---------------+---------------+------+
[1645019897.519927] [vulcan04:13202:0]     proto_debug.c:406  UCX  INFO  |       0..2007 | eager short                               | rc_mlx5/mlx5_0:1 |
[1645019897.519937] [vulcan04:13202:0]     proto_debug.c:406  UCX  INFO  |    17298..inf | (?) rendezvous zero-copy read from remote | rc_mlx5/mlx5_0:1 |
[1645019897.519941] [vulcan04:13202:0]     proto_debug.c:406  UCX  INFO  +---------------+---------------+------+
"""
TWO_RAILS = """\
[1727631616.028250] [rock24:3137233:0]   | ucp_context_0 inter-node cfg#3 | rendezvous data fetch(multi) into cuda/GPU0 from cuda/dev[0] |
[1727631616.028253] [rock24:3137233:0]   +--------------------------------+----------+------+
[1727631616.028255] [rock24:3137233:0]   |                              0 | no data fetch                   |      |
[1727631616.028257] [rock24:3137233:0]   |                         1..282 | (?) zero-copy fenced write to remote | 23% on rc_mlx5/mlx5_0:1/path0 and 77% on rc_mlx5/mlx5_2:1/path0 |
+--------------------------------+----------+------+
"""
INTRA = """\
+---------------------------+--------------------------------------------------------------+
| perftest intra-node cfg#2 | active message by ucp_am_send* from host memory              |
+---------------------------+-----------------------------------------------+--------------+
|                     0..92 | short                                         | sysv/memory  |
|                  93..2824 | copy-in                                       | cuda_ipc/cuda |
+---------------------------+-----------------------------------------------+--------------+
"""
NIXL = (
    "[1744331142.028115] [ccw-gpu-51:2802608:3]      ucp_worker.c:1903 UCX  INFO    ucp_context_2 inter-node cfg#3"
    " rma(rc_mlx5/mlx5_ib2:1)  amo(rc_mlx5/mlx5_ib2:1)  am(rc_mlx5/mlx5_ib2:1 rc_mlx5/mlx5_ib7:1)\n"
)
OLD = (
    "ucp_worker.c:1783 UCX INFO ep_cfg[1]: tag(sysv/memory cma/memory cuda_copy/cuda)\n"
    "ucp_worker.c:1783 UCX INFO ep_cfg[3]: tag(tcp/ib1 tcp/ib0)\n"
)


def test_rping_counts_what_came_back() -> None:
    assert parse_rping(f"{PINGS}client DISCONNECT EVENT...\n") == Rping(10)
    assert parse_rping(
        "server " + PINGS.replace("\nping", "\nserver ping") + "wait for RDMA_READ_ADV state 10\n"
    ) == Rping(10)
    failed = parse_rping(
        "cma event RDMA_CM_EVENT_REJECTED, error 8\nwait for CONNECTED state 4\nconnect error -1\n"
    )
    assert failed == Rping(0, "cma event RDMA_CM_EVENT_REJECTED, error 8")


@pytest.mark.parametrize("text", ["", "\n \n", PINGS.replace("rdma-ping-4:", "rdma-ping-"), PINGS[400:]])
def test_rping_with_a_gap_is_unknown(text: str) -> None:
    assert isinstance(parse_rping(text), Unknown)


def test_a_bandwidth_has_its_unit_device_and_entry() -> None:
    report = parse_bandwidth(BANDWIDTH)
    assert isinstance(report, Bandwidth)
    # MB of perftest is 2^20 bytes: 11,728 of them are what a port of 100 Gbit/s can do.
    assert report.best.gbits == pytest.approx(98.385, abs=0.001)
    assert (report.device, report.link, report.gid_index, report.card) == ("mlx5_0", "Ethernet", 3, "")
    assert report.sent == 65536 * 664644
    gbits = parse_bandwidth(GBITS)
    assert isinstance(gbits, Bandwidth)
    assert gbits.best.gbits == pytest.approx(391.87)


def test_memory_of_a_gpu_is_said_only_where_it_was_allocated() -> None:
    report = parse_bandwidth(CUDA)
    assert isinstance(report, Bandwidth)
    assert report.card == "NVIDIA A30"
    without = parse_bandwidth(CUDA.replace("allocated GPU buffer", "no buffer"))
    assert isinstance(without, Bandwidth)
    assert without.card == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no table"),
        ("ib_write_bw: unrecognized option '--use-cuda'\n", "unrecognized option"),
        ("CUDA DMA-BUF cannot be used without CUDA\n Parser function exited with Error\n", "without CUDA"),
        ("Couldn't allocate MR with error=14\n", "error=14"),
        (BANDWIDTH.replace("Device         : mlx5_0", ""), "device"),
        (BANDWIDTH.replace("11728.47", "-3.20"), "no rate"),
        (BANDWIDTH.replace("11728.47", "nan"), "no rate"),
        (BANDWIDTH.replace("11728.47", "0.00"), "no rate"),
        (BANDWIDTH.replace("11728.47", "117#8.47"), "not whole"),
        (BANDWIDTH.replace("MB/sec", "KB/sec"), "KB/sec"),
        (BANDWIDTH.removesuffix(RULE + "\n"), "no end"),
        (BANDWIDTH[: BANDWIDTH.index(" 65536")] + " Completion with error at client\n", "with error"),
    ],
)
def test_a_bandwidth_that_is_not_whole_is_unknown(text: str, reason: str) -> None:
    report = parse_bandwidth(text)
    assert isinstance(report, Unknown)
    assert reason in report.reason


def test_a_pod_finds_its_own_gid_by_address_not_by_index() -> None:
    entries = parse_gids(GIDS)
    assert not isinstance(entries, Unknown)
    own = own_entry(entries, "mlx5_0", 1, IPv4Address("10.224.240.5"))
    assert own is not None
    assert (own.index, own.netdev) == (7, "net1")
    assert own_entry(entries, "mlx5_0", 1, IPv4Address("10.224.240.6")) is None
    assert own_entry(entries, "mlx5_1", 1, IPv4Address("10.224.240.5")) is None


def test_show_gids_in_tabs_or_blanks_says_the_same() -> None:
    entries = parse_show_gids(SHOWN)
    assert not isinstance(entries, Unknown)
    own = own_entry(entries, "mlx5_0", 1, IPv4Address("10.152.0.12"))
    assert own is not None
    assert own.index == 7
    assert parse_show_gids(SHOWN.expandtabs(8)) == entries


@pytest.mark.parametrize(
    "text", ["", GIDS[:-9], GIDS.replace("|7|", "|x|"), GIDS.replace("ffff:0ae0", "ffff:")]
)
def test_a_cut_table_of_gids_is_unknown(text: str) -> None:
    assert isinstance(parse_gids(text), Unknown)
    assert isinstance(parse_show_gids(SHOWN[: len(SHOWN) // 2]), Unknown)
    assert isinstance(parse_show_gids(SHOWN.replace("\t5\t", "\tx\t")), Unknown)


def test_ucx_names_the_lanes_between_nodes() -> None:
    hca = Lane("rc_mlx5", "mlx5_0", 1)
    assert parse_protocols(TABLE) == Protocols(frozenset({hca}), frozenset())
    rails = parse_protocols(TWO_RAILS)
    assert rails == Protocols(frozenset({hca, Lane("rc_mlx5", "mlx5_2", 1)}), frozenset())
    within = parse_protocols(INTRA)
    assert isinstance(within, Protocols)
    assert {lane.name for lane in within.intra_node} == {"sysv/memory", "cuda_ipc/cuda"}
    old = parse_protocols(OLD)
    assert isinstance(old, Protocols)
    assert {lane.name for lane in old.inter_node} == {"tcp/ib0", "tcp/ib1"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TABLE, ""),
        (TABLE + INTRA, ""),
        (TWO_RAILS, "also uses rc_mlx5/mlx5_2:1"),
        (NIXL.replace("mlx5_ib2", "mlx5_0"), "also uses rc_mlx5/mlx5_ib7:1"),
        (INTRA, "does not use rc_mlx5/mlx5_0:1: cuda_ipc/cuda"),
        (OLD, "does not use rc_mlx5/mlx5_0:1"),
        (
            TABLE.replace("eager short                               | rc_mlx5/mlx5_0:1", "x | tcp/eth0"),
            "tcp/eth0",
        ),
    ],
)
def test_ucx_must_use_one_hca_and_nothing_else(text: str, words: str) -> None:
    protocols = parse_protocols(text)
    assert isinstance(protocols, Protocols)
    shown = fault(protocols, "mlx5_0", 1)
    assert words in shown
    assert bool(words) == bool(shown)


@pytest.mark.parametrize(
    "text", ["", "UCX  INFO  Version 1.16.0\n", TABLE[: TABLE.rindex("[1645")], TWO_RAILS[:150]]
)
def test_ucx_without_a_whole_table_is_unknown(text: str) -> None:
    assert isinstance(parse_protocols(text), Unknown)


@pytest.mark.hypothesis
@settings(max_examples=40, deadline=None)
@given(st.sampled_from([PINGS, BANDWIDTH, CUDA, SHOWN, GIDS, TABLE, TWO_RAILS, NIXL]), st.data())
def test_readers_of_measurements_take_anything(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    damaged = text[:start] + data.draw(st.text(max_size=20)) + text[start + data.draw(st.integers(0, 40)) :]
    for read in (parse_rping, parse_bandwidth, parse_gids, parse_show_gids, parse_protocols):
        assert read(damaged) is not None
