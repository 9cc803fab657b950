"""What is sent over SSH; the connection itself is proved against real servers elsewhere."""

from __future__ import annotations

import pytest

from provision.connections.contracts import SshEndpoint
from provision.connections.ssh import SHELL, SshConnection


@pytest.mark.parametrize(
    ("endpoint", "command"),
    [
        (SshEndpoint("h", "root"), "exec /bin/sh -s"),
        (SshEndpoint("h", "debian"), "exec sudo -n /bin/sh -s"),
        (SshEndpoint("h", "debian", sudo=False), "exec /bin/sh -s"),
        (SshEndpoint("h", "root", sudo=False), "exec /bin/sh -s"),
    ],
)
def test_other_users_than_root_become_root_by_default(endpoint: SshEndpoint, command: str) -> None:
    assert SshConnection(endpoint)._command(SHELL) == command
