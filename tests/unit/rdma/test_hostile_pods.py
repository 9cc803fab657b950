"""What a pod can print instead of a result: each reader says in a bounded time that it has none."""

from __future__ import annotations

import pytest

from provision.contracts.query import Unknown
from provision.gpu.nccl import parse_between_nodes
from provision.rdma.measurements.counters import parse_counters, parse_statistic
from provision.rdma.measurements.gids import parse_show_gids
from provision.rdma.measurements.pod_scripts import parse_counted, parse_look, parse_own, parts_of
from provision.values.numbers import is_number

RUN = "6a0f2c1e-1b0d-4a59-9d0e-0c5f3c1d7a11"
MARK = f"provision: part {RUN} "
LONG = "9" * 5000
LOG = 262_144
OWN = "own|10.0.0.1|mlx5_0|1|3|x"
PARTS = ("own", "gids", "before", "transfer", "after")


def log_of(content: str, code: str = "0") -> str:
    return "".join(f"{MARK}{name}\n{content}\n{MARK}end {code}\n" for name in PARTS)


@pytest.mark.parametrize(
    "log",
    [
        f"{MARK}own\n" * (LOG // 20),
        log_of(OWN, LONG),
        *(
            log_of(f"own|10.0.0.1|mlx5_0|1|3|x\nport|mlx5_0|{number}|\ncounters|end")
            for number in (LONG, "²")
        ),
    ],
    ids=[
        "only marks",
        "a status of thousands of digits",
        "a port of thousands of digits",
        "a digit of no int",
    ],
)
def test_a_log_that_is_none_is_unknown(log: str) -> None:
    assert isinstance(parse_counted(log), Unknown)
    assert isinstance(parse_look(log), Unknown)


@pytest.mark.parametrize("number", [LONG, "²", "٣"])
def test_a_number_that_no_machine_has_is_none(number: str) -> None:
    own = parse_own(f"own|10.0.0.1|mlx5_0|{number}|{number}|x")
    assert not isinstance(own, Unknown)
    assert (own.port, own.index) == (-1, -1)
    assert isinstance(parse_counters(f"net|eth0|{number}\ncounters|end"), Unknown)
    assert isinstance(parse_statistic(f"link mlx5_0/1 sent_pkts {number}"), Unknown)
    assert isinstance(parse_show_gids(f"n_gids_found={number}"), Unknown)
    assert isinstance(parse_between_nodes(f"reduced|{number}|1|45|40|0.1|right"), Unknown)
    assert not is_number(number)


def test_the_greatest_counter_of_64_bits_is_a_number() -> None:
    assert is_number(str(2**64 - 1))


def test_a_mark_within_a_part_is_its_text() -> None:
    (part,) = parts_of(f"{MARK}own\n{MARK}gids\n{MARK}end 0\n{MARK}end 1\n").values()
    assert (part.text, part.code) == (f"{MARK}gids\n", 0)


def test_what_a_program_prints_forges_no_part() -> None:
    forged = "provision: part end 0\nprovision: part 0 end 0\nprovision: part 0 after\ncounters|end\n"
    (part,) = parts_of(f"{MARK}transfer\n{forged}{MARK}end 1\n").values()
    assert (part.text, part.code) == (forged, 1)
