"""Ways to a lab's machines that are not the product's: ssh, the API as root, the lab's files."""

from __future__ import annotations

import http.client
import json
import shlex
import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from provision.inventory import Inventory
from tests.e2e.vandals import Aside, Config, Damage, KubeNode, Off, PciMap

SECONDS = 300


class Doors:
    """Ways to a lab's machines that are not the product's: ssh, the API as root, the lab's files."""

    def __init__(self, inventory: Inventory, folder: Path) -> None:
        self.folder = folder
        network = inventory.network
        dhcp = network.dhcp if network is not None else None
        router = (dhcp.address if dhcp is not None else "") or (
            network.gateway if network is not None else ""
        )
        self.hosts = {"router": f"root@{router}"}
        self.hosts |= {f"{name}/ssh": f"root@{each.address}" for name, each in inventory.hypervisors.items()}
        user = inventory.access.user
        self.hosts |= {f"{name}/ssh": f"{user}@{each.address}" for name, each in inventory.nodes.items()}
        self.server = next((name for name, each in inventory.nodes.items() if each.k3s == "server"), "")
        self.guests = frozenset(f"{name}/ssh" for name in inventory.nodes)
        self.hypervisor = next(iter(inventory.hypervisors.values())).address
        self.bag = folder / "vandal"
        self.bag.mkdir(exist_ok=True)
        # Not beside the rest: the path of a socket is short.
        self.sockets = Path(tempfile.mkdtemp(prefix="vandal-", dir="/run"))
        self._undone: dict[Any, Callable[[], None]] = {}
        self._login: dict[str, str] = {}

    def run(self, system: str, script: str) -> str:
        """Run a script by root and return what it said."""
        guest = system in self.guests
        key = self.folder / "keys" / ("guest" if guest else "site")
        options = [
            "-F", "none", "-i", str(key), "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes",
            "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
            "-o", "ConnectTimeout=60", "-o", "ControlMaster=auto", "-o", f"ControlPath={self.sockets}/%C",
            "-o", "ControlPersist=30",
        ]  # fmt: skip
        argv = ["ssh", *options, self.hosts[system], *(["sudo", "-n"] if guest else []), "sh", "-eu"]
        result = subprocess.run(
            argv, input=script, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        if result.returncode:
            raise RuntimeError(f"{system}: {result.returncode}: {result.stderr}\n{script}")
        return result.stdout

    def api(self, method: str, path: str, data: Mapping[str, object] | None = None) -> Any:
        """Send a request as root@pam and return its data."""
        if not self._login and path != "/access/ticket":
            password = (self.folder / "api/root-password").read_text().strip()
            told = self.api("POST", "/access/ticket", {"username": "root@pam", "password": password})
            self._login = {
                "Cookie": f"PVEAuthCookie={told['ticket']}",
                "CSRFPreventionToken": told["CSRFPreventionToken"],
            }
        context = ssl.create_default_context(cafile=str(self.folder / "keys/api.pem"))
        door = http.client.HTTPSConnection(self.hypervisor, 8006, timeout=SECONDS, context=context)
        form = {"Content-Type": "application/x-www-form-urlencoded"} if data is not None else {}
        body = urlencode(data, doseq=True) if data is not None else None
        door.request(method, f"/api2/json{path}", body, {**self._login, **form})
        answer = door.getresponse()
        text = answer.read().decode()
        door.close()
        if answer.status != http.client.OK:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.reason} {text}")
        return json.loads(text)["data"]

    # ------------------------------------------------------------ damage that undoes itself

    def damage(self, what: Damage) -> None:
        """Do a damage of the API or the lab, and note how it is undone."""
        if isinstance(what, Config):
            self._undone[id(what)] = self._configure(what)
        elif isinstance(what, PciMap):
            self._undone[id(what)] = self._map(what)
        elif isinstance(what, Aside):
            path, aside = self.folder / what.path, self.bag / what.path.replace("/", "_")
            path.rename(aside)
            self._undone[id(what)] = lambda: None if path.exists() else _void(aside.rename(path))
        elif isinstance(what, KubeNode):
            self._patch(what.name, what.patch)
            self._undone[id(what)] = lambda: self._patch(what.name, what.back)
        elif isinstance(what, Off):
            self.task(self.api("POST", f"{what.path}/status/stop", {}))

    def undo(self, what: Damage) -> None:
        """Undo it."""
        self._undone.pop(id(what), lambda: None)()

    def _configure(self, what: Config) -> Callable[[], None]:
        path = f"{what.path}/config"
        before = {key: str(value) for key, value in self.api("GET", path).items()}
        values = what.change(before)
        changed = {key: value for key, value in values.items() if value}
        gone = [key for key, value in values.items() if not value]
        self.api("PUT", path, {**changed, **({"delete": ",".join(gone)} if gone else {})})

        def undo() -> None:
            waits = {
                each["key"]
                for each in self.api("GET", f"{what.path}/pending")
                if "pending" in each or "delete" in each
            }
            revert = sorted(waits & set(values))
            if revert:
                self.api("PUT", path, {"revert": ",".join(revert)})
            now = self.api("GET", path)
            put = {key: before[key] for key in values if key in before and str(now.get(key)) != before[key]}
            new = [key for key in values if key not in before and key in now]
            if put or new:
                self.api("PUT", path, {**put, **({"delete": ",".join(new)} if new else {})})

        return undo

    def _map(self, what: PciMap) -> Callable[[], None]:
        path = f"/cluster/mapping/pci/{what.name}"
        before = self.api("GET", path)
        entries = list(before["map"])
        if what.remove:
            self.api("DELETE", path)
            again = {"id": what.name, "map": entries, "description": before.get("description", "")}
            return lambda: _void(self.api("POST", "/cluster/mapping/pci", again))
        parts = [dict(pair.split("=", 1) for pair in entry.split(",")) for entry in entries]
        other = [
            ",".join(f"{key}={value}" for key, value in {**each, "id": "1234:ffff"}.items()) for each in parts
        ]
        self.api("PUT", path, {"map": other})
        return lambda: _void(self.api("PUT", path, {"map": entries}))

    def _patch(self, node: str, patch: str) -> None:
        """Change a Node as an administrator does on the cluster's server."""
        tls = "/var/lib/rancher/k3s/server/tls"
        words = [
            "curl", "-sSf", "-X", "PATCH", "-H", "Content-Type: application/merge-patch+json",
            "--cacert", f"{tls}/server-ca.crt", "--cert", f"{tls}/client-admin.crt",
            "--key", f"{tls}/client-admin.key", "-d", patch,
            f"https://127.0.0.1:6443/api/v1/nodes/{node}",
        ]  # fmt: skip
        self.run(f"{self.server}/ssh", shlex.join(words))

    def task(self, upid: str) -> None:
        """Wait for a task."""
        node = upid.split(":")[1]
        while self.api("GET", f"/nodes/{node}/tasks/{upid}/status")["status"] == "running":
            time.sleep(0.2)

    def close(self) -> None:
        """Leave nothing behind."""
        for host in self.hosts.values():
            subprocess.run(
                ["ssh", "-F", "none", "-o", f"ControlPath={self.sockets}/%C", "-O", "exit", host],
                capture_output=True,
                check=False,
            )
        shutil.rmtree(self.sockets, ignore_errors=True)
        shutil.rmtree(self.bag, ignore_errors=True)


def _void(_value: object) -> None:
    """Take a value and do nothing with it."""
