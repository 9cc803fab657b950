"""Imports that wait: proved in a fresh interpreter, for this one has long imported everything."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import sys
import provision.connections.ssh
import paramiko
loaded = {"asyncio", "unittest.mock", "fabric"} & set(sys.modules)
assert not loaded, loaded
import fabric, invoke
assert invoke.run and fabric.Connection
assert paramiko.config.invoke.run is invoke.run
from provision.connections.lazy import import_at_first_use
import_at_first_use("no_such_module")
assert "no_such_module" not in sys.modules
"""


def test_paramiko_does_not_bring_invoke_until_it_is_used() -> None:
    subprocess.run([sys.executable, "-c", _SCRIPT], check=True)
