"""Logins to one server: a few at a time, and none in vain."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from provision.connections import ssh, ssh_open
from provision.connections.contracts import SshEndpoint
from provision.connections.ssh_pool import HANDSHAKES, LOGINS, SshPool
from provision.connections.ssh_target import Target
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Transient

JUMP = Target("jump", "jump", 22, "root", (), only_keys=False, known_hosts=())
MANY = 3 * LOGINS


class Transport:
    def set_keepalive(self, _seconds: int) -> None:
        pass

    def close(self) -> None:
        pass


def all_at_once(work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(MANY)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_jump_host_lets_in_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, full = threading.Lock(), threading.Barrier(LOGINS)
    inside, most = 0, 0

    def connect(*_: object) -> Transport:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        full.wait(timeout=30)  # all places are taken, or this fails
        return Transport()

    def log_in(*_: object) -> None:
        nonlocal inside
        with lock:
            inside -= 1

    monkeypatch.setattr(ssh_open, "connect_and_check_key", connect)
    monkeypatch.setattr(ssh_open, "_log_in", log_in)
    opened: list[Sequence[object]] = []
    pool = SshPool()
    all_at_once(lambda: opened.append(ssh_open.open_transport(JUMP, (), "jump", pool)))
    assert (len(opened), most) == (MANY, LOGINS)


def test_no_more_than_a_few_handshakes_go_on_whatever_their_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, full = threading.Lock(), threading.Barrier(HANDSHAKES)
    inside, most, connected = 0, 0, 0
    everybody = threading.Event()

    def enter() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        full.wait(timeout=30)
        with lock:
            inside -= 1

    class Client(Transport):
        def __init__(self, _socket: object) -> None:
            pass

        def start_client(self, timeout: float) -> None:
            del timeout
            enter()

    def connect(*_: object) -> None:
        nonlocal connected
        with lock:
            connected += 1
            if connected == 2 * HANDSHAKES:
                everybody.set()
        assert everybody.wait(30)  # connecting needs no token: all do it at once, or this fails

    monkeypatch.setattr("provision.connections.ssh_transport.LeanTransport", Client)
    monkeypatch.setattr(ssh_open, "_connect", connect)
    monkeypatch.setattr(ssh_open, "_prefer_key_types", lambda *_, **__: None)
    monkeypatch.setattr(ssh_open, "_host_key", lambda _: ("ssh-ed25519", b""))
    monkeypatch.setattr(ssh_open, "_check_key", lambda *_: None)
    monkeypatch.setattr(ssh_open, "_log_in", lambda *_: enter())
    pool = SshPool()
    threads = [
        threading.Thread(
            target=ssh_open.open_transport, args=(replace(JUMP, host=f"n{number}"), (), "n", pool)
        )
        for number in range(2 * HANDSHAKES)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == HANDSHAKES


def test_an_unreachable_jump_host_is_not_tried_by_all_who_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[None] = []
    waiting = threading.Semaphore(0)
    errors: list[Transient] = []
    pool = SshPool(logins=1)

    def connect(*_: object) -> Transport:
        tried.append(None)
        for _each in range(MANY):
            waiting.acquire()
        for _each in range(MANY):
            waiting.release()
        raise Transient(Diagnostic("HOST_UNREACHABLE", "no"))

    def arrived() -> float:
        now = time.monotonic()
        waiting.release()
        return now

    def attempt() -> None:
        try:
            ssh_open.open_transport(JUMP, (), "jump", pool)
        except Transient as error:
            errors.append(error)

    monkeypatch.setattr(ssh_open, "connect_and_check_key", connect)
    monkeypatch.setattr("provision.connections.ssh_pool.time", SimpleNamespace(monotonic=arrived))
    all_at_once(attempt)
    assert (len(errors), len(tried)) == (MANY, 1)


def test_a_guest_that_does_not_boot_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, tries = [0.0], [0]

    class Waiting(Cancel):
        def wait(self, seconds: float) -> None:
            clock[0] += seconds

    def closed(*_: object) -> list[Transport]:
        tries[0] += 1
        raise Transient(Diagnostic("HOST_UNREACHABLE", "no"))

    monkeypatch.setattr(ssh, "resolve", lambda _: JUMP)
    monkeypatch.setattr(ssh, "open_transport", closed)
    monkeypatch.setattr("provision.connections.ssh.time", SimpleNamespace(monotonic=lambda: clock[0]))
    connection = ssh.SshConnection(SshEndpoint("vm-1", "debian", wait=60.0))
    counts = []
    for _ in range(2):
        with pytest.raises(Transient):
            connection.execute(b"", on_output=lambda _data, _err: None, cancel=Waiting())
        counts.append(tries[0])
    assert counts == [60, 61]
