"""Network namespaces of a lab. The machine's own network stays unchanged."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from provision.lab.settings import BRIDGE, LabError, LabSettings, namespace

_RUN = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_NTP_QUESTION = bytes([0x23]) + bytes(47)  # version 4, from a client
_NTP_UNSYNCHRONISED = 16
_Answer = TypeVar("_Answer")


def path(name: str) -> Path:
    """Return the file of a namespace."""
    return _RUN / name


def exists(name: str) -> bool:
    """Return whether a namespace of that name is mounted (a kill can leave an empty file)."""
    return path(name).exists() and path(name).stat().st_dev != _RUN.stat().st_dev


def names(lab: Path) -> tuple[str, ...]:
    """Return the namespaces of a lab: its own and its containers'."""
    if not _RUN.is_dir():
        return ()
    own = namespace(lab)
    return tuple(sorted(p.name for p in _RUN.iterdir() if p.name == own or p.name.startswith(f"{own}.")))


def ip(*words: str, check: bool = True) -> str:
    """Run `ip` and return its output.

    Raises:
        LabError: the command failed; the text has its arguments and stderr.
    """
    completed = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if check and completed.returncode != 0:
        raise LabError(f"ip {' '.join(words)}: {completed.stderr.strip()}")
    return completed.stdout


def ensure(settings: LabSettings) -> None:
    """Create the lab's namespace with its bridge and the lab's own address."""
    name = namespace(settings.folder)
    _ensure_namespace(name)
    if f" {BRIDGE}:" not in ip("-n", name, "-o", "link"):
        ip("-n", name, "link", "add", BRIDGE, "type", "bridge", "stp_state", "0", "forward_delay", "0")
    address = f"{settings.host_address}/{settings.network.prefixlen}"
    if f" {address} " not in ip("-n", name, "-o", "-4", "addr", "show", "dev", BRIDGE):
        ip("-n", name, "addr", "add", address, "dev", BRIDGE)
    ip("-n", name, "link", "set", BRIDGE, "up")


def add_veth(lab: Path, guest: str, index: int, mac: str) -> None:
    """Create `eth<index>` of a container with a hardware address; its peer joins the bridge."""
    home, inner, dev = namespace(lab), namespace(lab, guest), _port("v", guest, index)
    _ensure_namespace(inner)
    if f" eth{index}@" in ip("-n", inner, "-o", "link"):
        return
    ip("-n", home, "link", "del", dev, check=False)
    words = ("link", "add", dev, "type", "veth", "peer", "name", f"eth{index}")
    ip("-n", home, *words, "address", mac, "netns", inner)
    ip("-n", home, "link", "set", dev, "master", BRIDGE, "up")


def add_tap(lab: Path, guest: str, index: int) -> str:
    """Create a tap device on the bridge and return its name."""
    home, dev = namespace(lab), _port("t", guest, index)
    ip("-n", home, "link", "del", dev, check=False)
    ip("-n", home, "tuntap", "add", "dev", dev, "mode", "tap")
    ip("-n", home, "link", "set", dev, "master", BRIDGE, "up")
    return dev


def remove_ports(lab: Path, guest: str) -> None:
    """Remove a guest's devices from the bridge, and its namespace."""
    home = namespace(lab)
    if exists(home):
        for line in ip("-n", home, "-o", "link", check=False).splitlines():
            dev = line.split(":")[1].strip().split("@")[0]
            if dev.startswith((_port("v", guest, ""), _port("t", guest, ""))):
                ip("-n", home, "link", "del", dev, check=False)
    remove(namespace(lab, guest))


def remove(name: str) -> None:
    """Remove a namespace's name; the kernel removes the namespace with its last process."""
    if path(name).exists():
        ip("netns", "del", name, check=False)
        path(name).unlink(missing_ok=True)


def join(name: str) -> None:
    """Move the calling thread into a network namespace; its mount namespace does not change.

    Raises:
        LabError: there is no such namespace, or this is not root.
    """
    try:
        fd = os.open(path(name), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise LabError(
            f"there is no network namespace {name}", "start the lab: `provision lab up INVENTORY`"
        ) from error
    try:
        if ctypes.CDLL(None, use_errno=True).setns(fd, _CLONE_NEWNET) != 0:
            raise LabError(f"cannot enter {name}: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(fd)


def connect(name: str, address: str, port: int, timeout: float) -> socket.socket:
    """Open a TCP connection inside a namespace (a socket stays in the namespace that created it).

    Raises:
        OSError: the connection failed.
        LabError: there is no such namespace.
    """
    return _within(name, lambda: socket.create_connection((address, port), timeout=timeout))


def listens(name: str, address: str, port: int, timeout: float = 10.0) -> bool:
    """Return whether a server accepts TCP connections."""
    try:
        connect(name, address, port, timeout).close()
    except OSError:
        return False
    return True


def ssh_banner(name: str, address: str, timeout: float = 15.0) -> bool:
    """Return whether an SSH server sends its banner; a busy emulated processor needs seconds for it."""
    try:
        with connect(name, address, 22, timeout) as sock:
            return sock.recv(4) == b"SSH-"
    except OSError:
        return False


def serves_time(name: str, address: str, timeout: float = 2.0) -> bool:
    """Return whether an NTP server answers with a synchronised time (RFC 5905, stratum 1 to 15)."""

    def ask() -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(timeout)
            sock.connect((address, 123))
            sock.send(_NTP_QUESTION)
            return sock.recv(len(_NTP_QUESTION))

    try:
        return 0 < _within(name, ask)[1] < _NTP_UNSYNCHRONISED
    except OSError:
        return False


def _within(name: str, action: Callable[[], _Answer]) -> _Answer:
    """Run an action in a thread inside a namespace; setns(2) changes the calling thread only."""
    results: list[_Answer] = []
    errors: list[Exception] = []

    def enter() -> None:
        try:
            join(name)
            results.append(action())
        except (OSError, LabError) as error:
            errors.append(error)

    thread = threading.Thread(target=enter, name=f"in {name}", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def inside(name: str, argv: list[str]) -> list[str]:
    """Return the command that runs `argv` in a namespace."""
    return ["nsenter", f"--net={path(name)}", "--", *argv]


def _ensure_namespace(name: str) -> None:
    if not exists(name):
        path(name).unlink(missing_ok=True)
        ip("netns", "add", name)
    ip("-n", name, "link", "set", "lo", "up")


def _port(kind: str, guest: str, index: int | str) -> str:
    """Return a device name of at most 15 characters."""
    return f"{kind}{guest[:10]}i{index}"
