"""The Proxmox VE of a contract test: the lab's API, or a real one that PROVISION_TEST_PVE names.

PROVISION_TEST_PVE is `https://USER@HOST[:8006]`; USER is `root@pam`, or an API token such as
`provision@pve!lab`. PROVISION_TEST_PVE_SECRET names the file with the password or the token's secret,
PROVISION_TEST_PVE_CERTIFICATE the file with the server's own certificate (`/etc/pve/local/pve-ssl.pem`), or
its SHA-256 fingerprint.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from provision.connections.contracts import ApiConnection, ApiError, HttpsEndpoint
from provision.connections.https import PveConnection
from provision.connections.pve_ticket import ROOT, TicketConnection
from provision.contracts.change import Key
from provision.contracts.driver import Action, Result, Verdict
from provision.contracts.remedy import ApiCall, Request
from provision.proxmox.driver import ProxmoxDriver
from provision.proxmox.marker import Marker
from provision.proxmox.queries import VmConfig, VmState
from provision.proxmox.resources.mapping import PciMapping
from provision.proxmox.resources.vm_lifecycle import VmAbsent
from provision.values.cancel import Cancel
from tests.contract.test_lab_api_proxmoxer import Site
from tests.contract.test_proxmox_fakepve import Loop

VARIABLE = "PROVISION_TEST_PVE"
PREFIX = "provision-test-"
MARK = Marker("provision-test", f"{PREFIX}vm", f"SHA256:{'a' * 43}", tags="own")


@dataclass
class Target:
    """A Proxmox VE, and what a test may make there.

    Args:
        connection: of the user that the tests work as.
        root: connection of root@pam, if there is one.
        node: name of its node.
        storage: storage for disks of VMs.
        bridge: bridge for VMs.
        vmid: number of the one VM of the tests; it must be free.
        login: the API token, or `root@pam`.
    """

    connection: ApiConnection
    root: ApiConnection | None
    node: str
    storage: str
    bridge: str
    vmid: int
    login: str

    def __post_init__(self) -> None:
        self.loop = Loop(ProxmoxDriver("pve/api", self.connection, self.node, login=self.login))

    @property
    def path(self) -> str:
        """API path of the VM."""
        return f"/nodes/{self.node}/qemu/{self.vmid}"

    @property
    def state(self) -> VmState:
        """The VM as it is."""
        snapshot = self.loop.driver.answer(frozenset({VmConfig(self.vmid)}), Cancel())
        state = snapshot[VmConfig(self.vmid)]
        assert isinstance(state, VmState)
        return state

    def act(
        self, method: str, path: str, data: Mapping[str, object], login: ApiConnection | None = None
    ) -> Result:
        """Send what a person could send, and wait for its task."""
        driver = ProxmoxDriver("pve/api", login or self.connection, self.node)
        call = ApiCall((Request(method, path, dict(data), task=300),))
        action = Action(Key("pve/api", "test", path), path, call)
        return driver.act("run", [action], (), lambda _: None, Cancel())[0]

    def require_free(self) -> None:
        """Refuse to begin where the number or a mapping of the tests is taken: it may be somebody's."""
        try:
            self.connection.request("GET", "/cluster/nextid", {"vmid": self.vmid})
        except ApiError as error:
            pytest.fail(f"VM {self.vmid} is taken; set {VARIABLE}_VMID to a free number: {error}")
        mappings = self.connection.request("GET", "/cluster/mapping/pci")
        assert isinstance(mappings, list)
        taken = [entry["id"] for entry in mappings if str(entry["id"]).startswith(PREFIX)]
        assert not taken, f"mappings of an earlier run, or somebody's: {taken}"

    def remove_own(self) -> None:
        """Remove the VM of the tests, if it carries their marker, and the mapping of the tests."""
        self.loop.settle(VmAbsent("pve/api", self.node, self.vmid, MARK))
        self.loop.settle(PciMapping("pve/api", self.node, f"{PREFIX}card", absent=True))
        self.require_free()


def lab_target(site: Site) -> Target:
    """Return the lab's API, as its token."""
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(site.ca.read_text())).hexdigest()
    login = "provision@pve!lab"
    endpoint = HttpsEndpoint(f"https://127.0.0.1:{site.port}", login, SecretStr(site.token), digest)
    root = TicketConnection(endpoint, lambda: SecretStr(site.password), lambda _: None, "pve")
    return Target(PveConnection(endpoint, "pve"), root, "pve", "local-disks", "vmbr0", 9901, login)


def real_target(environment: Mapping[str, str] = os.environ) -> Target:
    """Return the Proxmox VE that the environment names.

    Raises:
        KeyError, OSError, ValueError: a variable is missing, or what it names cannot be read.
    """
    parts = urlsplit(environment[VARIABLE])
    login = parts.username or ""
    is_token = "!" in login
    if not is_token and login != ROOT:
        raise ValueError(f"{VARIABLE}: the user is {ROOT} or an API token (provision@pve!lab), not {login!r}")
    secret = SecretStr(Path(environment[f"{VARIABLE}_SECRET"]).read_text(encoding="utf-8").strip())
    url = f"https://{parts.hostname}:{parts.port or 8006}"
    pin = fingerprint(environment[f"{VARIABLE}_CERTIFICATE"])
    endpoint = HttpsEndpoint(url, login, secret if is_token else SecretStr(""), pin)
    root = None if is_token else TicketConnection(endpoint, lambda: secret, lambda _: None, "pve")
    connection = root or PveConnection(endpoint, "pve")
    return Target(
        connection,
        root,
        environment.get(f"{VARIABLE}_NODE") or only_node(connection),
        environment.get(f"{VARIABLE}_STORAGE", "local-lvm"),
        environment.get(f"{VARIABLE}_BRIDGE", "vmbr0"),
        int(environment.get(f"{VARIABLE}_VMID", "990100")),
        login,
    )


def fingerprint(text: str) -> str:
    """Return a fingerprint as it is, or that of the certificate in a file."""
    if len(text.replace(":", "")) == hashlib.sha256().digest_size * 2 and not Path(text).exists():
        return text
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(Path(text).read_text())).hexdigest()


def only_node(connection: ApiConnection) -> str:
    """Return the name of the node, where there is one alone."""
    nodes = connection.request("GET", "/nodes")
    assert isinstance(nodes, list)
    names = [str(node["node"]) for node in nodes]
    if len(names) != 1:
        raise ValueError(f"set {VARIABLE}_NODE to one of: {', '.join(names)}")
    return names[0]


def require_done(result: Result) -> None:
    """Fail with the reason of a result that is not done."""
    assert result.verdict is Verdict.DONE, result
