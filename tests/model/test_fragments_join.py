"""What a node asks its network before it joins, on real sockets and in three shells."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from provision.api.domains import load_inventory
from provision.hosts.queries.shell import ShellResult
from provision.hosts.site_rules import peers, peers_query
from provision.k3s.join_network import (
    PROBES,
    JoinNetwork,
    JoinNetworkKind,
    JoinNetworkStatus,
    ProveServer,
    ResolverFile,
)
from tests.model.shells import SHELLS, answers, run


def word(shell: str, call: str) -> str:
    frame = run(shell, f"{PROBES}{call}")
    assert frame.rc == 0, frame.stderr
    return frame.stdout.decode().strip()


@pytest.mark.parametrize("shell", SHELLS)
def test_all_peers_are_tried_and_answer_in_one_order(shell: str, tmp_path: Path) -> None:
    for name, text in {
        "ip": 'case "$*" in *10.0.0.3) exit 2;; esac',
        "ping": 'case "$*" in *10.0.0.2) sleep 0.3; exit 1;; esac',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    rows = "".join(
        f"  n{n}: {{ address: 10.0.0.{n}, rails: {{ r: {{ device: e }} }} }}\n" for n in range(1, 5)
    )
    (tmp_path / "site.yaml").write_text(f"version: 1\nname: site\naccess: {{ user: root }}\nnodes:\n{rows}")
    query = peers_query(peers(load_inventory(tmp_path / "site.yaml", environ={}))["n1"])
    answer = answers(shell, [query], path=tmp_path)[query]
    assert isinstance(answer, ShellResult), answer
    assert answer.stdout.decode() == "peer 10.0.0.2 0 1\npeer 10.0.0.3 2 0\npeer 10.0.0.4 0 0\n"


@contextmanager
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def free_port() -> int:
    with listener() as port:
        return port


ROOT, LOCAL = b"\0\0\x02\0\x01", b"\x09localhost\0\0\x01\0\x01"


@contextmanager
def name_server(answer: bytes, *, about: tuple[bytes, ...] = (ROOT,)) -> Iterator[None]:
    """A name server at 127.0.0.77, which answers some questions as it is told, and others not at all."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        try:
            server.bind(("127.0.0.77", 53))
        except OSError as error:
            pytest.skip(f"port 53 cannot be used here: {error.strerror}")

        def serve() -> None:
            while True:
                question, sender = server.recvfrom(512)
                if not question:
                    return
                assert question[12:] in (ROOT, LOCAL)
                if question[12:] in about:
                    server.sendto(question[:2] + answer, sender)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.sendto(b"", ("127.0.0.77", 53))
            thread.join()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_connection_is_told_by_one_word(shell: str) -> None:
    with listener() as port:
        assert word(shell, f"tcp 127.0.0.1 {port}") == "open"
    assert word(shell, f"tcp 127.0.0.1 {free_port()}") == "refused"
    assert word(shell, "tcp no-such-name.invalid 6443") == "unresolved"
    assert word(shell, f"udp 127.0.0.1 {free_port()}") == "refused"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_name_server_that_answers_anything_is_there(shell: str) -> None:
    with name_server(b"\x81\x82" + bytes(8)):
        assert word(shell, "names 127.0.0.77") == "open"
    assert word(shell, "names 127.0.0.78") == "refused"


def test_a_name_server_that_answers_nothing_is_silent() -> None:
    with name_server(b"", about=()):
        assert word("dash", "names 127.0.0.77") == "silent"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_router_that_keeps_quiet_about_the_root_is_a_name_server(shell: str) -> None:
    with name_server(b"\x81\x80" + bytes(8), about=(LOCAL,)):
        assert word(shell, "names 127.0.0.77") == "open"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_host_without_bash_says_nothing_of_its_network(shell: str) -> None:
    text = PROBES.replace("command -v bash", "command -v no-such-program")
    frame = run(shell, f"{text}tcp 127.0.0.1 1; udp 127.0.0.1 1; names 127.0.0.1")
    assert frame.stdout.decode().split() == ["unknown"] * 3


FILE = """# made by netplan; nameserver 9.9.9.9
nameserver 127.0.0.53
nameserver 10.255.255.1 # not counted
 nameserver 10.255.255.2
options edns0 ndots:2
domain first.example
search a.example b.example  # c.example
"""


@pytest.mark.parametrize("shell", SHELLS)
def test_a_resolver_and_the_folders_of_cni_are_read_as_k3s_reads_them(shell: str, tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text(FILE.rstrip())
    folder = tmp_path / "containerd"
    folder.mkdir()
    (folder / "config.toml").write_text(
        "[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = [\"/opt/cni/bin\"]\n  conf_dir = '/c'\n"
    )
    networks = tmp_path / "net.d"
    networks.mkdir()
    for name in ("10-flannel.conflist", "05-cilium.conflist", "notes.txt"):
        (networks / name).write_text("{}")
    query = JoinNetwork((), f"{tmp_path}/resolv.conf")
    script = JoinNetworkKind().script([query])
    script = script.replace("/var/lib/rancher/k3s/agent/etc/containerd", str(folder))
    script = script.replace("/var/lib/rancher/k3s/agent/etc/cni/net.d", str(networks))
    script = script.replace("is-active", "is-active-here").replace('"$(names "$a")"', "silent")
    frame = run(shell, script)
    status = JoinNetworkKind().parse(frame, [query])[query]
    assert isinstance(status, JoinNetworkStatus), frame
    servers = ("127.0.0.53", "10.255.255.1")
    assert status.files == (ResolverFile(query.resolv_conf, True, servers, 2, 19),)
    assert status.names == {"10.255.255.1": "silent"}
    assert status.programs == (("config.toml", "/opt/cni/bin"),)
    assert status.configuration == (("config.toml", "/c"),)
    assert status.networks == ("05-cilium.conflist", "10-flannel.conflist")
    assert not status.runs
    (tmp_path / "resolv.conf").write_text("search lan\nnameserver 10.255.255.1")
    status = JoinNetworkKind().parse(run(shell, script), [query])[query]
    assert isinstance(status, JoinNetworkStatus)
    assert status.files[0].servers == tuple(status.names) == ("10.255.255.1",)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_node_that_cannot_reach_its_server_does_not_start(shell: str) -> None:
    frame = run(shell, ProveServer("no-such-name.invalid", seconds=0).shell())
    assert frame.rc == 1
    assert b"K3S_API_UNREACHABLE: no-such-name.invalid cannot be resolved by this node" in frame.stderr
    assert b"next: accept TCP 6443" in frame.stderr
    # The host answers, and k3s itself waits until its server does.
    assert run(shell, ProveServer("127.0.0.1", "127.0.0.1", seconds=0).shell()).rc == 0


@pytest.mark.parametrize("shell", SHELLS)
def test_a_firewall_that_prohibits_the_port_of_flannel_is_named(shell: str) -> None:
    script = (
        ProveServer("127.0.0.1", "10.0.0.9", seconds=0).shell().replace("$(udp ", "$(echo prohibited; : ")
    )
    frame = run(shell, script)
    assert frame.rc == 1
    assert b"POD_PATH_BLOCKED: a firewall prohibits UDP 8472 to 10.0.0.9" in frame.stderr
