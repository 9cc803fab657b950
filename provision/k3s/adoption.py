"""A k3s that is there already: settings that would be lost when it becomes ours, and those that would win."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from provision.contracts.rule import Evidence, Finding, Rule
from provision.hosts import names
from provision.hosts.queries.file import FileStatus
from provision.hosts.view import View
from provision.inventory import Inventory
from provision.inventory.models.node import Node
from provision.k3s import configuration, paths
from provision.k3s.queries import Machine, MachineStatus
from provision.k3s.settings_query import K3sSettings, Place, SettingPlaces
from provision.values.diagnostics import Diagnostic

SAID_ELSEWHERE = frozenset(
    [
        "agent-token",
        "agent-token-file",
        "cluster-cidr",
        "cluster-init",
        "disable",
        "flannel-iface",
        "node-ip",
        "node-label",
        "node-name",
        "node-taint",
        "server",
        "service-cidr",
        "tls-san",
        "token",
        "token-file",
        "write-kubeconfig-mode",
    ]
)
"""Settings whose values follow from other keys of the inventory."""
_ALWAYS_OURS = frozenset({"token", "agent-token", "config", "data-dir", "ExecStart"})
"""Settings that our file has under another name, or that would keep it from being read."""
DATA_DIR = "data-dir"


def settings(evidence: Evidence) -> list[Finding]:
    """Refuse to take over a k3s whose settings the inventory does not declare, or that others override."""
    inventory = evidence.inventory
    findings: list[Finding] = []
    for node in inventory.nodes.values():
        system = names.ssh(node.name)
        snapshot = evidence.snapshots.get(system)
        if node.k3s is None or inventory.k3s is None or snapshot is None or not evidence.covers(system):
            continue
        answer = View(snapshot).answer(K3sSettings())
        if isinstance(answer, SettingPlaces):
            findings += _of_node(inventory, node, answer)
    return findings


def _of_node(inventory: Inventory, node: Node, answer: SettingPlaces) -> Iterator[Diagnostic]:
    lost = [place for place in answer.places if not place.lasts and _lost(inventory, place)]
    if lost:
        keys = sorted({key for place in lost for key in _lost(inventory, place)})
        remedy = "declare them under k3s.config, then run the command again: the configuration becomes ours"
        if DATA_DIR in keys:
            other = "`cluster: { kubeconfig: FILE }`"
            remedy = f"move its data to {paths.DATA}, or use the cluster as it is: {other}"
        yield _problem(
            inventory,
            node,
            "K3S_SETTINGS_LOST",
            f"its k3s has settings that the inventory does not declare: {', '.join(keys)}",
            [f"{place.file}: {', '.join(_lost(inventory, place))}" for place in lost],
            remedy,
        )
    ours = _ours(inventory, node)
    winning = [(place, [key for key in place.keys if key in ours]) for place in answer.places if place.lasts]
    for place, keys in winning:
        if keys:
            yield _problem(
                inventory,
                node,
                "K3S_SETTINGS_SHADOWED",
                f"{place.file} overrides what the inventory declares: {', '.join(keys)}",
                (),
                f"remove these lines from {place.file}",
            )


def _lost(inventory: Inventory, place: Place) -> list[str]:
    declared = inventory.k3s.config if inventory.k3s is not None else {}
    plain = dict.fromkeys(key.rstrip("+") for key in place.keys)
    return [key for key in plain if key not in declared and key not in SAID_ELSEWHERE and key != "config"]


def _ours(inventory: Inventory, node: Node) -> frozenset[str]:
    """Return the settings of our file; a key with `+` adds to its list and overrides nothing."""
    if inventory.k3s is None:
        return _ALWAYS_OURS
    if node.k3s == "server":
        config = configuration.server_config(inventory, node, inventory.k3s, "eth0", "")
    else:
        config = configuration.agent_config(inventory, node, inventory.k3s, "eth0")
    return _ALWAYS_OURS.union(config, configuration.registration(node))


NETWORKS = ("cluster-cidr", "service-cidr")


def networks(evidence: Evidence) -> list[Finding]:
    """Refuse other networks of pods and services than those with which a cluster was made.

    Kubernetes gives each node and service its address once (k3s-io/k3s#6394): a server with other networks
    does not start, or strands what is there.
    """
    inventory = evidence.inventory
    k3s = inventory.k3s
    findings: list[Finding] = []
    for node in inventory.nodes.values():
        snapshot = evidence.snapshots.get(names.ssh(node.name))
        if node.k3s != "server" or k3s is None or snapshot is None:
            continue
        config, password, machine = (
            View(snapshot).answer(query) for query in (paths.OWN_CONFIG, paths.PASSWORD, Machine())
        )
        if not isinstance(password, FileStatus) or not password.exists:
            continue
        present = _networks_of(
            config if isinstance(config, bytes) else b"",
            machine.flags if isinstance(machine, MachineStatus) else (),
        )
        declared = dict(zip(NETWORKS, (k3s.pod_cidr, k3s.service_cidr), strict=True))
        wrong = [key for key, value in present.items() if value != declared[key]]
        if not wrong:
            continue
        dual = any(":" in present[key] for key in wrong)
        remedy = "declare the present ones: k3s.pod_cidr, k3s.service_cidr"
        findings.append(
            _problem(
                inventory,
                node,
                "K3S_NETWORK_CHANGE",
                "its cluster was made with IPv6, which is unsupported"
                if dual
                else "its cluster was made with other networks of pods or services than declared",
                [f"{key}: {present[key]}, declared {declared[key]}" for key in wrong],
                "use the cluster as it is: `cluster: { kubeconfig: FILE }`" if dual else remedy,
            )
        )
    return findings


def _networks_of(config: bytes, flags: Sequence[str]) -> dict[str, str]:
    """Return the networks that a configuration names, and those of flags, which win."""
    import yaml  # noqa: PLC0415 - slow to import

    try:
        values = yaml.safe_load(config)
    except (yaml.YAMLError, UnicodeError):
        values = None
    found: dict[str, str] = {}
    for key in NETWORKS:
        value = values.get(key) if isinstance(values, dict) else None
        words = value if isinstance(value, list) else [] if value is None else [value]
        for index, flag in enumerate(flags):
            name, equals, text = flag.partition("=")
            if name == f"--{key}":
                words = [text if equals else next(iter(flags[index + 1 :]), "")]
        if words:
            found[key] = ",".join(map(str, words)).replace(" ", "")
    return found


def _problem(
    inventory: Inventory, node: Node, code: str, summary: str, evidence: list[str] | tuple[()], remedy: str
) -> Diagnostic:
    return Diagnostic(
        code,
        f"{node.name}: {summary}",
        node.name,
        evidence=tuple(evidence),
        source=inventory.source(("nodes", node.name, "k3s")),
        untouched="Nothing was changed.",
        remedy=remedy,
    )


RULES = (
    Rule(
        ("K3S_NETWORK_CHANGE",),
        "the networks of pods or services of a cluster differ from the declared ones, or are IPv6, which is"
        " unsupported",
        "declare the present ones, `k3s.pod_cidr` and `k3s.service_cidr`",
        networks,
    ),
    Rule(
        ("K3S_SETTINGS_LOST", "K3S_SETTINGS_SHADOWED"),
        "a k3s that was installed otherwise has settings in files or the environment that are not declared;"
        " another file or variable overrides ours",
        "declare them under `k3s.config`; remove the lines from the file that is named",
        settings,
    ),
)
