"""Rules about the network of a node that joins: name servers of pods, the API's port, folders of CNI."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from provision.contracts.rule import Evidence, Finding, Rule
from provision.hosts import names
from provision.hosts.view import View
from provision.inventory import Inventory
from provision.inventory.models.node import Node
from provision.k3s import cni_folders, configuration
from provision.k3s.join_network import (
    BLOCKED,
    MOST_CHARACTERS,
    MOST_DOMAINS,
    MOST_SERVERS,
    REFUSED,
    SILENT,
    VXLAN,
    JoinNetwork,
    JoinNetworkStatus,
)
from provision.values.diagnostics import Diagnostic, Severity

FILE = "a file of reachable name servers: k3s.config: { resolv-conf: /etc/PATH }"

Look = Callable[[Inventory, Node, JoinNetworkStatus], Iterator[Diagnostic]]


def resolv_conf(inventory: Inventory) -> str:
    """Return the resolv.conf that is declared for the kubelet, empty where k3s chooses."""
    config = inventory.k3s.config if inventory.k3s is not None else {}
    arguments = config.get("kubelet-arg", ())
    for text in arguments if isinstance(arguments, list | tuple) else (arguments,):
        key, _, value = str(text).lstrip("-").partition("=")
        if key == "resolv-conf":
            return value
    return str(config.get("resolv-conf", ""))


def query(inventory: Inventory, node: Node) -> JoinNetwork:
    """Return what a node is asked about its network."""
    servers = (server.address for server in configuration.servers(inventory) if server.name != node.name)
    return JoinNetwork(tuple(map(str, servers)), resolv_conf(inventory))


def _status(evidence: Evidence, node: Node) -> JoinNetworkStatus | None:
    snapshot = evidence.snapshots.get(names.ssh(node.name))
    if snapshot is None or node.k3s is None or evidence.inventory.k3s is None:
        return None
    answer = View(snapshot).answer(query(evidence.inventory, node))
    return answer if isinstance(answer, JoinNetworkStatus) else None


def _look(evidence: Evidence) -> Iterator[tuple[Node, JoinNetworkStatus]]:
    for node in evidence.inventory.nodes.values():
        status = _status(evidence, node)
        if status is not None and evidence.covers(names.ssh(node.name)):
            yield node, status


def _problem(inventory: Inventory, node: Node, code: str, summary: str, **more: Any) -> Diagnostic:
    source = inventory.source(("nodes", node.name, "k3s"))
    untouched = "Nothing was changed."
    return Diagnostic(code, f"{node.name}: {summary}", node.name, source=source, untouched=untouched, **more)


def _each(look: Look, evidence: Evidence) -> list[Finding]:
    inventory = evidence.inventory
    return [problem for node, status in _look(evidence) for problem in look(inventory, node, status)]


def resolver_files(inventory: Inventory, node: Node, status: JoinNetworkStatus) -> Iterator[Diagnostic]:
    """Refuse files that k3s would not give to pods, and a declared one without servers.

    The machines of a lab have no name servers.
    """
    file = status.resolver
    if inventory.lab is not None:
        return
    if file is None:
        yield _problem(
            inventory,
            node,
            "NODE_DNS_LOOPBACK",
            "pods cannot use its name servers, or it has none: they would ask 8.8.8.8",
            evidence=tuple(
                f"{file.path}: {', '.join(file.servers) or 'no name server'}"
                for file in status.files
                if file.readable
            ),
            remedy=f"declare {FILE}",
        )
    elif not file.readable or not file.servers:
        fault = "has no name server" if file.readable else "does not exist"
        yield _problem(
            inventory,
            node,
            "NODE_DNS_FILE",
            f"the declared resolv-conf {file.path} {fault}",
            remedy=f"write it (`files:` of the node), or declare another one: {FILE}",
        )


def resolver_answers(inventory: Inventory, node: Node, status: JoinNetworkStatus) -> Iterator[Diagnostic]:
    """Refuse name servers that answer nothing; name what the kubelet would leave out."""
    file = status.resolver
    if file is None or not file.servers or inventory.lab is not None:
        return
    used, unused = file.servers[:MOST_SERVERS], file.servers[MOST_SERVERS:]
    silent = [server for server in used if status.names.get(server) in BLOCKED | {REFUSED}]
    if silent:
        all_silent = len(silent) == len(used)
        yield _problem(
            inventory,
            node,
            "NODE_DNS_SILENT",
            f"{'no name server' if all_silent else 'a name server'} of {file.path}"
            f" {'answers' if all_silent else 'does not answer'}: {', '.join(silent)}",
            severity=Severity.ERROR if all_silent else Severity.WARNING,
            remedy=f"correct it on the node, or declare {FILE}",
        )
    left_out = [f"name server {server}: the kubelet takes {MOST_SERVERS}" for server in unused]
    if file.domains > MOST_DOMAINS or file.characters > MOST_CHARACTERS:
        limits = f"the kubelet takes {MOST_DOMAINS} with {MOST_CHARACTERS} characters"
        left_out.append(f"{file.domains} search domains with {file.characters} characters: {limits}")
    if left_out:
        yield _problem(
            inventory,
            node,
            "NODE_DNS_LIMITS",
            f"{file.path} has more than pods can use",
            severity=Severity.WARNING,
            evidence=tuple(left_out),
            remedy=f"shorten it, or declare {FILE}",
        )


def servers_reached(evidence: Evidence) -> list[Finding]:
    """Refuse a node that gets no connection to a server whose k3s runs and which answers provision itself."""
    inventory = evidence.inventory
    servers = {str(server.address): server for server in configuration.servers(inventory)}
    findings: list[Finding] = []
    for node, status in _look(evidence):
        for address, word in status.api.items():
            server = servers.get(address)
            other = _status(evidence, server) if server is not None else None
            if server is None or other is None or not other.runs or word not in BLOCKED:
                continue
            why = "does not answer" if word == SILENT else "has no route, or a firewall prohibits it"
            findings.append(
                _problem(
                    inventory,
                    node,
                    "K3S_API_UNREACHABLE",
                    f"port {configuration.PORT} of {server.name} ({address}) {why}",
                    remedy=f"accept TCP {configuration.PORT} and UDP {VXLAN} between all nodes",
                )
            )
    return findings


def container_networks(inventory: Inventory, node: Node, status: JoinNetworkStatus) -> Iterator[Diagnostic]:
    """Refuse folders other than those where programs and networks of pods are put, and foreign networks."""
    config = inventory.k3s.config if inventory.k3s is not None else {}
    needs = inventory.rdma is not None and bool(inventory.rdma.networks) and bool(node.rails)
    moved = []
    programs = [folder for _, folder in status.programs]
    if programs and cni_folders.PROGRAMS not in programs:
        moved.append(f"programs: {', '.join(programs)}, not {cni_folders.PROGRAMS}")
    folders = [folder for _, folder in status.configuration]
    if folders and cni_folders.CONFIGURATION not in folders:
        moved.append(f"configuration: {', '.join(folders)}, not {cni_folders.CONFIGURATION}")
    other = next((key for key in ("container-runtime-endpoint", "docker") if config.get(key)), "")
    if other:
        moved.append(f"k3s.config: {other}: another container runtime has folders of its own")
    if moved and needs:
        yield _problem(
            inventory,
            node,
            "CNI_FOLDER_MOVED",
            "its containerd looks for CNI elsewhere than networks of pods need",
            evidence=tuple(moved),
            remedy="remove `bin_dir` and `conf_dir` from its config.toml.tmpl, or upgrade k3s: k3s.version",
        )
    first = status.networks[0] if status.networks else ""
    if first and not _is_own(first) and config.get("flannel-backend") != "none":
        yield _problem(
            inventory,
            node,
            "CNI_CONFIG_FOREIGN",
            f"pods would get the network of {first}, which another CNI has left or wrote",
            evidence=tuple(f"{cni_folders.CONFIGURATION}/{name}" for name in status.networks),
            remedy=f"remove {first} there, or declare k3s.config: {{ flannel-backend: none }}",
        )


def _is_own(name: str) -> bool:
    return "flannel" in name or "multus" in name


RULES = (
    Rule(
        ("NODE_DNS_LOOPBACK", "NODE_DNS_FILE"),
        "k3s would not give a node's resolv.conf to pods: a name server in it is a loopback or link-local"
        " address, or none is there; or the declared file is not there",
        "set `k3s.config: { resolv-conf: FILE }` to a file of reachable servers",
        partial(_each, resolver_files),
    ),
    Rule(
        ("NODE_DNS_SILENT", "NODE_DNS_LIMITS"),
        "no name server that pods would get answers the node (one of several: a warning); or the file has"
        " more name servers or search domains than the kubelet takes (a warning)",
        "correct the name servers of the node, or `k3s.config: { resolv-conf: FILE }`",
        partial(_each, resolver_answers),
    ),
    Rule(
        ("K3S_API_UNREACHABLE",),
        "a node gets no connection to port 6443 of a server that runs",
        "accept TCP 6443 and UDP 8472 between all nodes of the cluster",
        servers_reached,
    ),
    Rule(
        ("CNI_FOLDER_MOVED", "CNI_CONFIG_FOREIGN"),
        "containerd of a node with networks of pods looks for CNI in other folders; or the configuration"
        " of another CNI comes before flannel's",
        "remove `bin_dir` and `conf_dir` from config.toml.tmpl; remove the file that is named",
        partial(_each, container_networks),
    ),
)
