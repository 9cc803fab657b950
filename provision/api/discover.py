"""What is on a Proxmox VE host, as an inventory; nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from provision.api.run_identity import who
from provision.connections.contracts import ShellConnection
from provision.contracts.query import Unknown
from provision.hosts.driver import HostDriver
from provision.hosts.facts import HostFacts
from provision.hosts.queries.shell import Shell
from provision.hosts.query_kinds import HOST_KINDS
from provision.proxmox import discovery, vm_files
from provision.proxmox.discovery import Discovered
from provision.proxmox.first_inventory import Trusted, bridge_of, discovered_inventory, network_of
from provision.proxmox.setup import QUERIES, choose, read_host
from provision.proxmox.vm_files import VmFile
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent

_CERTIFICATE = Shell(
    "for file in /etc/pve/local/pveproxy-ssl.pem /etc/pve/local/pve-ssl.pem; do"
    ' [ -r "$file" ] && exec openssl x509 -noout -fingerprint -sha256 -in "$file"; done'
)
"""The certificate that pveproxy shows: its own, or that of the cluster's authority."""
_HOST_KEY = Shell("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")


@dataclass(frozen=True, slots=True)
class Discovery:
    """What is on a host.

    Args:
        node: its node name.
        vms: its VMs as nodes.
        has_token: whether the token of the inventory exists.
        text: the inventory.
    """

    node: str
    vms: tuple[Discovered, ...]
    has_token: bool
    text: str


def discover(connection: ShellConnection, name: str, login: Trusted, cancel: Cancel) -> Discovery:
    """Ask a host what it is and has: one execution, and one more for addresses that it did not see.

    Args:
        connection: to the host, as root.
        name: of the inventory and of the token.
        login: how the host is reached; host key and certificate are read from the host itself.
        cancel: ends it early.

    Raises:
        Permanent: it is not Proxmox VE, or its VMs cannot be read.
        ProvisionError: it does not answer.
    """
    driver = HostDriver(login.address, connection, HOST_KINDS, who=who())
    queries = (vm_files.VM_FILES, vm_files.CONTAINERS, vm_files.NEIGHBOURS, _CERTIFICATE, _HOST_KEY)
    snapshot = driver.answer(QUERIES | frozenset(queries), cancel)
    host, facts = read_host(snapshot, login.address), HostFacts(snapshot)
    vms = vm_files.read(facts)
    if isinstance(vms, Unknown):
        raise Permanent(Diagnostic("UNKNOWN", f"{login.address}: {vms.reason}", login.address))
    addresses = _addresses(vms, facts)
    silent = [vm.vmid for vm in vms if vm.vmid not in addresses and vm.value("agent")]
    if silent:
        asked = {vmid: vm_files.guest_query(vmid) for vmid in silent}
        answers = HostFacts(driver.answer(frozenset(asked.values()), cancel))
        macs = {vm.vmid: discovery.mac_of(vm) for vm in vms}
        said = {vmid: answers.output(query) for vmid, query in asked.items()}
        by_agent = {vmid: discovery.agent_address(text, macs[vmid]) for vmid, text in said.items()}
        addresses |= {vmid: address for vmid, address in by_agent.items() if address}
    has_token = name in host.tokens and Path(login.token_file).expanduser().exists()
    trusted = replace(
        login,
        host_key=_fingerprint(facts.output(_HOST_KEY)),
        certificate=facts.output(_CERTIFICATE).strip().rpartition("=")[2],
        token=name,
    )
    network = network_of(host, login.address)
    nodes = discovery.discovered(discovery.key_of(host.node), bridge_of(host), network, vms, addresses)
    text = discovered_inventory(name, host, choose(host), trusted, nodes, _remarks(vms, facts))
    return Discovery(host.node, nodes, has_token, text)


def _addresses(vms: tuple[VmFile, ...], facts: HostFacts) -> dict[int, str]:
    """Return addresses by VMID: those that cloud-init sets, and those that the host saw."""
    neighbours: Mapping[str, str] = vm_files.neighbours(facts)
    known = {vm.vmid: discovery.static_address(vm) or neighbours.get(discovery.mac_of(vm), "") for vm in vms}
    return {vmid: address for vmid, address in known.items() if address}


def _fingerprint(line: str) -> str:
    """Return the fingerprint from a line of `ssh-keygen -l`: size, fingerprint, comment, type."""
    return next((word for word in line.split() if word.startswith("SHA256:")), "")


def _remarks(vms: tuple[VmFile, ...], facts: HostFacts) -> list[str]:
    """Return what no node stands for."""
    templates = [str(vm.vmid) for vm in vms if vm.value("template") == "1"]
    files = facts.output(vm_files.CONTAINERS).split()
    containers = [file.removesuffix(".conf") for file in files if file.endswith(".conf")]
    remarks = [f"Templates: {', '.join(templates)}"] if templates else []
    return remarks + ([f"Containers: {', '.join(containers)}"] if containers else [])
