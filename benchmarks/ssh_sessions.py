"""Measure what a plan over many real SSH sessions costs the controller.

python benchmarks/ssh_sessions.py [--sessions 1000] [--rounds 3]

One OpenSSH server on loopback stands for all hosts: each has its own address in 127.78.0.0/16, hence its own
connection and login. Every host has 25 states (12 files, 4 lines, 5 packages, 4 commands), all as declared.
Needs Debian's openssh-server; works in a temporary folder. The server's CPU time is not counted.
"""

from __future__ import annotations

import argparse
import getpass
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SSHD = "/usr/sbin/sshd"
PACKAGES = ("bash", "coreutils", "dpkg", "grep", "sed")
FILES, LINES, COMMANDS = 12, 4, 4
REFUSED = 4
"""Exit status of a run that preflight refused."""
SAMPLE_EVERY = 0.05
"""Seconds between two looks at the threads and descriptors of the measured process."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process took: seconds, MiB, and the most threads and descriptors that were seen."""

    wall: float
    cpu: float
    memory: float
    threads: int
    descriptors: int


def address(index: int) -> str:
    """Return the loopback address of a host."""
    return f"127.78.{index // 250}.{index % 250 + 1}"


def write_states(folder: Path) -> list[str]:
    """Make the states true, and return them as resources of an inventory."""
    resources = []
    for index in range(FILES):
        path = folder / f"file-{index}"
        path.write_text(f"value {index}\n")
        path.chmod(0o644)
        resources.append(f'{{ kind: file, path: {path}, mode: 0644, content: "value {index}\\n" }}')
    lines = folder / "lines"
    lines.write_text("".join(f"line {index}\n" for index in range(LINES)))
    resources += [f"{{ kind: file, path: {lines}, line: line {index} }}" for index in range(LINES)]
    resources += [f"{{ kind: package, name: {name} }}" for name in PACKAGES]
    resources += [
        f'{{ kind: command, name: command-{index}, run: "true", creates: {folder} }}'
        for index in range(COMMANDS)
    ]
    return resources


def write_inventory(folder: Path, port: int, sessions: int) -> Path:
    """Write an inventory of bare metal nodes that share one profile."""
    public = (folder / "host_key.pub").read_text().split()
    names = ",".join(f"[{address(index)}]:{port}" for index in range(sessions))
    known = folder / "known_hosts"
    known.write_text(f"{names} {public[0]} {public[1]}\n")
    lines = [
        "version: 1",
        "name: sessions",
        f"access: {{ user: {getpass.getuser()}, port: {port}, key: {folder / 'client_key'},",
        f"          known_hosts: {known} }}",
        "profiles:",
        "  plain:",
        "    ssh: { sudo: false }",
        "    host_resources:",
        *(f"      - {resource}" for resource in write_states(folder)),
        "nodes:",
        *(f"  n{index:04d}: {{ profile: plain, address: {address(index)} }}" for index in range(sessions)),
    ]
    path = folder / "sessions.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


@contextmanager
def server(folder: Path) -> Iterator[int]:
    """Run an SSH server for all addresses, and yield its port."""
    for name in ("host_key", "client_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    shutil.copy(folder / "client_key.pub", folder / "authorized_keys")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    config = folder / "sshd_config"
    config.write_text(
        f"ListenAddress 0.0.0.0\nPort {port}\nHostKey {folder}/host_key\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\nUseDNS no\n"
        "PasswordAuthentication no\nPermitRootLogin prohibit-password\nPrintMotd no\nPrintLastLog no\n"
        "MaxStartups 2000\nLogLevel ERROR\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stderr=(folder / "log").open("ab"))
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        else:
            sys.exit((folder / "log").read_text())
        yield port
    finally:
        process.terminate()
        process.wait(10)


def measure(command: list[str], environment: dict[str, str], output: Path) -> Cost:
    """Run a command, look at its process while it runs, and return its cost.

    Raises:
        SystemExit: the command failed.
    """
    threads = descriptors = 0
    began = time.monotonic()
    with output.open("wb") as stream:
        process = subprocess.Popen(command, env=environment, stdout=stream, stderr=subprocess.STDOUT)
    ended = threading.Event()

    def sample() -> None:
        nonlocal threads, descriptors
        folder = Path("/proc") / str(process.pid)
        while not ended.wait(SAMPLE_EVERY):
            try:
                threads = max(threads, len(list((folder / "task").iterdir())))
                descriptors = max(descriptors, len(list((folder / "fd").iterdir())))
            except OSError:
                return

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    ended.set()
    sampler.join()
    # All sessions lead to this one machine, so a plan ends with that refusal; all answers were given by then.
    is_one_machine = process.returncode == REFUSED and b"IDENTITY_DUPLICATE" in output.read_bytes()
    if process.returncode and not is_one_machine:
        sys.exit(f"exit {process.returncode}:\n{output.read_text()[-3000:]}")
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, threads, descriptors)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if not Path(SSHD).exists():
        sys.exit("openssh-server is not installed")
    provision = str(Path(sys.executable).with_name("provision"))
    with tempfile.TemporaryDirectory(prefix="provision-sessions-") as name, server(Path(name)) as port:
        folder = Path(name)
        inventory = write_inventory(folder, port, given.sessions)
        environment = os.environ | {"PROVISION_STATE": str(folder / "state"), "HOME": name}
        environment.pop("SSH_AUTH_SOCK", None)
        command = [provision, "plan", str(inventory), "--playbook", "hosts", "--detailed-exitcode"]
        costs = []
        for number in range(given.rounds):
            cost = measure(command, environment, folder / "output")
            costs.append(cost)
            print(
                f"round {number + 1}: {given.sessions} sessions: wall {cost.wall:.1f} s, "
                f"CPU {cost.cpu:.2f} s, memory {cost.memory:.0f} MiB, threads {cost.threads}, "
                f"descriptors {cost.descriptors}",
                flush=True,
            )
        print(f"median CPU {statistics.median(cost.cpu for cost in costs):.2f} s")


if __name__ == "__main__":
    main()
