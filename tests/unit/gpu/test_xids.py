"""Lines of the kernel log about cards, as public reports show them."""

from __future__ import annotations

import pytest

from provision.gpu.words import is_hardware_fault

CASES = [
    ("NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception", False),
    ("NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008, CTX SWITCH", False),
    ("NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.", True),
    ("NVRM: Xid (PCI:0000:0b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset)", True),
    (
        "NVRM: Xid (PCI:0000:0b:00): 154, GPU recovery action changed from 0x1 (GPU Reset) to 0x0 (None)",
        False,
    ),
    ("NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)", True),
    ("NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x8)", False),
    ("NVRM: Xid (PCI:0000:dc:00): 45, pid=1, name=python3, Ch 00000001 caused by previous Xid 149", False),
    ("NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained ECC error", True),
    ("NVRM: Xid (PCI:0000:01:00): 32, Channel ID 00000000 intr 00004000", False),
    ("NVRM: Xid (PCI:0000:01:00): 31, Ch 00000003, engmask 00000101, intr 10000000", False),
    ("NVRM: Xid (PCI:0000:1b:00): 999, something new", False),
]


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_only_faults_of_hardware_fail(line: str, expected: bool) -> None:
    number = int(line.split("): ", 1)[1].split(",", 1)[0])
    assert is_hardware_fault(number, line) is expected
