"""What hosts said of RDMA ports in public reports, and which rail they are."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.contracts.query import Frame, Unknown
from provision.inventory.models.node import Rail
from provision.rdma.facts import resolve
from provision.rdma.queries import RDMA_STATE_KIND, RdmaState, RdmaStatus, gid_address

MAPPED = "0000:0000:0000:0000:0000:ffff:0ae0:078f"
LOCAL = "fe80:0000:0000:0000:0e42:a1ff:fe00:0001"
NET = "net|rdma7|0000:a0:00.0|0|4220|up\naddr|rdma7|10.224.7.143/12\n"
PORT = "port|mlx5_8|1|0000:a0:00.0|4: ACTIVE|Ethernet|400 Gb/sec (4X NDR)|12345\n"
RAIL = Rail(device="rdma7", hca="mlx5_8", mtu=4220)


def asked(text: str) -> Any:
    return RDMA_STATE_KIND.parse(Frame(f"{text}done|\n".encode(), b"", 0), [RdmaState()])[RdmaState()]


def status(text: str) -> RdmaStatus:
    answer = asked(text)
    assert isinstance(answer, RdmaStatus), answer
    return answer


def gid(
    index: int, kind: str, address: str, netdev: str = "rdma7", device: str = "mlx5_8", port: int = 1
) -> str:
    return f"gid|{device}|{port}|{index}|{kind}|{netdev}|{address}\n"


V1, V2 = "IB/RoCE v1", "RoCE v2"
TABLES = [
    (
        "the standard table",
        gid(0, V1, LOCAL) + gid(1, V2, LOCAL) + gid(2, V1, MAPPED) + gid(3, V2, MAPPED),
        3,
    ),
    ("only v2 entries", gid(0, V2, LOCAL) + gid(1, V2, MAPPED), 1),
    ("a VLAN between", gid(1, V1, MAPPED, "eth2.10") + gid(4, V2, MAPPED, "eth2.10") + gid(5, V2, MAPPED), 5),
    ("no interface in the table", gid(7, V2, MAPPED, ""), 7),
    ("v1 only", gid(0, V1, LOCAL) + gid(1, V1, MAPPED), None),
    ("another address", gid(0, V2, LOCAL) + gid(1, V2, "0000:0000:0000:0000:0000:ffff:0a00:0001"), None),
    ("nothing", "", None),
]


@pytest.mark.parametrize(("table", "index"), [case[1:] for case in TABLES], ids=[case[0] for case in TABLES])
def test_the_entry_is_the_v2_one_of_the_address(table: str, index: int | None) -> None:
    rail = resolve("r0", RAIL, "10.224.7.143/12", status(NET + PORT + table))
    assert (rail.gid.index if rail.gid is not None else None) == index
    assert rail.port is not None


NAMES = [
    # name of the port and its line, the interface's line
    ("as declared", PORT, NET, ()),
    (
        "names by PCI",
        "port|rocep160s0|1|0000:a0:00.0|4: ACTIVE|Ethernet|100 Gb/sec (4X EDR)|1\n",
        NET,
        (("hca", "mlx5_8", "rocep160s0"),),
    ),
    (
        "an interface that an upgrade renamed",
        PORT,
        "net|enp75s0f0np0|0000:a0:00.0|0|4220|up\naddr|enp75s0f0np0|10.224.7.143/12\n",
        (("device", "rdma7", "enp75s0f0np0"),),
    ),
    (
        "two ports on one function",
        PORT.replace("4: ACTIVE", "1: DOWN") + PORT.replace("|1|", "|2|", 1),
        "net|rdma7|0000:a0:00.0|1|4220|up\naddr|rdma7|10.224.7.143/12\n",
        (("port", "1", "2"),),
    ),
]


@pytest.mark.parametrize(
    ("ports", "nets", "renamed"), [case[1:] for case in NAMES], ids=[case[0] for case in NAMES]
)
def test_a_rail_is_its_address_and_names_are_compared(
    ports: str, nets: str, renamed: tuple[tuple[str, str, str], ...]
) -> None:
    assert resolve("r0", RAIL, "10.224.7.143/12", status(nets + ports)).renamed == renamed


def test_a_bond_is_found_by_its_table() -> None:
    # nccl#769, ucx#10420: the bond has no function of its own, and its ports have no address.
    text = (
        "port|mlx5_bond_0|1|0000:a0:00.0|4: ACTIVE|Ethernet|200 Gb/sec (4X HDR)|1\n"
        "net|ens3np0|0000:a0:00.0|0|9000|up\nnet|ens4np1|0000:a0:00.1|1|9000|up\nnet|bond0||0|9000|up\n"
        "addr|bond0|10.16.29.13/24\n"
        + gid(1, V2, LOCAL, "bond0", "mlx5_bond_0")
        + gid(3, V2, "0000:0000:0000:0000:0000:ffff:0a10:1d0d", "bond0", "mlx5_bond_0")
    )
    rail = resolve("r0", Rail(device="bond0", hca="mlx5_bond_0"), "10.16.29.13/24", status(text))
    assert rail.port is not None
    assert rail.gid is not None
    assert (rail.port.device, rail.gid.index, rail.renamed) == ("mlx5_bond_0", 3, ())


def test_ports_of_a_dpu_are_told_apart_by_the_table() -> None:
    # MrBr-github/lshca#57: one device, the ports 1, 2 and 67, and several interfaces of one function.
    text = "".join(
        f"port|mlx5_0|{number}|0000:a0:00.0|4: ACTIVE|Ethernet|200 Gb/sec|1\n" for number in (1, 2, 67)
    )
    text += "net|p0|0000:a0:00.0|0|9000|up\nnet|pf0hpf|0000:a0:00.0|0|9000|up\naddr|pf0hpf|10.0.0.5/24\n"
    text += gid(3, V2, "0000:0000:0000:0000:0000:ffff:0a00:0005", "pf0hpf", "mlx5_0", 67)
    rail = resolve("r0", Rail(device="pf0hpf", hca="mlx5_0", port=67), "10.0.0.5/24", status(text))
    assert rail.port is not None
    assert (rail.port.number, rail.renamed) == (67, ())


def test_tables_of_ipv6_alone_have_no_entry_of_an_ipv4_address() -> None:
    # uccl#803: index 0 is no answer where nothing fits.
    table = gid(0, V2, LOCAL) + gid(1, V2, "fd93:0000:0000:0000:0000:0000:0000:0001")
    assert resolve("r0", RAIL, "10.224.7.143/12", status(NET + PORT + table)).gid is None


def test_a_software_port_is_found_by_its_table() -> None:
    text = (
        "port|rxe0|1||4: ACTIVE|Ethernet|2.5 Gb/sec (1X SDR)|\nnet|enp0s2||0|1500|up\n"
        "addr|enp0s2|10.9.0.1/24\n" + gid(1, V2, "0000:0000:0000:0000:0000:ffff:0a09:0001", "enp0s2", "rxe0")
    )
    rail = resolve("r0", Rail(device="enp0s2", hca="rxe0"), "10.9.0.1/24", status(text))
    assert rail.port is not None
    assert rail.gid is not None
    assert (rail.port.device, rail.port.rate, rail.port.counts_bytes, rail.gid.index) == (
        "rxe0",
        2.5,
        False,
        1,
    )


STATES = [
    ("port|mlx5_0|1|0000:a0:00.0|1: DOWN|Ethernet|10 Gb/sec (1X QDR)|N/A (no PMA)", ("DOWN", False)),
    ("port|i40iw0|1|0000:a0:00.0|||10 Gb/sec (1X QDR)|", ("", False)),
    ("port|mlx5_0|1|0000:a0:00.0|4: ACTIVE|InfiniBand|400 Gb/sec (4X NDR)|77", ("ACTIVE", True)),
    ("port|mlx5_0|1|0000:a0:00.0|5: ACTIVE_DEFER|InfiniBand||0", ("ACTIVE_DEFER", True)),
]


@pytest.mark.parametrize(("line", "wanted"), STATES)
def test_a_counter_that_is_no_number_counts_nothing(line: str, wanted: tuple[str, bool]) -> None:
    (port,) = status(line + "\n").ports
    assert (port.state, port.counts_bytes) == wanted


MODES = [("core|Y|", "shared"), ("core|1|", "shared"), ("core|N|", "exclusive"), ("core||", ""), ("", "")]


@pytest.mark.parametrize(("line", "mode"), MODES)
def test_the_mode_is_known_or_empty(line: str, mode: str) -> None:
    assert status(f"{line}\n" if line else "").netns == mode


VERSIONS = [
    ("ofed|MLNX_OFED_LINUX-24.10-1.1.4.0:", "24.10-1.1.4.0"),
    ("ofed|OFED-internal-25.04-0.6.0:", "25.04-0.6.0"),
    ("ofed|\nmodule|24.10-0.7.0", "24.10-0.7.0"),
    ("module|none", ""),
]


@pytest.mark.parametrize(("line", "version"), VERSIONS)
def test_the_driver_stack_has_a_version(line: str, version: str) -> None:
    assert status(f"{line}\n").ofed == version


def test_an_address_of_a_table_is_read_by_family() -> None:
    assert gid_address(MAPPED) == ip_address("10.224.7.143")
    assert gid_address(LOCAL) == ip_address(LOCAL)
    assert gid_address("0000:0000:0000:0000:0000:0000:0000:0000") is None
    assert gid_address("read error") is None


@settings(max_examples=60)
@given(st.binary(max_size=200), st.lists(st.text(alphabet="abc:0|19. -/", max_size=30), max_size=12))
def test_any_answer_is_ports_or_unknown(data: bytes, lines: list[str]) -> None:
    tags = ("port", "gid", "net", "addr", "core", "ofed", "module", "char")
    text = "".join(f"{tags[index % len(tags)]}|{line}\n" for index, line in enumerate(lines))
    for frame in (data, text.encode() + b"done|\n"):
        answer = RDMA_STATE_KIND.parse(Frame(frame, b"", 0), [RdmaState()])[RdmaState()]
        assert isinstance(answer, RdmaStatus | Unknown)
