"""Servers for the contract of DHCP back ends: dnsmasq and Kea in their own network, uci as a stand-in."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from provision.contracts.query import Frame
from provision.contracts.remedy import ApiCall, Fix
from provision.contracts.resource import Resource, ask
from provision.contracts.snapshot import Snapshot
from provision.dhcp.backends.dnsmasq import Dnsmasq
from provision.dhcp.backends.kea import Kea
from provision.dhcp.backends.openwrt import OpenWrt
from provision.dhcp.contract import Reservation, Router
from provision.dhcp.query_kinds import HOST_KINDS as DHCP_KINDS
from provision.hosts.query_kinds import HOST_KINDS
from tests.contract.router_benches import ROUTERS

PREFIX = "provision-lab-"
KINDS = {**HOST_KINDS, **DHCP_KINDS}


def missing(*programs: str) -> str:
    """Return why a server cannot run here, or empty."""
    if os.geteuid() != 0:
        return "needs root: servers run in a network namespace"
    return next((f"{name} is not installed" for name in programs if shutil.which(name) is None), "")


class ShellBench:
    """Asks and changes a server as the script protocol does, by dash on this machine."""

    def __init__(self, folder: Path, router: Router) -> None:
        self.folder = folder
        self.router = router
        self.path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    def shell(self, fragment: str) -> Frame:
        result = subprocess.run(
            ["dash"],
            input=f"( set -eu\n{self.adapted(fragment)}\n) </dev/null\n".encode(),
            capture_output=True,
            env={"PATH": self.path, "LC_ALL": "C", "HOME": "/"},
            timeout=60,
            check=False,
        )
        return Frame(result.stdout, result.stderr, result.returncode)

    def adapted(self, fragment: str) -> str:
        """Return a fragment for this machine."""
        return fragment

    def ask(self, resource: Resource) -> Snapshot:
        answers: dict[Any, object] = {}
        queries: Sequence[Any] = tuple(ask([resource]))
        for name in dict.fromkeys(query.kind for query in queries):
            group = [query for query in queries if query.kind == name]
            answers |= KINDS[name].parse(self.shell(KINDS[name].script(group)), group)
        return Snapshot(self.router.system, answers=answers)

    def act(self, fix: Fix | ApiCall) -> None:
        assert isinstance(fix, Fix)
        frame = self.shell(fix.script)
        assert frame.rc == 0, frame.stderr.decode()
        if fix.effects:
            self.reload()

    def reload(self) -> None:
        """Make the server read its files again."""

    def close(self) -> None:
        """End the server."""


class Namespace:
    """A network namespace with a bridge that has the address 198.51.100.1."""

    def __init__(self) -> None:
        self.holder = subprocess.Popen(["unshare", "-n", "sleep", "600"])
        deadline = time.monotonic() + 10
        own = Path("/proc/self/ns/net").readlink()
        while Path(f"/proc/{self.holder.pid}/ns/net").readlink() == own and time.monotonic() < deadline:
            time.sleep(0.01)
        self.run("ip link set lo up; ip link add br0 type bridge; ip addr add 198.51.100.1/24 dev br0")
        # a bridge without a port that is up is no interface that Kea listens on
        self.run("ip link add k0 type veth peer name k1; ip link set k1 master br0")
        self.run("ip link set k0 up; ip link set k1 up; ip link set br0 up")
        while "state UP" not in self.run("ip link show br0").stdout and time.monotonic() < deadline:
            time.sleep(0.05)

    def enter(self, *words: str) -> list[str]:
        return ["nsenter", "-n", "-t", str(self.holder.pid), *words]

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.enter("sh", "-ec", command), capture_output=True, text=True, check=True, timeout=30
        )

    def client(self, mac: str) -> str:
        """Return the address that a real client with a MAC gets; empty if none."""
        self.run(
            f"ip link add c0 type veth peer name c1; ip link set c0 address {mac}; ip link set c1 master br0;"
            " ip link set c1 up; ip link set c0 up"
        )
        path = self.run("mktemp").stdout.strip()
        Path(path).write_text('#!/bin/sh\n[ "$1" != bound ] || echo "got $ip"\n')
        Path(path).chmod(0o755)
        try:
            said = subprocess.run(
                self.enter("udhcpc", "-i", "c0", "-n", "-q", "-f", "-t", "8", "-T", "1", "-s", path),
                capture_output=True,
                text=True,
                timeout=40,
                check=False,
            ).stdout
        finally:
            Path(path).unlink()
            self.run("ip link del c0")
        return next((line.split()[1] for line in said.splitlines() if line.startswith("got ")), "")

    def close(self) -> None:
        self.holder.terminate()
        self.holder.wait(10)


class DnsmasqBench(ShellBench):
    """A real dnsmasq."""

    def __init__(self, folder: Path) -> None:
        self.hosts = folder / "hosts"
        self.hosts.mkdir()
        super().__init__(folder, Dnsmasq("router", PREFIX, str(self.hosts)))
        self.space = Namespace()
        (folder / "conf").write_text(
            "port=0\ndhcp-range=198.51.100.100,198.51.100.199,12h\ndhcp-authoritative\nno-ping\nuser=root\n"
            f"interface=br0\ndhcp-leasefile={folder}/leases\ndhcp-hostsdir={self.hosts}\nconf-dir={folder}/conf.d\n"
        )
        (folder / "conf.d").mkdir()
        self.server: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self.stop()
        command = self.space.enter(
            "dnsmasq", "--keep-in-foreground", "-C", f"{self.folder}/conf", "--pid-file"
        )
        self.server = subprocess.Popen(command, stderr=(self.folder / "log").open("ab"))
        deadline = time.monotonic() + 20
        while not (self.folder / "leases").exists() and time.monotonic() < deadline:
            time.sleep(0.02)

    def stop(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait(10)

    def reload(self) -> None:
        assert self.server is not None
        self.server.send_signal(1)
        time.sleep(0.2)

    def reserve(self, reservation: Reservation) -> None:
        line = f"dhcp-host={reservation.mac},{reservation.address},{reservation.name}\n"
        (self.folder / "conf.d" / reservation.name).write_text(line)

    def close(self) -> None:
        self.stop()
        self.space.close()


class KeaBench(ShellBench):
    """A real Kea."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Kea("router", PREFIX, f"{folder}/socket"))
        self.space = Namespace()
        config = {
            "interfaces-config": {"interfaces": ["br0"]},
            "control-socket": {"socket-type": "unix", "socket-name": f"{folder}/socket"},
            "lease-database": {"type": "memfile", "name": f"{folder}/leases.csv"},
            "valid-lifetime": 600,
            "subnet4": [
                {"id": 1, "subnet": "198.51.100.0/24", "pools": [{"pool": "198.51.100.100 - 198.51.100.199"}]}
            ],
        }
        (folder / "kea.conf").write_text(json.dumps({"Dhcp4": config}))
        environment = {**os.environ, "KEA_LFC_EXECUTABLE": str(shutil.which("kea-lfc"))}
        environment |= {"KEA_PIDFILE_DIR": str(folder), "KEA_LOCKFILE_DIR": str(folder)}
        self.server = subprocess.Popen(
            self.space.enter("kea-dhcp4", "-c", f"{folder}/kea.conf"),
            env=environment,
            stdout=(folder / "log").open("ab"),
            stderr=subprocess.STDOUT,
        )
        deadline = time.monotonic() + 20
        while not (folder / "socket").exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    def reserve(self, reservation: Reservation) -> None:
        program = (
            "import json,socket,sys\n"
            "def ask(c,a=None):\n"
            f" s=socket.socket(socket.AF_UNIX); s.connect('{self.folder}/socket')\n"
            " s.sendall(json.dumps({'command':c,'arguments':a} if a else {'command':c}).encode()); t=b''\n"
            " while True:\n"
            "  p=s.recv(65536); t+=p\n"
            "  if not p: break\n"
            " return json.loads(t)\n"
            "c=ask('config-get')['arguments']; c.pop('hash',None)\n"
            "c['Dhcp4']['subnet4'][0].setdefault('reservations',[]).append("
            f"{{'hw-address':'{reservation.mac}','ip-address':'{reservation.address}','hostname':'{reservation.name}'}})\n"
            "a=ask('config-set',c); assert a['result']==0, a\n"
        )
        subprocess.run(["python3", "-c", program], check=True, timeout=30)

    def close(self) -> None:
        self.server.terminate()
        self.server.wait(10)
        self.space.close()


class Kea3Bench(ShellBench):
    """A stand-in for Kea 3: the commands for one reservation, as its manual describes them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Kea("router", PREFIX, f"{folder}/socket"))
        self.entries: list[dict[str, Any]] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{folder}/socket")
        self.listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with connection:
                    request = json.loads(connection.recv(65536))
                    answer = self._answer(request["command"], request.get("arguments", {}))
                    connection.sendall(json.dumps(answer).encode())

    def _answer(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        subnet = {"id": 7, "subnet": "198.51.100.0/24", "reservations": self.entries}
        names = ["config-get", "config-write", "reservation-add", "reservation-del", "lease4-get-all"]
        answers: dict[str, dict[str, Any]] = {
            "list-commands": {"result": 0, "arguments": names},
            "config-get": {"result": 0, "arguments": {"Dhcp4": {"subnet4": [subnet]}, "hash": "AB"}},
            "lease4-get-all": {"result": 3, "text": "0 IPv4 lease(s) found.", "arguments": {"leases": []}},
            "config-write": {"result": 0},
        }
        if command in answers:
            return answers[command]
        if arguments.get("operation-target") != "primary":
            return {"result": 1, "text": "Host database not available, cannot add host."}
        if command == "reservation-add":
            self.entries.append(dict(arguments["reservation"]))
        elif command == "reservation-del":
            self.entries = [entry for entry in self.entries if entry["ip-address"] != arguments["ip-address"]]
        else:
            return {"result": 2, "text": f"'{command}' command not supported."}
        return {"result": 0, "text": "done"}

    def reserve(self, reservation: Reservation) -> None:
        self.entries.append(
            {"hw-address": reservation.mac, "ip-address": reservation.address, "hostname": reservation.name}
        )

    def close(self) -> None:
        self.listener.close()


UCI = r"""
# A stand-in for uci(1): one package, one file with the lines that `uci show` prints.
[ "$1" != -q ] || shift
verb=$1; shift
case $verb in
    show) cat "$FILE" ;;
    changes) cat "$FILE.changes" 2>/dev/null || : ;;
    commit) ;;
    delete)
        awk -v k="$1" 'index($0, k "=") != 1 && index($0, k ".") != 1' "$FILE" >"$FILE.new"
        mv "$FILE.new" "$FILE"
        ;;
    set)
        key=${1%%=*} value=${1#*=}
        awk -v k="$key=" 'index($0, k) != 1' "$FILE" >"$FILE.new"; mv "$FILE.new" "$FILE"
        case $key in *.*.*) value="'$value'" ;; esac
        printf '%s=%s\n' "$key" "$value" >>"$FILE"
        ;;
esac
"""


class UciBench(ShellBench):
    """OpenWrt's files behind a stand-in for uci."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, OpenWrt("router", PREFIX))
        (folder / "bin").mkdir()
        self.file = folder / "dhcp"
        self.file.write_text(
            f"dhcp.cfg01411c=dnsmasq\ndhcp.cfg01411c.leasefile='{folder}/leases'\n"
            "dhcp.lan=dhcp\ndhcp.lan.start='100'\n"
        )
        for name, text in {
            "uci": f"FILE={self.file}\n{UCI}",
            "reload": f"echo reload >>{folder}/reloads\n",
            "odhcpd": f"echo odhcpd >>{folder}/reloads\n",
        }.items():
            (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}")
            (folder / "bin" / name).chmod(0o755)
        self.path = f"{folder}/bin:{self.path}"

    def adapted(self, fragment: str) -> str:
        fragment = fragment.replace("/etc/init.d/dnsmasq", f"{self.folder}/bin/reload")
        return fragment.replace("/etc/init.d/odhcpd", f"{self.folder}/bin/odhcpd")

    def reserve(self, reservation: Reservation) -> None:
        with self.file.open("a") as file:
            for key, value in {
                "name": reservation.name,
                "mac": reservation.mac,
                "ip": reservation.address,
            }.items():
                file.write(f"dhcp.@host[0].{key}='{value}'\n")
            file.write("dhcp.@host[0]=host\n")


BENCHES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "dnsmasq": (DnsmasqBench, ("dnsmasq", "unshare", "nsenter", "ip")),
    "kea": (KeaBench, ("kea-dhcp4", "unshare", "nsenter", "ip", "python3")),
    "kea 3": (Kea3Bench, ()),
    "openwrt": (UciBench, ()),
    **{name: (kind, ()) for name, kind in ROUTERS.items()},
}


@contextmanager
def bench(name: str, folder: Path) -> Iterator[Any]:
    """Run a server as long as the block lasts."""
    running = BENCHES[name][0](folder)
    try:
        yield running
    finally:
        running.close()
