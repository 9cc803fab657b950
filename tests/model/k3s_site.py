"""A cluster of bare-metal nodes in memory, and the pins of a release that nobody downloads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from provision.api import Options
from provision.api.domains import load_inventory
from provision.connections.contracts import Endpoint
from provision.contracts.driver import Driver
from provision.contracts.system import SystemSpec
from provision.engine.model import RunReport
from provision.inventory import Inventory
from provision.inventory.lock import Pin
from provision.k3s import artifacts, paths
from provision.testing.model_host import guest_state
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent
from tests.model.model_site import ModelSite, _bare_metal

HEAD = """
version: 1
name: cluster
access: { user: root, key: ./key }
policy: { allow: [restart-k3s] }
k3s: { version: v1.35.7+k3s1@MORE }
nodes:
"""
PAIR = "  s1: { address: 198.51.100.1, k3s: server }\n  a1: { address: 198.51.100.11, k3s: agent }\n"
TRIO = "".join(f"  s{n}: {{ address: 198.51.100.{n}, k3s: server }}\n" for n in (1, 2, 3)) + "".join(
    f"  a{n}: {{ address: 198.51.100.1{n}, k3s: agent }}\n" for n in (1, 2)
)


HYPERVISOR = """
network: { cidr: 198.51.100.0/24, dhcp: { backend: dnsmasq, address: 198.51.100.250, ssh: {} } }
images:
  debian-12: { url: "https://example.org/debian.qcow2", sha256: "@SHA" }
hypervisors:
  pve:
    address: 198.51.100.200
    api: { token_id: a@pve!b, token: !secret { env: TOKEN }, fingerprint: "@PRINT" }
    ssh: { user: root }
    storage: { images: local, disks: local-lvm, snippets: local }
    bridge: vmbr0
""".replace("@SHA", "0" * 64).replace("@PRINT", ":".join(["00"] * 32))
VM = "{ hypervisor: pve, image: debian-12, cores: 1, memory: 1GiB, disk: 4GiB, disks: [{ size: 2GiB }]"
"""The beginning of a node that is a VM with a data disk."""


def pinned(inventory: Inventory) -> Inventory:
    """Return an inventory with the digests of its release."""
    url = "https://example.org/v1.35.7%2Bk3s1/"
    pins = {name: Pin(url + name, "c" * 64) for name in (artifacts.BINARY_ASSET, artifacts.IMAGES_ASSET)}
    object.__setattr__(inventory, "_lock", replace(inventory.lock, binaries=pins))
    return inventory


def inventory_of(folder: Path, nodes: str, more: str = "", tail: str = "") -> Inventory:
    """Return the inventory of a cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "cluster.yaml"
    (folder / "key").write_text("k")
    (folder / "key.pub").write_text("ssh-ed25519 AAAA me")
    file.write_text(HEAD.replace("@MORE", more) + nodes + tail)
    return pinned(load_inventory(file))


class K3sSite(ModelSite):
    """The machines of a cluster; some may be silent."""

    def __init__(self, folder: Path, nodes: str = PAIR, more: str = "", tail: str = "") -> None:
        super().__init__(inventory_of(folder, nodes, more, tail), folder / "state")
        self.silent: set[str] = set()

    def open(self, spec: SystemSpec, endpoint: Endpoint) -> Driver:
        if spec.subject in self.silent:
            raise Permanent(Diagnostic("HOST_SILENT", f"{spec.name} does not answer", spec.name))
        return super().open(spec, endpoint)

    def declare(self, folder: Path, nodes: str, more: str = "", tail: str = "") -> None:
        """Change what is declared; the machines stay as they are."""
        self.inventory = inventory_of(folder, nodes, more, tail)

    def add_machine(self, name: str) -> None:
        """Let a machine that was declared later be there."""
        self._add(f"{name}/ssh", _bare_metal(self.inventory.nodes[name]))

    def text(self, name: str, path: str) -> str:
        """Return a file of a machine."""
        return self.hosts[f"{name}/ssh"].state.text(path)

    def token(self, name: str) -> str:
        """Return the bare token with which a machine starts k3s."""
        return self.text(name, paths.TOKEN).strip().rpartition(":")[2]

    def cluster_token(self, name: str) -> str:
        """Return the full token that a server made."""
        return self.text(name, paths.FULL_TOKEN.path).strip()

    def rebuild(self, name: str) -> None:
        """Let a machine begin from its image: nothing of former runs is left on it."""
        self.hosts[f"{name}/ssh"].state = guest_state(name)

    def rotate(self) -> RunReport:
        """Ask for a new join token, and bring it to all in one apply."""
        return self.apply(Options(rotate=frozenset({"k3s-token"})))
