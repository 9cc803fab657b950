"""Answers of Kea and OpenWrt, read."""

from __future__ import annotations

import json
import socketserver
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.contracts.query import Frame, Unknown
from provision.dhcp import kea_program
from provision.dhcp.backends.openwrt import STATE, OpenWrt
from provision.dhcp.contract import Lease, Reservation
from provision.dhcp.listing import KeaState, KeaStateKind, UciStateKind

KEA = KeaState("/run/kea/kea4-ctrl-socket")
M = "52:54:00:aa:bb"

SECTIONS = {
    "a static lease": (
        ["mac='52:54:00:AA:BB:01'", "ip='10.0.0.11'", "name='nas'"],
        [f"{M}:01 10.0.0.11 nas"],
    ),
    "two MACs in one option": (
        ["mac='52:54:00:aa:bb:01 52:54:00:aa:bb:02'", "ip='10.0.0.11'"],
        [f"{M}:01 10.0.0.11 ", f"{M}:02 10.0.0.11 "],
    ),
    "a list of MACs": (
        ["mac='52:54:00:aa:bb:01' '52:54:00:aa:bb:02'", "ip='10.0.0.11'"],
        [f"{M}:01 10.0.0.11 ", f"{M}:02 10.0.0.11 "],
    ),
    "only a MAC and a name": (["mac='52:54:00:aa:bb:01'", "name='nas'"], []),
    "only a tag": (["mac='52:54:00:aa:bb:01'", "tag='lab'"], []),
    "any MAC of a vendor": (["mac='52:54:00:*:*:*'", "ip='10.0.0.11'"], ["52:54:00:*:*:* 10.0.0.11 "]),
    "a client id": (["duid='000100'", "ip='10.0.0.11'"], [" 10.0.0.11 "]),
    "a name alone with an address": (["name='lap'", "ip='10.0.0.11'"], [" 10.0.0.11 lap"]),
    "a host that is ignored": (["mac='52:54:00:aa:bb:01'", "ip='ignore'"], [f"{M}:01  "]),
    "one digit for a byte": (["mac='52:54:0:aa:bb:1'", "ip='10.0.0.11'"], [f"{M}:01 10.0.0.11 "]),
    "a quoted quote": (
        ["mac='52:54:00:aa:bb:01'", "ip='10.0.0.11'", "name='it'\\''s'"],
        [f"{M}:01 10.0.0.11 it's"],
    ),
    "a value without its end": (["mac='52:54:00:aa:bb:01", "ip='10.0.0.11'"], [" 10.0.0.11 "]),
}


def openwrt(text: str) -> object:
    return UciStateKind().parse(Frame(text.encode(), b"", 0), [STATE])[STATE]


@pytest.mark.parametrize(("options", "reservations"), SECTIONS.values(), ids=SECTIONS.keys())
def test_sections_of_openwrt_are_read(options: list[str], reservations: list[str]) -> None:
    lines = ["dhcp.lan=dhcp", "dhcp.@host[0]=host", *(f"dhcp.@host[0].{option}" for option in options), "end"]
    rows = openwrt("\n".join(lines))
    assert isinstance(rows, tuple)
    assert [f"{row.mac} {row.address} {row.name}" for row in rows] == reservations


def test_leases_and_ethers_of_openwrt_are_read() -> None:
    text = f"lease 1795960000 {M}:01 10.0.0.11 nas *\nether {M}:02 10.0.0.12\nend\n"
    assert openwrt(text) == (
        Reservation(f"{M}:02", "10.0.0.12", "", "/etc/ethers"),
        Lease(f"{M}:01", "10.0.0.11", "nas", 1795960000),
    )


@pytest.mark.parametrize(("first", "second"), [("a-b", "a.b"), ("vm-1", "vm-11"), ("a.b", "a-2e-b")])
def test_two_hosts_have_two_sections(first: str, second: str) -> None:
    router = OpenWrt("router", "provision-lab-")
    assert router.place(first) != router.place(second)
    assert router.place(first).removeprefix("dhcp.").replace("_", "").isalnum()


@given(st.text(alphabet=st.sampled_from("rl\t\n01:.be gin'=@host[]dhcp"), max_size=80))
@settings(max_examples=60)
def test_any_answer_of_a_router_is_read_or_unknown(text: str) -> None:
    for frame in (Frame(text.encode(), b"", 0), Frame(f"begin\t0\n{text}\nend\n".encode(), b"", 0)):
        KeaStateKind().parse(frame, [KEA])
        UciStateKind().parse(frame, [STATE])


@pytest.mark.parametrize(
    ("stdout", "stderr"),
    [
        (b"begin\t0\n", b"kea: /run/kea/kea4-ctrl-socket: [Errno 2] No such file or directory\n"),
        (b"begin\t0\nr\t52:54:00:aa:bb:01\t10.0.0.11\tnas\tx\t\n", b"kea: lease4-get-all: no\n"),
        (b"", b"install python3 on the router: Kea is asked by it\n"),
    ],
)
def test_a_router_that_cannot_be_asked_is_unknown(stdout: bytes, stderr: bytes) -> None:
    answer = KeaStateKind().parse(Frame(stdout, stderr, 0), [KEA])[KEA]
    assert isinstance(answer, Unknown)
    assert stderr.decode().strip() in answer.reason


class _Kea(socketserver.BaseRequestHandler):
    """A Kea without the hook of leases."""

    def handle(self) -> None:
        command = json.loads(self.request.recv(65536))["command"]
        answers = {"list-commands": ["config-get"], "config-get": {"Dhcp4": self.server.configuration}}  # type: ignore[attr-defined]  # set by the test
        self.request.sendall(json.dumps({"result": 0, "arguments": answers[command]}).encode())


LEASES = "address,hwaddr,valid_lifetime,expire,state\n192.168.1.7,52:54:00:aa:bb:07,60,1,0\n"


@pytest.mark.parametrize(
    ("database", "file", "answer"),
    [
        ({"name": "@/leases.csv"}, "leases.csv", "192.168.1.7"),
        ({"name": "@/leases.csv"}, "leases.csv.1", "192.168.1.7"),  # while the cleanup begins
        ({"name": "@/leases.csv"}, "others.csv", "leases are not kept in @/leases.csv"),
        ({"name": "@/leases.csv", "persist": False}, "leases.csv", "leases are not kept in @/leases.csv"),
        ({"name": "none.csv"}, "leases.csv", "leases are not kept in /var/lib/kea/none.csv"),  # since 3.0
        ({"type": "mysql"}, "leases.csv", "leases are in a database"),
    ],
)
def test_leases_of_kea_that_are_in_no_file_are_unknown(
    tmp_path: Path, database: dict[str, object], file: str, answer: str
) -> None:
    (tmp_path / file).write_text(LEASES)
    socket = str(tmp_path / "kea.sock")
    with socketserver.UnixStreamServer(socket, _Kea) as server:
        text = json.dumps({"lease-database": database}).replace("@", str(tmp_path))
        server.configuration = json.loads(text)  # type: ignore[attr-defined]  # read by the handler
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        environment = {"PROVISION_SOCKET": socket, "PROVISION_TASK": "state"}
        command = [sys.executable, "-c", kea_program.TEXT]
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        server.shutdown()
    assert answer.replace("@", str(tmp_path)) in result.stdout + result.stderr
    assert result.returncode == (0 if answer[0].isdigit() else 1)


def test_openwrt_s_files_may_lack_the_end_of_their_last_line(tmp_path: Path) -> None:
    (tmp_path / "leases").write_text(f"1795960000 {M}:01 10.0.0.11 nas *")
    (tmp_path / "ethers").write_text(f"{M}:02 10.0.0.12")
    section = "dhcp.@dnsmasq[0]"
    shown = f"{section}=dnsmasq\n{section}.readethers='1'\n{section}.leasefile='{tmp_path}/leases'"
    (tmp_path / "uci").write_text(f"#!/bin/sh\ncat <<'END'\n{shown}\nEND\n")
    (tmp_path / "uci").chmod(0o755)
    script = UciStateKind().script([STATE]).replace("/etc/ethers", f"{tmp_path}/ethers")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    text = subprocess.check_output(["/bin/sh", "-c", script], text=True, env=environment)
    listed = UciStateKind().parse(Frame(text.encode(), b"", 0), [STATE])[STATE]
    assert not isinstance(listed, Unknown)
    assert [row.address for row in listed] == ["10.0.0.12", "10.0.0.11"]
