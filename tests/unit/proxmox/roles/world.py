"""A site in memory: hypervisor with its API, router and guests that boot with what was configured."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from provision.api import Options, Site, load
from provision.connections.contracts import Endpoint, SshEndpoint
from provision.connections.keys import fingerprint
from provision.contracts.driver import Driver
from provision.contracts.system import SystemSpec
from provision.engine.model import Plan, RunReport
from provision.hosts.queries.shell import Shell, ShellResult
from provision.proxmox import formats
from provision.proxmox.resources.guest import STATUS
from provision.testing.model_host import (
    HostState,
    ModelFile,
    ModelHost,
    ModelUnit,
    guest_state,
    hypervisor_state,
)
from provision.testing.model_proxmox import ModelProxmox, ModelVm
from provision.values.cancel import Cancel

KEY = "/etc/ssh/ssh_host_ed25519_key"
HOSTS = "/etc/dnsmasq.d/hosts/"
LEASES = "/var/lib/misc/dnsmasq.leases"

PLAYBOOK = """\
name: vms
steps:
  - { role: image, on: hypervisors }
  - { role: pci_mapping, on: hypervisors }
  - { role: dhcp_reservation, on: nodes.virtual }
  - { role: virtual_machine, on: nodes.virtual }
  - { role: address, on: nodes.virtual }
  - { role: first_contact, on: nodes.virtual }
"""
OPTIONS = Options(
    steps=("image", "pci_mapping", "dhcp_reservation", "virtual_machine", "address", "first_contact")
)
"""The rest of what the nodes declare is other roles' business."""
DESTROY = replace(OPTIONS, host=True)
INVENTORY = """\
version: 1
name: site
policy: { allow: [power-cycle, console-loss, delete] }
access: { user: debian, key: ./id }
network:
  cidr: 10.0.0.0/24
  gateway: 10.0.0.1
  dhcp: { backend: dnsmasq, ssh: { user: root }, range: 10.0.0.100-10.0.0.199 }
images:
  debian-12: { url: "https://images.example/debian.img", sha256: "@SHA" }
hypervisors:
  pve:
    address: 10.0.0.5
    api: { token_id: a@pve!b, token: !secret { file: ./token }, fingerprint: "@PRINT" }
    storage: { images: local, disks: local-zfs, snippets: local }
    cards:
      one: { address: "0000:02:00", id: "10de:2204", drives_console: true }
profiles:
  small:
    { hypervisor: pve, image: debian-12, cores: 2, memory: 1GiB, disk: 4GiB, power: running }
nodes:
  vm-1: { profile: small, vmid: 101, address: 10.0.0.11 }
  vm-gpu: { profile: small, vmid: 102, address: 10.0.0.12, gpus: [one], power: unmanaged }
""".replace("@SHA", "ab" * 32).replace("@PRINT", ":".join(["AB"] * 32))


@dataclass
class World:
    """All machines of the site, and the tool pointed at them."""

    folder: Path
    pve: ModelProxmox = field(default_factory=ModelProxmox)
    host: HostState = field(default_factory=hypervisor_state)
    router: HostState = field(default_factory=lambda: guest_state("router"))
    guests: dict[str, ModelHost] = field(default_factory=dict)
    drivers: list[Driver] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    vm_files: bytes = b""
    pools: tuple[str, ...] | None = None
    born: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.pve.volumes = {"local": [], "local-zfs": []}
        self.pve.on_power = self._power
        unit = ModelUnit()
        self.router.units["dnsmasq.service"] = unit
        unit.read = self.router.config_digest(unit)
        (self.folder / "id").write_text("private\n")
        (self.folder / "id.pub").write_text("ssh-ed25519 AAAA me\n")
        (self.folder / "token").write_text("secret-token\n")
        (self.folder / "vms.yaml").write_text(PLAYBOOK)
        self.write(INVENTORY)

    def write(self, text: str) -> None:
        """Write the inventory."""
        (self.folder / "site.yaml").write_text(text)

    def site(self) -> Site:
        """Return the tool, as a new process would have it."""
        return load(
            self.folder / "site.yaml",
            playbook=str(self.folder / "vms.yaml"),
            state=self.folder / "state",
            open_driver=self._open,
        )

    def plan(self) -> Plan:
        """Plan once."""
        site = self.site()
        try:
            return site.plan(OPTIONS, lambda _: None, Cancel())
        finally:
            site.close()

    def apply(self, *, prune: bool = False) -> RunReport:
        """Plan and apply."""
        site = self.site()
        try:
            return site.apply(None, replace(OPTIONS, prune=prune), lambda _: None, Cancel(), lambda _: True)
        finally:
            site.close()

    def destroy(self) -> RunReport:
        """Destroy all that was made."""
        site = self.site()
        try:
            return site.destroy(DESTROY, lambda _: None, Cancel(), lambda _: True)
        finally:
            site.close()

    # ------------------------------------------------------------ machines

    def _open(self, spec: SystemSpec, endpoint: Endpoint) -> Driver:
        driver = self._driver(spec, endpoint)
        self.drivers.append(driver)
        return driver

    def _driver(self, spec: SystemSpec, endpoint: Endpoint) -> Driver:
        if spec.kind == "proxmox":
            return self.pve.driver(spec.name)
        if spec.name == "pve/ssh":
            return ModelHost(spec.name, self.host)
        if spec.name == "router":
            router = ModelHost(spec.name, self.router)
            router.answers[Shell] = self._router_shell
            return router
        assert isinstance(endpoint, SshEndpoint)
        guest = self.guests[spec.subject]
        shown = self.host_key(spec.subject)
        assert shown in endpoint.fingerprints, f"{shown} of {spec.name} was not expected"
        self.shown.append(shown)
        return guest

    def host_key(self, name: str) -> str:
        """Return the fingerprint that a guest's sshd shows."""
        return fingerprint(self.guests[name].state.text(f"{KEY}.pub"))

    def _power(self, vm: ModelVm, on: bool) -> None:
        name = vm.config["name"]
        system = (id(vm), vm.images)
        if on and self.born.get(name) != system:
            self.born[name] = system
            state = guest_state(name)
            for path in [each for each in state.files if each.startswith("/etc/ssh/ssh_host_")]:
                del state.files[path]
            volume = formats.parse(vm.config["cicustom"])["vendor"].partition(":")[2]
            text = self.host.files[f"/var/lib/vz/{volume}"].content.decode()
            given = yaml.safe_load(text)["ssh_keys"]
            state.files[KEY] = ModelFile(given["ed25519_private"].encode(), "0600")
            state.files[f"{KEY}.pub"] = ModelFile(f"{given['ed25519_public']}\n".encode())
            self.keys.append(given["ed25519_private"])
            unit = state.units["ssh.service"]
            unit.read = state.config_digest(unit)
            guest = ModelHost(f"{name}/ssh", state)
            mac = formats.normal(vm.config["net0"], formats.NET)["macaddr"].lower()
            guest.answers[Shell] = lambda _, query: self._guest_shell(query, mac)
            self.guests[name] = guest
            self._lease(mac, name)

    def _lease(self, mac: str, name: str) -> None:
        held = self.router.text(LEASES) if LEASES in self.router.files else ""
        self.router.files[LEASES] = ModelFile(
            f"{held}1795960000 {mac} {self._address_of(mac)} {name} *\n".encode()
        )

    def reserved(self) -> dict[str, str]:
        """Return the router's reservations: address by MAC."""
        rows = [
            entry.content.decode().strip().split(",")
            for path, entry in list(self.router.files.items())  # other steps may write meanwhile
            if path.startswith(HOSTS)
        ]
        return {row[0]: row[1] for row in rows}

    def _address_of(self, mac: str) -> str:
        start = f"{mac},".encode()
        files = list(self.router.files.items())
        rows = (entry.content for path, entry in files if path.startswith(HOSTS))
        row = next((content for content in rows if content.startswith(start)), b",10.0.0.150")
        return row.split(b",")[1].decode()

    def _router_shell(self, _state: HostState, query: Shell) -> object:
        del query
        rows = [
            f"{path}:{entry.content.decode().strip()}"
            for path, entry in list(self.router.files.items())
            if path.startswith(HOSTS)
        ]
        return ShellResult(0, "".join(f"{each}\n" for each in rows).encode(), b"")

    def host_shell(self, query: Shell) -> ShellResult:
        """Return what the hypervisor prints."""
        if "user.cfg" in query.command:
            return ShellResult(1 if self.pools is None else 0, "\n".join(self.pools or ()).encode(), b"")
        return ShellResult(0, self.vm_files if "qemu-server" in query.command else b"", b"")

    def _guest_shell(self, query: Shell, mac: str) -> object:
        address = self._address_of(mac)
        texts = {
            STATUS: "status: done\n",
            "ip -o link show": f"2: ens18: <UP> mtu 1500 state UP \\    link/ether {mac} brd ff\n",
            "ip -o -4 address show scope global": f"2: ens18    inet {address}/24 scope global ens18\n",
        }
        return ShellResult(0, texts.get(query.command, "").encode(), b"")

    def dump(self) -> dict[str, object]:
        """Return the end state, without what may differ between two runs to one end."""
        found = self.pve.dump()
        vms = found["vms"]
        assert isinstance(vms, dict)
        for config, _, _ in vms.values():
            del config["description"]
            config.pop("smbios1", None)
        return {
            **found,
            "host": {path: each.mode for path, each in self.host.files.items() if each.type == "file"},
            "router": {
                path: each.content for path, each in self.router.files.items() if path.startswith(HOSTS)
            },
            "pending": [dict(each.pending) for each in (self.host, self.router)],
        }
