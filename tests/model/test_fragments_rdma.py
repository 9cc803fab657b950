"""The question about RDMA ports, run by real shells on this machine, whatever it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.contracts.query import Unknown
from provision.rdma.measurements import counters, pod_scripts
from provision.rdma.queries import RDMA_STATE_KIND, RdmaState, RdmaStatus
from tests.model.shells import SHELLS, run


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_reads_the_interfaces(shell: str, tmp_path: Path) -> None:
    frame = run(shell, RDMA_STATE_KIND.script([RdmaState()]), path=tmp_path)
    status = RDMA_STATE_KIND.parse(frame, [RdmaState()])[RdmaState()]
    assert isinstance(status, RdmaStatus), status
    (loopback,) = [interface for interface in status.interfaces if interface.name == "lo"]
    assert loopback.mtu > 0


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_runs_what_pods_run(shell: str, tmp_path: Path) -> None:
    # A pod runs it without `set -eu`: the status of the transfer is part of the result.
    frame = run(shell, "set +eu\n" + pod_scripts.counted("echo moved; false"), path=tmp_path)
    parts = pod_scripts.parts_of(frame.stdout.decode())
    assert (parts["transfer"].text, parts["transfer"].code) == ("moved\n", 1)
    # This machine has no network of pods, and its counters are whole all the same.
    assert isinstance(pod_scripts.parse_own(parts["own"].text), Unknown)
    assert isinstance(counters.parse_counters(parts["before"].text), counters.Counters)
    look = run(shell, "set +eu\n" + pod_scripts.LOOK, path=tmp_path)
    assert pod_scripts.parts_of(look.stdout.decode()).keys() == {"own", "gids"}
