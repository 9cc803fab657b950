"""Operations whose shell text matters for where they work."""

from __future__ import annotations

from provision.hosts.operations import basic as ops


def test_the_live_host_name_is_set_without_proc_for_containers() -> None:
    assert ops.SetHostname("vm-1").shell() == "hostname vm-1"
