"""The question about RDMA ports, run by real shells on this machine, whatever it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.rdma.queries import RDMA_STATE_KIND, RdmaState, RdmaStatus
from tests.model.shells import SHELLS, run


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_reads_the_interfaces(shell: str, tmp_path: Path) -> None:
    frame = run(shell, RDMA_STATE_KIND.script([RdmaState()]), path=tmp_path)
    status = RDMA_STATE_KIND.parse(frame, [RdmaState()])[RdmaState()]
    assert isinstance(status, RdmaStatus), status
    (loopback,) = [interface for interface in status.interfaces if interface.name == "lo"]
    assert loopback.mtu > 0
