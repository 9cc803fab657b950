"""The lock of a hypervisor's API in real shells: two controllers, and one that is killed."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from provision.connections.local import LocalConnection
from provision.hosts.driver import HostDriver
from provision.values.cancel import Cancel
from provision.values.errors import ProvisionError
from provision.values.outcomes import ExitCode

pytestmark = [
    pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock(1), as hosts do"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the host driver acts as root"),
]

LAST_FIELD = 4
"""Tabs of a lock file whose holder has noted its end."""
CONTROLLER = """
import sys, time
from provision.connections.local import LocalConnection
from provision.hosts.driver import HostDriver
from provision.values.cancel import Cancel
driver = HostDriver("pve/ssh", LocalConnection(), {}, who="you@there", state=sys.argv[1])
driver.hold("run-0", "pve/api", Cancel())
print("held", flush=True)
time.sleep(600)
"""


def driver(folder: Path) -> HostDriver:
    return HostDriver("pve/ssh", LocalConnection(), {}, who="me@here", state=str(folder))


def test_one_controller_keeps_another_out_until_it_is_done(tmp_path: Path) -> None:
    first = driver(tmp_path).hold("run-1", "pve/api", Cancel())
    with pytest.raises(ProvisionError) as caught:
        driver(tmp_path).hold("run-2", "pve/api", Cancel())
    assert caught.value.exit_code is ExitCode.LOCKED
    assert "pve/api is locked by run run-1 of me@here since " in caught.value.diagnostics[0].summary
    assert first.alive
    first.release()
    second = driver(tmp_path).hold("run-2", "pve/api", Cancel())
    assert second.alive
    second.release()


def test_the_host_goes_on_acting_while_the_lock_of_its_api_is_held(tmp_path: Path) -> None:
    one = driver(tmp_path)
    hold = one.hold("run-1", "pve/api", Cancel())
    assert one.act("run-1", [], [], lambda _: None, Cancel()) == []
    assert hold.alive
    hold.release()


def test_a_controller_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ProvisionError, match="run run-0 of you@there"):
            driver(tmp_path).hold("run-1", "pve/api", Cancel())
        process.kill()
    hold = driver(tmp_path).hold("run-1", "pve/api", Cancel())
    assert hold.alive
    hold.release()


def test_a_shell_that_is_killed_alone_does_not_keep_the_lock(tmp_path: Path) -> None:
    hold = driver(tmp_path).hold("run-1", "pve/api", Cancel())
    assert hold.execution.hello is not None
    os.kill(hold.execution.hello.pgid, signal.SIGKILL)  # its children live on, and see that it is gone
    second = driver(tmp_path).hold("run-2", "pve/api", Cancel())
    assert second.idle("run-2") < 60
    second.release()
    hold.release()


def test_the_next_holder_learns_how_long_nobody_else_held_the_lock(tmp_path: Path) -> None:
    first = driver(tmp_path).hold("run-1", "pve/api", Cancel())
    assert first.idle("run-1") == math.inf
    first.release()
    second = driver(tmp_path).hold("run-2", "pve/api", Cancel())
    assert 0 <= second.idle("run-2") < 60
    second.release()
    lock = tmp_path / "lock-api"
    deadline = time.monotonic() + 20  # a release is not waited for: the host notes it when it sees it
    while time.monotonic() < deadline and lock.read_text().count("\t") < LAST_FIELD:
        time.sleep(0.02)
    holder, who, since, pgid, end = lock.read_text().rstrip("\n").split("\t")
    assert (holder, int(end) >= int(since)) == ("run-2", True)
    lock.write_text("\t".join((holder, who, since, pgid, str(int(end) - 900))) + "\n")
    third = driver(tmp_path).hold("run-3", "pve/api", Cancel())
    assert 900 <= third.idle("run-3") < 960
    third.release()
    lock.write_text(f"{holder}\t{who}\t{since}\t{pgid}\n")  # it was killed together with its host
    assert driver(tmp_path).hold("run-4", "pve/api", Cancel()).idle("run-4") == 0.0
