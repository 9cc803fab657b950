"""A site of container guests for proofs: the command line as a user runs it, and looks of our own.

What is looked at here is looked at without the product: over `ssh` with the lab's own key, in the files of
the lab's API, in /proc. Only the command that is under proof is the product.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.evidence import namespace, watch

HERE = Path(__file__).parent
ROUTER = "198.18.0.1"
HYPERVISOR = "198.18.0.5"
DEADLINE = 600.0
_NO_TERMINAL = subprocess.DEVNULL


class Dumper(yaml.SafeDumper):
    """Writes inventories; a secret is a `Reference`."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


@dataclass(frozen=True)
class Reference:
    """A secret by reference: `!secret { file: X }`."""

    kind: str
    value: str


Dumper.add_representer(
    Reference,
    lambda dumper, each: dumper.represent_mapping("!secret", {each.kind: each.value}),
)


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err

    def ended(self, code: int) -> Done:
        """Return itself, if it ended like that."""
        told = "\n".join(line for line in self.said.splitlines() if '"outcome":"proven"' not in line)
        assert self.code == code, f"{' '.join(self.argv)}: {self.code}, not {code}\n{told[-6000:]}"
        assert "--debug" in self.argv or "Traceback" not in self.said, self.said[-6000:]
        return self

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """Return the events of `--json`."""
        found = [json.loads(line) for line in self.out.splitlines()]
        return [each for each in found if not kind or each["type"] == kind]

    def codes(self) -> set[str]:
        """Return the codes of all problems shown."""
        return set(re.findall(r"^error ([A-Z][A-Z_]+)", self.said, re.MULTILINE))


def inventory(name: str, nodes: int = 2) -> dict[str, Any]:
    """Return an inventory with a hypervisor and some small VMs."""
    return {
        "version": 1,
        "name": name,
        "lab": {"driver": "container", "hypervisor": {"memory": "4GiB"}},
        "policy": {"allow": ["reboot-hypervisor", "reboot-guest", "power-cycle", "console-loss", "delete"]},
        "access": {"user": "debian"},
        "network": {
            "cidr": "198.18.0.0/24",
            "gateway": ROUTER,
            "dhcp": {
                "backend": "dnsmasq",
                "address": ROUTER,
                "ssh": {"user": "root"},
                "range": "198.18.0.100-198.18.0.199",
            },
        },
        "images": {"debian-12": {}},
        "hypervisors": {
            "pve": {
                "address": HYPERVISOR,
                "api": {"url": f"https://{HYPERVISOR}:8006"},
                "ssh": {"user": "root"},
                "storage": {"images": "local", "disks": "local-disks", "snippets": "local"},
                "bridge": "vmbr0",
                "reserve_memory": "512MiB",
                "host_resources": [
                    {"kind": "file", "path": "/etc/motd", "content": "managed\n", "mode": "0644"},
                    {"kind": "sysctl", "key": "net.ipv4.conf.all.rp_filter", "value": "2"},
                ],
            }
        },
        "profiles": {
            "small": {
                "hypervisor": "pve",
                "image": "debian-12",
                "cores": 1,
                "memory": "768MiB",
                "disk": "4GiB",
                "power": "running",
                "start_at_boot": False,
                "timezone": "Etc/UTC",
                "ntp": [ROUTER],
                "swap": "off",
                "packages": ["chrony"],
                "sysctl": {"net.ipv4.tcp_keepalive_time": "600"},
                "host_resources": [
                    {"kind": "file", "path": "/etc/site/purpose", "content": "rehearsal\n"},
                    {
                        "kind": "file",
                        "path": "/etc/chrony/conf.d/site.conf",
                        "content": "maxslewrate 500\n",
                        "mode": "0644",
                        "restart": ["chrony.service"],
                    },
                    {"kind": "sysctl", "key": "net.ipv4.ip_forward", "value": "1"},
                    {
                        "kind": "command",
                        "name": "setup",
                        "run": "touch /var/lib/setup",
                        "creates": "/var/lib/setup",
                    },
                ],
            }
        },
        "nodes": {
            f"vm-{number}": {"profile": "small", "vmid": 200 + number, "address": f"198.18.0.{10 + number}"}
            for number in range(1, nodes + 1)
        },
    }


@dataclass
class Site:
    """One inventory in a folder of its own, with its lab.

    Args:
        folder: for inventory, state and lab.
        declared: the inventory; `write` writes it again.
        extra: more of the environment.
        deadline: seconds that a command may take.
    """

    folder: Path
    declared: dict[str, Any]
    extra: dict[str, str] = field(default_factory=dict)
    deadline: float = DEADLINE

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "labs").mkdir(exist_ok=True)
        watch(self.folder / "labs")
        self.write()

    # ------------------------------------------------------------ the product

    @property
    def name(self) -> str:
        return str(self.declared["name"])

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.yaml"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def lab(self) -> Path:
        return self.folder / "labs" / self.name

    @property
    def namespace(self) -> str:
        return namespace(self.lab)

    def write(self, file: Path | None = None, declared: dict[str, Any] | None = None) -> Path:
        """Write the inventory, or a variant of it."""
        path = file or self.file
        path.write_text(yaml.dump(declared or self.declared, Dumper=Dumper, sort_keys=False))
        return path

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PROVISION_STATE": str(self.state),
            "PROVISION_LAB_DIR": str(self.folder / "labs"),
            **self.extra,
        }

    def start(self, *words: object, **more: Any) -> subprocess.Popen[str]:
        """Begin `provision WORDS`."""
        argv = [sys.executable, "-P", "-m", "provision.cli.main", *map(str, words)]
        return subprocess.Popen(
            argv,
            env=self.environment(),
            stdin=_NO_TERMINAL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            **more,
        )

    def provision(self, *words: object) -> Done:
        """Run `provision WORDS` to its end."""
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=self.deadline)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(
                f"no end in {self.deadline:.0f} s: {words}\n{out[-3000:]}\n{err[-3000:]}"
            ) from None
        return Done(tuple(map(str, words)), process.returncode, out, err)

    def apply(self, *words: object) -> Done:
        return self.provision("apply", self.file, "--yes", *words)

    def trips(self) -> dict[str, int]:
        """Return the round trips of the latest run, from the journal's own table."""
        with sqlite3.connect(self.state / "journal.sqlite") as journal:
            row = journal.execute("SELECT trips FROM runs ORDER BY started DESC LIMIT 1").fetchone()
        found: dict[str, int] = json.loads(row[0])
        return found

    def down(self) -> None:
        """Remove the lab and prove that nothing of it is left."""
        self.provision("lab", "down", self.file).ended(0)
        assert traces(self) == []

    # ------------------------------------------------------------ looks without it

    def inside(self, argv: Sequence[str], text: str = "") -> str:
        """Run a command in the lab's network and return its output."""
        result = subprocess.run(
            ["nsenter", f"--net=/run/netns/{self.namespace}", "--", *argv],
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=self.deadline,
        )
        assert result.returncode == 0, f"{argv}: {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    def on(self, address: str, script: str) -> str:
        """Run a script as root on a machine of the site; its host key is what the lab or the marker says."""
        guest = address not in {ROUTER, HYPERVISOR}
        known = self.lab / "keys/known_hosts"
        if guest:
            known = self.folder / "guest_hosts"
            known.write_text(self.scanned(address, "-t", "ed25519"))  # each kind costs a slow machine seconds
        user, key = ("debian", "guest") if guest else ("root", "site")
        remote = "exec sudo -n /bin/sh -s" if guest else "exec /bin/sh -s"
        return self.inside(
            ["ssh", "-F", "none", "-T", "-i", str(self.lab / "keys" / key),
             "-o", f"UserKnownHostsFile={known}", "-o", "GlobalKnownHostsFile=/dev/null",
             "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes",
             "-o", "LogLevel=ERROR", f"{user}@{address}", remote],
            script,
        )  # fmt: skip

    def scanned(self, address: str, *options: str) -> str:
        """Return the host keys that an address offers, as lines of known_hosts."""
        text = self.inside(["ssh-keyscan", "-T", "120", *options, address])
        return "".join(f"{line}\n" for line in text.splitlines() if not line.startswith("#"))

    def fingerprints(self, address: str) -> set[str]:
        """Return the fingerprints of the host keys that an address offers."""
        result = subprocess.run(
            ["ssh-keygen", "-lf", "-"],
            input=self.scanned(address),
            capture_output=True,
            text=True,
            check=True,
        )
        return {line.split()[1] for line in result.stdout.splitlines()}

    def config(self, vmid: int) -> str:
        """Return a VM's configuration file on the hypervisor's side."""
        return (self.lab / f"api/qemu-server/{vmid}.conf").read_text()

    def marker(self, vmid: int) -> dict[str, str]:
        """Return the words of a VM's marker."""
        line = self.config(vmid).splitlines()[0].replace("%3A", ":")
        assert line.startswith("#provision:"), line
        return dict(word.split("=", 1) for word in line.split()[1:])

    def api_files(self) -> dict[str, str]:
        """Return the files of the lab's API: configurations, volumes (by size), tasks."""
        found = {}
        for part in ("qemu-server", "storage", "tasks"):
            for path in sorted((self.lab / "api" / part).rglob("*")):
                if path.is_file():
                    small = path.suffix in {".conf", ".cfg"}
                    found[str(path.relative_to(self.lab / "api"))] = (
                        path.read_text() if small else str(path.stat().st_size)
                    )
        return found

    def dump(self, *addresses: str) -> tuple[str, ...]:
        """Return the state of all machines and of the API, as an independent script tells it, by lines."""
        script = (HERE / "dump.sh").read_text()
        parts = []
        for address in addresses:
            parts += [f"{address}: {line}" for line in self.on(address, script).splitlines()]
        for name, text in self.api_files().items():
            if not name.startswith("tasks/"):
                parts += [f"api {name}: {line}" for line in _lasting(text)]
        return tuple(parts)


def _lasting(text: str) -> Iterator[str]:
    """Yield the lines of a configuration without what is random in it."""
    for line in text.splitlines():
        if line.startswith("#provision"):
            yield re.sub(r"(key=)\S*", r"\1...", line)
        elif not line.startswith(("meta:", "smbios1:", "vmgenid:")):
            yield line


def differences(before: Iterable[str], after: Iterable[str]) -> list[str]:
    """Return the lines of two dumps that differ, marked with - and +."""
    old, new = set(before), set(after)
    return sorted([f"- {line}" for line in old - new] + [f"+ {line}" for line in new - old])


def traces(site: Site) -> list[str]:
    """Return what is left of a lab on this machine, without asking the product."""
    found = [f"namespace {path}" for path in Path("/run/netns").glob(f"provision-{site.name}*")]
    if site.lab.exists():
        found.append(f"folder {site.lab}")
    found += [
        f"mount {line}"
        for line in Path("/proc/self/mounts").read_text().splitlines()
        if str(site.lab) in line
    ]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environ, argv = (entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"PROVISION_LAB_OWNER={site.lab}".encode() in environ or str(site.lab).encode() in argv:
                found.append(f"process {entry.name} {argv.decode(errors='replace')}")
    found += [f"control group {path}" for path in Path("/sys/fs/cgroup").glob(f"**/{site.namespace}")]
    return found


def brought_up(site: Site, request: pytest.FixtureRequest) -> Site:
    """Bring a lab up; it goes after the tests of its fixture, and after what a failure tells of it."""
    request.addfinalizer(lambda: clear(site))
    site.provision("lab", "up", site.file).ended(0)
    return site


def clear(site: Site) -> None:
    """Take a lab down, whatever state a failed proof left it in."""
    site.provision("lab", "down", site.file)


def eventually(what: Callable[[], Any], deadline: float = 300.0) -> Any:
    """Return the first true answer."""
    end = time.monotonic() + deadline
    while not (seen := what()):
        if time.monotonic() > end:
            pytest.fail(f"did not come true in {deadline:.0f} s, the last answer was {seen!r}")
        time.sleep(0.05)
    return seen


def kill(pid: int) -> None:
    """Kill -9, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
