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
    ("NVRM: Xid (PCI:0000:1b:00): 999, something new", False),
]


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_only_faults_of_hardware_fail(line: str, expected: bool) -> None:
    number = int(line.split("): ", 1)[1].split(",", 1)[0])
    assert is_hardware_fault(number, line) is expected
