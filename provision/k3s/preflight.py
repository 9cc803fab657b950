"""Rules about machines that become nodes of the cluster: what k3s itself would stumble over, said before."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from ipaddress import IPv4Network, ip_interface
from typing import Any

from provision.contracts.change import Op
from provision.contracts.rule import Evidence, Finding, Rule
from provision.contracts.snapshot import Snapshot
from provision.hosts import names
from provision.hosts.queries.file import FileStatus
from provision.hosts.view import View
from provision.inventory import Inventory
from provision.inventory.models.node import Node
from provision.k3s import adoption, configuration, join_preflight, paths
from provision.k3s.adoption import SAID_ELSEWHERE
from provision.k3s.queries import Machine, MachineStatus
from provision.k3s.resources.membership import joined_address
from provision.k3s.settings_query import K3sSettings
from provision.values.diagnostics import Diagnostic, Severity

SKEW = 30.0
"""Seconds: a certificate that was made by a clock ahead is not valid yet on a node behind it."""
CONTROLLERS = ("cpu", "cpuset", "memory")
"""Control groups without which k3s ends (pkg/cgroups of k3s, `failed to find memory cgroup (v2)`)."""
BELOW_OVERLAY = {"nfs": Severity.ERROR, "overlayfs": Severity.ERROR, "fuseblk": Severity.WARNING}
BELOW_OVERLAY |= {"zfs": Severity.WARNING}
"""Filesystems that cannot hold an overlay's upper layer, or not in each release (k3s-io/k3s#66, #10512)."""
IMAGES_GO = 85
"""Percent of a disk at which the kubelet deletes images, imported ones as well (k3s-io/k3s#6290, #1552)."""
INOTIFY = 512
"""Instances for one user: the kubelet and the GPU operators' pods need more than the kernel's 128."""
UNTOUCHED = "Nothing was changed."

Look = Callable[[Inventory, Node, MachineStatus], Iterator[Diagnostic]]


def _nodes(evidence: Evidence) -> Iterator[tuple[Node, Snapshot, MachineStatus]]:
    """Yield the nodes of the cluster that have answered; others are looked at when they do."""
    for node in evidence.inventory.nodes.values():
        system = names.ssh(node.name)
        snapshot = evidence.snapshots.get(system)
        if node.k3s is None or evidence.inventory.k3s is None or snapshot is None:
            continue
        status = View(snapshot).answer(Machine())
        if evidence.covers(system) and isinstance(status, MachineStatus):
            yield node, snapshot, status


def _each(look: Look, evidence: Evidence) -> list[Finding]:
    inventory = evidence.inventory
    return [found for node, _, status in _nodes(evidence) for found in look(inventory, node, status)]


def _problem(inventory: Inventory, node: Node, code: str, summary: str, **more: Any) -> Diagnostic:
    source = inventory.source(("nodes", node.name, "k3s"))
    return Diagnostic(code, f"{node.name}: {summary}", node.name, source=source, untouched=UNTOUCHED, **more)


def flags(inventory: Inventory, node: Node, status: MachineStatus) -> Iterator[Diagnostic]:
    """Refuse to take over a unit whose flags would be lost: flags replace whole lists of config.yaml."""
    words = [word.partition("=")[0].lstrip("-") for word in status.flags if word.startswith("--")]
    words += ["config" for word in status.flags if word == "-c"]
    declared = inventory.k3s.config if inventory.k3s is not None else {}
    lost = sorted(set(words) - set(declared) - SAID_ELSEWHERE)
    if lost:
        yield _problem(
            inventory,
            node,
            "K3S_FLAGS_IN_UNIT",
            f"its k3s was started with flags that the inventory does not declare: {', '.join(lost)}",
            evidence=(" ".join(_masked(status.flags)),),
            remedy="declare them under k3s.config, then run the command again: the unit becomes ours",
        )


def _masked(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the words of a command line without the tokens in it."""
    hidden = False
    for word in words:
        name, equals, _ = word.partition("=")
        if "token" in name and equals:
            yield f"{name}=***"
        else:
            yield "***" if hidden else word
        hidden = word.startswith("--") and "token" in word and not equals


def kubernetes(inventory: Inventory, node: Node, status: MachineStatus) -> Iterator[Diagnostic]:
    """Refuse nodes of another Kubernetes; name a container runtime that nobody declared."""
    others = [text for text in status.foreign if not text.startswith("docker")]
    if others:
        yield _problem(
            inventory,
            node,
            "KUBERNETES_PRESENT",
            f"another Kubernetes is installed: {', '.join(others)}",
            remedy="remove it from the node, or leave the node out of the inventory",
        )
    elif status.foreign and node.container_runtime is None:
        yield _problem(
            inventory,
            node,
            "KUBERNETES_PRESENT",
            f"another container runtime is installed: {', '.join(status.foreign)}",
            severity=Severity.WARNING,
            remedy="declare container_runtime for the node if it stays: k3s brings its own",
        )


def routes(inventory: Inventory, node: Node, status: MachineStatus) -> Iterator[Diagnostic]:
    """Refuse a node without a default route: k3s does not start, even where its address is given."""
    if not status.addresses:
        return
    usable = {device for device, address in status.addresses if not ip_interface(address).ip.is_link_local}
    if not any(to == "default" and device in usable for to, device in status.routes):
        yield _problem(
            inventory,
            node,
            "NODE_NO_DEFAULT_ROUTE",
            "it has no default route through a device with a global address",
            evidence=tuple(f"{to} dev {device}" for to, device in status.routes),
            remedy="add a default route; without a router, one through a dummy device with a private address",
        )


def networks(inventory: Inventory, node: Node, status: MachineStatus) -> Iterator[Diagnostic]:
    """Refuse pod and service networks that the host reaches by another way already."""
    k3s = inventory.k3s
    if k3s is None:
        return
    for what, text in (("pods", k3s.pod_cidr), ("services", k3s.service_cidr)):
        own = IPv4Network(text)
        for to, device in status.routes:
            if to != "default" and _network(to).overlaps(own):
                yield _problem(
                    inventory,
                    node,
                    "POD_NETWORK_ROUTED",
                    f"the network of {what} {own} overlaps its route to {to} (device {device})",
                    remedy=f"declare another network: k3s.{'pod' if what == 'pods' else 'service'}_cidr",
                )


def addresses(inventory: Inventory, node: Node, status: MachineStatus) -> Iterator[Diagnostic]:
    """Name an address that may change: etcd knows its members by address."""
    if not status.addresses:
        return
    if not status.interface_of(node.address):
        held = ", ".join(f"{address} ({device})" for device, address in status.addresses)
        yield _problem(
            inventory,
            node,
            "NODE_ADDRESS_ABSENT",
            f"none of its devices has the address {node.address}",
            evidence=(f"it has {held}",),
            remedy="correct nodes.NAME.address, or give the machine that address",
        )
    elif node.k3s == "server" and node.address in status.dynamic and inventory.dhcp is None:
        yield _problem(
            inventory,
            node,
            "SERVER_ADDRESS_DYNAMIC",
            f"the address {node.address} of a server comes from a DHCP lease and may change",
            severity=Severity.WARNING,
            remedy="reserve it on the router, or declare network.dhcp",
        )


def firewall(inventory: Inventory, node: Node, status: MachineStatus) -> Iterator[Diagnostic]:
    """Refuse rules that k3s cannot read; name rules that drop what pods send."""
    for name, code, lines in status.filters:
        broken = [line for line in lines if code and "incompatible" in line]
        if broken:
            yield _problem(
                inventory,
                node,
                "HOST_FIREWALL",
                f"{name} cannot read the host's own firewall rules, and k3s would fail in the same way",
                evidence=tuple(broken),
                remedy="run `nft flush ruleset`, or declare k3s.config: { prefer-bundled-bin: true }",
            )
        elif lines and not code:
            yield _problem(
                inventory,
                node,
                "HOST_FIREWALL",
                f"{name} drops packets, maybe those of pods",
                severity=Severity.WARNING,
                evidence=lines[:5],
                remedy="accept the pod and service networks, or switch the firewall off",
            )


def kernel(inventory: Inventory, node: Node, status: MachineStatus) -> Iterator[Diagnostic]:
    """Refuse control groups of version 1; name limits that GPU operators reach. A lab shares its kernel."""
    if inventory.lab is not None:
        return
    if status.cgroup == 1:
        yield _problem(
            inventory,
            node,
            "CGROUP_V1",
            "it uses control groups of version 1, which the kubelet does not accept any more",
            remedy="boot it with systemd.unified_cgroup_hierarchy=1, or install a current release",
        )
    missing = [name for name in CONTROLLERS if name not in status.controllers] if status.controllers else []
    if missing:
        yield _problem(
            inventory,
            node,
            "CGROUP_CONTROLLER_MISSING",
            f"its kernel has no control group {', '.join(missing)}, without which k3s ends",
            remedy="boot it with `cgroup_enable=memory`, and without `cgroup_disable=`",
        )
    key = "fs.inotify.max_user_instances"
    if node.wants_gpu and 0 < status.inotify < INOTIFY and key not in node.sysctl:
        yield _problem(
            inventory,
            node,
            "INOTIFY_LIMIT",
            f"{key} is {status.inotify}: the GPU operator's pods end with `too many open files`",
            severity=Severity.WARNING,
            remedy=f"declare it: sysctl: {{ {key}: 8192 }}",
        )
    if not status.overlay:
        yield _problem(
            inventory,
            node,
            "OVERLAYFS_MISSING",
            "its kernel has no overlayfs, which containers need",
            remedy="load the module overlay, or set k3s.config: { snapshotter: native }",
        )


def data(inventory: Inventory, node: Node, status: MachineStatus) -> Iterator[Diagnostic]:
    """Refuse a filesystem for k3s's data that cannot hold images, or one that is full. A lab has no disks."""
    if inventory.lab is not None:
        return
    config = inventory.k3s.config if inventory.k3s is not None else {}
    severity = BELOW_OVERLAY.get(status.filesystem)
    if severity is not None and "snapshotter" not in config:
        yield _problem(
            inventory,
            node,
            "K3S_FILESYSTEM",
            f"{paths.DATA} is on {status.filesystem}, on which overlayfs may not work",
            severity=severity,
            remedy="mount ext4 or XFS there, or set k3s.config: { snapshotter: native }",
        )
    if status.used >= IMAGES_GO:
        yield _problem(
            inventory,
            node,
            "K3S_DISK_FULL",
            f"the disk of {paths.DATA} is {status.used} % full: the kubelet deletes images at {IMAGES_GO} %",
            severity=Severity.WARNING,
            remedy=f"free some space, or mount a larger disk; see: du -xhd 1 {paths.DATA}",
        )


def skew(inventory: Inventory, node: Node, status: MachineStatus) -> Iterator[Diagnostic]:
    """Refuse a release that skips a minor version, or goes back: the datastore is converted only forwards."""
    declared = _release(inventory.k3s.version) if inventory.k3s is not None else None
    installed = _release(status.version)
    if declared is None or installed is None or declared == installed:
        return
    if declared < installed:
        summary = f"k3s {status.version} is installed, and an older release is declared"
    elif declared[0] != installed[0] or declared[1] > installed[1] + 1:
        summary = f"k3s {status.version} is installed, and the declared release skips a minor version"
    else:
        return
    following = f"v{installed[0]}.{installed[1] + 1}"
    remedy = f"declare a release of {following} first: k3s.version"
    if declared < installed:
        remedy = f"declare k3s.version: {status.version}"
    yield _problem(inventory, node, "K3S_VERSION_SKEW", summary, remedy=remedy)


def _release(version: str) -> tuple[int, ...] | None:
    match = re.match(r"v([0-9]+)\.([0-9]+)\.([0-9]+)", version)
    return tuple(map(int, match.groups())) if match is not None else None


def datastore(evidence: Evidence) -> list[Finding]:
    """Refuse to replace the only server: its disk has the datastore, and nothing else has it."""
    servers = configuration.servers(evidence.inventory)
    if len(servers) != 1 or evidence.inventory.k3s is None:
        return []
    name = servers[0].name
    replaced = any(
        resource.key.kind == "vm"
        and resource.key.name == name
        and any(change.op is Op.REPLACE for change in evidence.changes(resource))
        for resource in evidence.resources
    )
    if not replaced:
        return []
    file = evidence.inventory.file or "INVENTORY"
    return [
        _problem(
            evidence.inventory,
            servers[0],
            "K3S_DATASTORE_LOST",
            "it is the only server, and its new disk would have no datastore: the cluster would be lost",
            remedy=f"take the mark back: `provision rebuild {file} {name} --undo`, or use three servers",
        )
    ]


def moved(evidence: Evidence) -> list[Finding]:
    """Refuse another address of the only server: its datastore knows it by the one under which it began."""
    inventory = evidence.inventory
    servers = configuration.servers(inventory)
    if len(servers) != 1 or inventory.k3s is None:
        return []
    server = servers[0]
    snapshot = evidence.snapshots.get(names.ssh(server.name))
    if snapshot is None:
        return []
    config, password = (View(snapshot).answer(query) for query in (paths.OWN_CONFIG, paths.PASSWORD))
    former = joined_address(config if isinstance(config, bytes) else None)
    has_joined = isinstance(password, FileStatus) and password.exists
    if not has_joined or former in ("", server.address):
        return []
    return [
        _problem(
            inventory,
            server,
            "K3S_SERVER_MOVED",
            f"it is the only server and has joined as {former}: if it left, the cluster would be lost",
            remedy=f"give it the address {former} again, or make a new cluster: `provision destroy`",
        )
    ]


def clocks(evidence: Evidence) -> list[Finding]:
    """Refuse clocks that differ before certificates are made; a time daemon may correct them before."""
    findings: list[Finding] = []
    for node, snapshot, _ in _nodes(evidence):
        if abs(snapshot.skew) > SKEW:
            findings.append(
                _problem(
                    evidence.inventory,
                    node,
                    "CLOCK_SKEW",
                    f"its clock differs by {snapshot.skew:+.0f} s from this machine's",
                    severity=Severity.WARNING if node.ntp else Severity.ERROR,
                    remedy="declare time servers (`ntp:`), or set the clock: `timedatectl set-ntp true`",
                )
            )
    return findings


def _network(text: str) -> IPv4Network:
    try:
        return IPv4Network(text, strict=False)
    except ValueError:
        return IPv4Network("255.255.255.255")  # a route of another kind (`unreachable ...`)


def evidence(inventory: Inventory) -> Mapping[str, tuple[Any, ...]]:
    """Return the questions that these rules look at, by system."""
    nodes = inventory.nodes.values() if inventory.k3s is not None else ()
    return {
        names.ssh(node.name): (
            Machine(),
            K3sSettings(),
            join_preflight.query(inventory, node),
            paths.OWN_CONFIG,
            paths.PASSWORD,
        )
        for node in nodes
        if node.k3s is not None
    }


def _rule(look: Look, codes: tuple[str, ...], when: str, remedy: str, severity: Severity) -> Rule:
    return Rule(codes, when, remedy, partial(_each, look), severity)


_E = Severity.ERROR
RULES = (
    *adoption.RULES,
    _rule(
        flags,
        ("K3S_FLAGS_IN_UNIT",),
        "a k3s that provision did not install has flags that the inventory does not declare",
        "declare them under `k3s.config`",
        _E,
    ),
    _rule(
        kubernetes,
        ("KUBERNETES_PRESENT",),
        "another Kubernetes is installed on a node (another container runtime is a warning)",
        "remove it, or declare `container_runtime`",
        _E,
    ),
    *join_preflight.RULES,
    _rule(
        routes,
        ("NODE_NO_DEFAULT_ROUTE",),
        "a node has no default route through a device with a global address",
        "add a default route: `ip route add default via ROUTER`",
        _E,
    ),
    _rule(
        networks,
        ("POD_NETWORK_ROUTED",),
        "the pod or service network overlaps a route of a node",
        "declare another `k3s.pod_cidr` or `k3s.service_cidr`",
        _E,
    ),
    _rule(
        addresses,
        ("NODE_ADDRESS_ABSENT", "SERVER_ADDRESS_DYNAMIC"),
        "no device has the node's address; a server's address comes from a lease (a warning)",
        "correct `nodes.NAME.address`; reserve the address on the router",
        _E,
    ),
    _rule(
        firewall,
        ("HOST_FIREWALL",),
        "the firewall's rules cannot be read by k3s's iptables, or drop packets (a warning)",
        "remove the rules: `nft flush ruleset`, or set `k3s.config: { prefer-bundled-bin: true }`",
        _E,
    ),
    _rule(
        data,
        ("K3S_FILESYSTEM", "K3S_DISK_FULL"),
        "the data of k3s would be on a filesystem without overlayfs (ZFS: a warning), or its disk is"
        " 85 % full (a warning)",
        "mount ext4 or XFS at /var/lib/rancher, or free some space there",
        _E,
    ),
    _rule(
        kernel,
        ("CGROUP_V1", "CGROUP_CONTROLLER_MISSING", "INOTIFY_LIMIT", "OVERLAYFS_MISSING"),
        "a node has control groups of version 1, lacks a control group that k3s needs, or has no overlayfs;"
        " few inotify instances are a warning",
        "boot with `systemd.unified_cgroup_hierarchy=1`, and without `cgroup_disable=`; for inotify, declare"
        " `sysctl:` of the node",
        _E,
    ),
    _rule(
        skew,
        ("K3S_VERSION_SKEW",),
        "the declared release of k3s is older than the installed one, or skips a minor version",
        "declare the next minor version in `k3s.version`",
        _E,
    ),
    Rule(
        ("K3S_DATASTORE_LOST",),
        "the only server of a cluster would be created again, with an empty disk",
        "take the mark back: `provision rebuild INVENTORY NODE --undo`",
        datastore,
        of_resources=True,
    ),
    Rule(
        ("K3S_SERVER_MOVED",),
        "the only server of a cluster is declared with another address than it has joined under",
        "give it its former address again",
        moved,
    ),
    Rule(
        ("CLOCK_SKEW",),
        "a node's clock differs by more than 30 s (a warning if time servers are declared)",
        "declare `ntp:`, or set the clock: `timedatectl set-ntp true`",
        clocks,
    ),
)
