"""The lock of a hypervisor's API over a real OpenSSH server: kept by the host, freed with the controller."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from provision.connections.ssh import SshConnection
from provision.hosts.driver import HostDriver
from provision.values.cancel import Cancel
from provision.values.errors import ProvisionError
from tests.contract.sshd import Server, missing, server

if missing():
    pytest.skip(missing(), allow_module_level=True)

CONTROLLER = """
import sys, time
from pathlib import Path
from provision.connections.contracts import SshEndpoint
from provision.connections.ssh import SshConnection
from provision.hosts.driver import HostDriver
from provision.values.cancel import Cancel
address, port, user, key, fingerprint, state = sys.argv[1:]
endpoint = SshEndpoint(address, user, int(port), Path(key), fingerprints=(fingerprint,))
driver = HostDriver("pve/ssh", SshConnection(endpoint), {}, who="you@there", state=state)
driver.hold("run-0", "pve/api", Cancel())
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("sshd"), "127.0.0.47", getpass.getuser()) as running:
        yield running


def driver(host: Server, state: Path) -> HostDriver:
    return HostDriver("pve/ssh", SshConnection(host.endpoint()), {}, who="me@here", state=str(state))


def test_a_controller_that_is_killed_holds_nothing(host: Server, tmp_path: Path) -> None:
    where = host.endpoint()
    words = (where.address, where.port, where.user, where.key, *where.fingerprints, tmp_path / "state")
    with subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, *map(str, words)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ProvisionError, match="pve/api is locked by run run-0 of you@there since"):
            driver(host, tmp_path / "state").hold("run-1", "pve/api", Cancel())
        process.kill()
    hold = driver(host, tmp_path / "state").hold("run-1", "pve/api", Cancel())
    assert hold.alive
    hold.release()


def test_host_acts_while_its_lock_is_held_and_the_lock_ends_on_close(host: Server, tmp_path: Path) -> None:
    first = driver(host, tmp_path / "state")
    hold = first.hold("run-1", "pve/api", Cancel())
    assert first.act("run-1", [], [], lambda _: None, Cancel()) == []
    assert hold.alive
    first.close()
    second = driver(host, tmp_path / "state")
    other = second.hold("run-2", "pve/api", Cancel())
    assert other.alive
    other.release()
    third = second.hold("run-3", "pve/api", Cancel())
    assert third.alive
    third.release()
    second.close()
