"""What a root's partition can have of its disk; a logical one needs its extended one first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from provision.contracts.query import Frame, Unknown
from provision.hosts.operations.grow import GrowPartition, GrowVolume
from provision.hosts.resources.filesystem import ROOT_CHAIN_KIND, RootChain, RootFilesystem, RootStatus
from provision.testing.model_host import ModelHost, guest_state
from tests.unit.hosts.converge import converge, snapshot_of

GIB = 1024**3 // 512
MBR, GPT = "label: dos", "label: gpt"
BOOT = "/dev/vda1 : start=        2048, size=      497664, type=83, bootable"
EXTENDED = "/dev/vda2 : start=      499712, size=     7888896, type=5"
LOGICAL = "/dev/vda5 : start=      501760, size=     7886848, type=8e"
DEBIAN = (MBR, "", BOOT, EXTENDED, LOGICAL)
STARTS = (2048, 499712, 501760)


def _answer(
    number: int, start: int, size: int, whole: int, table: Sequence[str], starts: Sequence[int]
) -> RootStatus | Unknown:
    name = f"vda{number}"
    rows = [
        "source|/dev/mapper/debian--vg-root",
        "fstype|ext4",
        "device|/dev/mapper/debian--vg-root",
        f"block|dm-0 lvm {3 << 30}",
        f"partition|{name}|{number}|{start}|{size}|vda|{whole}",
        *(f"start|{name}|{other}" for other in starts),
        *(f"table|{name}|{line}" for line in table),
        "group|debian-vg|0",
        f"volume|/dev/{name}|debian-vg|{size * 512}|{size * 512}",
        f"blocks|{(3 << 30) // 4096}",
        "bsize|4096",
        "done|",
    ]
    frame = Frame("".join(f"{row}\n" for row in rows).encode(), b"", 0)
    answer: RootStatus | Unknown = ROOT_CHAIN_KIND.parse(frame, [RootChain()])[RootChain()]  # type: ignore[assignment]  # its own kind of answer
    return answer


@pytest.mark.parametrize(
    ("number", "start", "size", "whole", "table", "starts", "extended", "behind"),
    [
        (5, 501760, 7886848, 8 * GIB, DEBIAN, STARTS, 2, 4 * GIB),
        (5, 501760, 7886848, 4 * GIB, DEBIAN, STARTS, 2, 0),
        (
            5,
            501760,
            7886848,
            8 * GIB,
            (MBR, EXTENDED.replace("type=5", "type=f"), LOGICAL),
            STARTS,
            2,
            4 * GIB,
        ),
        (5, 501760, 7886848, 8 * GIB, (MBR, EXTENDED.replace("vda2", "vda4"), LOGICAL), STARTS, 4, 4 * GIB),
        # free space inside of the extended partition only
        (5, 501760, 2 * GIB, 4 * GIB, DEBIAN, STARTS, 2, 4 * GIB - 501760 - 2 * GIB),
        # a primary partition behind the extended one
        (5, 501760, 7886848, 8 * GIB, DEBIAN, (*STARTS, 5 * GIB), 2, GIB),
        # another logical partition behind the root's
        (5, 501760, GIB, 8 * GIB, DEBIAN, (*STARTS, 2 * GIB), 0, GIB - 501760),
        # the root's partition directly before the extended one
        (1, 2048, 497664, 8 * GIB, DEBIAN, STARTS, 0, 0),
        # no table: sfdisk is not installed
        (5, 501760, 7886848, 8 * GIB, (), STARTS, 0, 0),
        (1, 2048, GIB, 8 * GIB, (), (2048,), 0, 7 * GIB - 2048),
        # what an MBR cannot address
        (1, 2048, 2**32 - 1 - 2048, 2**32 + GIB, (MBR,), (2048,), 0, 0),
        (1, 2048, 2**32 - 1 - 2048, 2**32 + GIB, (GPT,), (2048,), 0, GIB + 1),
        # a fifth partition of a GPT is none of a kind
        (5, 501760, GIB, 8 * GIB, (GPT, LOGICAL), STARTS, 0, 7 * GIB - 501760),
    ],
)
def test_free_space_behind_a_partition_is_what_it_can_have(
    number: int,
    start: int,
    size: int,
    whole: int,
    table: Sequence[str],
    starts: Sequence[int],
    extended: int,
    behind: int,
) -> None:
    status = _answer(number, start, size, whole, table, starts)
    assert isinstance(status, RootStatus)
    assert (status.extended, status.behind_partition) == (extended, behind * 512)


def test_a_table_that_does_not_fit_the_partition_is_unknown() -> None:
    assert isinstance(_answer(5, 501760, 7886848, 8 * GIB, (MBR, BOOT, LOGICAL), STARTS), Unknown)


def test_the_extended_partition_grows_before_the_one_inside() -> None:
    state = guest_state(lvm=True)
    state.root = replace(state.root, partition=5, extended=2, volume="/dev/vda5")
    host = ModelHost("x/ssh", state)
    operations = RootFilesystem("x/ssh").operations(snapshot_of(host, [RootFilesystem("x/ssh")]))
    assert isinstance(operations, list)
    assert operations[:2] == [GrowPartition("vda", 5, 2), GrowVolume("/dev/vda5", state.root.device)]
    text = operations[0].shell()
    assert text.index("-N 2 /dev/vda") < text.index("-N 5 /dev/vda") < text.index("partx -u --nr 5 /dev/vda")
    assert converge(host, [RootFilesystem("x/ssh")])
    assert not converge(host, [RootFilesystem("x/ssh")])
