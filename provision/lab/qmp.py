"""A minimal client of QEMU's machine protocol: greeting, capabilities, one command."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

from provision.lab.contracts import GuestError


def command(folder: Path, name: str, timeout: float = 60.0) -> Any:
    """Send one command to the monitor socket `qmp` in a folder and return its answer.

    Raises:
        GuestError: QEMU did not answer, or it answered with an error.
    """
    # A socket path is limited to 107 bytes (unix(7)), so the path goes through a descriptor of its folder.
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(timeout)
            sock.connect(f"/proc/self/fd/{fd}/qmp")
            with sock.makefile("rwb") as stream:
                stream.readline()
                _ask(stream, "qmp_capabilities")
                return _ask(stream, name)
    except (OSError, ValueError) as error:
        raise GuestError(f"monitor: {name}: {error}") from error
    finally:
        os.close(fd)


def _ask(stream: Any, name: str) -> Any:
    stream.write(json.dumps({"execute": name}).encode() + b"\n")
    stream.flush()
    while line := stream.readline():
        message = json.loads(line)
        if "error" in message:
            raise GuestError(f"monitor: {message['error'].get('desc')}")
        if "return" in message:
            return message["return"]
    raise GuestError("monitor: connection closed")
