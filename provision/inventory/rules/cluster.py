"""k3s, GPU sharing, what is expected of cards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Network

from provision.inventory.models.cluster import K3s, Sharing
from provision.inventory.models.inventory import Inventory
from provision.inventory.rules.findings import Findings
from provision.inventory.tree import KeyPath
from provision.values.crontab import longest_gap

_OWNED = frozenset(
    [
        "agent-token",
        "agent-token-file",
        "cluster-cidr",
        "cluster-init",
        "data-dir",
        "flannel-iface",
        "node-ip",
        "node-label",
        "node-name",
        "node-taint",
        "server",
        "service-cidr",
        "token",
        "token-file",
        "write-kubeconfig",
        "write-kubeconfig-mode",
    ]
)
"""Keys of k3s's configuration that follow from the inventory, and that `k3s.config` may not have."""
_SHARING_KEYS = {
    "none": frozenset[str](),
    "time_slicing": frozenset({"slots_per_card"}),
    "mps": frozenset({"slots_per_card"}),
    "hami": frozenset({"version", "slots_per_card", "cards", "values"}),
    "kai": frozenset({"version", "fractions", "queues", "default_queues", "values"}),
    "kai_fractions": frozenset(
        {"experimental", "kai", "fractioning", "images", "queues", "default_queues", "values"}
    ),
}
_SHARING_NEEDS = {
    "time_slicing": ("slots_per_card",),
    "mps": ("slots_per_card",),
    "hami": ("version",),
    "kai": ("version",),
    "kai_fractions": ("kai", "fractioning"),
}
_FRACTIONS_DRIVER = 615
_SLOT = re.compile(r"([a-z0-9-]+)/([0-9]{1,3})").fullmatch


def check(inventory: Inventory, findings: Findings) -> None:
    """Find problems of the cluster."""
    _k3s(inventory, findings)
    _sharing(inventory, findings)
    _mig(inventory, findings)
    _helm(inventory, findings)
    _members(inventory, findings)
    hypervisors = inventory.hypervisors.values()
    aliases = {alias for one in hypervisors for alias in (*one.cards, *one.card_pools)}
    for alias in inventory.expect.gpu_cards:
        if alias not in aliases and not findings.written(("nodes", alias)):
            summary = f"no hypervisor has the card {alias!r}"
            findings.add("INVENTORY_REFERENCE", summary, ("expect", "gpu_cards", alias), on_key=True)


def _k3s(inventory: Inventory, findings: Findings) -> None:
    servers = [name for name, node in inventory.nodes.items() if node.k3s == "server"]
    k3s = inventory.k3s
    if k3s is None:
        joining = [name for name, node in inventory.nodes.items() if node.k3s is not None]
        if joining and not findings.written(("k3s",)):
            findings.lacks(
                "the inventory", "k3s", ("nodes", joining[0], "k3s"), remedy="declare its version there"
            )
        return
    if not servers and not _any_written_server(inventory, findings):
        findings.add("INVENTORY_REFERENCE", "no node has `k3s: server`", ("k3s",), on_key=True)
    _servers(k3s, servers, findings)
    _registries(k3s, findings)
    if k3s.snapshots is not None and longest_gap(k3s.snapshots.schedule) is None:
        findings.add(
            "INVENTORY_VALUE",
            f"{k3s.snapshots.schedule!r} is not a schedule of crontab(5)",
            ("k3s", "snapshots", "schedule"),
            remedy='write minute, hour, day, month and weekday: "0 */12 * * *"',
        )
    routes: list[tuple[str, KeyPath, IPv4Network]] = [
        ("the pod network", ("k3s", "pod_cidr"), IPv4Network(k3s.pod_cidr)),
        ("the service network", ("k3s", "service_cidr"), IPv4Network(k3s.service_cidr)),
    ]
    if inventory.network is not None:
        routes.insert(0, ("the site's network", ("network", "cidr"), IPv4Network(inventory.network.cidr)))
    for index, (what, path, cidr) in enumerate(routes):
        for other, _, other_cidr in routes[:index]:
            if cidr.overlaps(other_cidr):
                findings.add("INVENTORY_NETWORK", f"{what} {cidr} overlaps {other} {other_cidr}", path)


def _helm(inventory: Inventory, findings: Findings) -> None:
    helm, path = inventory.cluster.helm, ("cluster", "helm")
    keys = [key for key in ("version", "binary") if getattr(helm, key) is not None]
    if helm.backend == "controller":
        for key in keys:
            summary = f"the Helm controller of k3s does not use {key!r}"
            findings.conflict(summary, (*path, key), remedy="declare `backend: cli`, or remove it")
    elif not keys and not any(findings.written((*path, key)) for key in ("version", "binary")):
        findings.lacks("helm's backend cli", "version", path, remedy="declare a release, or `binary`")
    elif len(keys) > 1:
        findings.conflict("helm has one origin: 'version' or 'binary'", (*path, "binary"))


def _registries(k3s: K3s, findings: Findings) -> None:
    """Mirrors and logins of `sources` join those of k3s, so that both are tables of tables."""
    for key in ("mirrors", "configs"):
        path = ("k3s", "registries", key)
        table = k3s.registries.get(key, {})
        if not isinstance(table, Mapping):
            findings.add("INVENTORY_VALUE", f"expected a table of registries as {key!r}", path)
            continue
        for name, value in table.items():
            if not isinstance(value, Mapping):
                findings.add("INVENTORY_VALUE", f"expected a table of settings of {name!r}", (*path, name))


def _servers(k3s: K3s, servers: list[str], findings: Findings) -> None:
    """Etcd needs more than half of its members: an even number survives no more failures than one less."""
    for key in sorted(_OWNED.intersection(k3s.config)):
        remedy = "remove it, and use the key of nodes or of k3s that says it"
        findings.conflict(
            f"{key!r} follows from other keys of the inventory", ("k3s", "config", key), remedy=remedy
        )
    count = len(servers)
    if count < 2:  # noqa: PLR2004 - one server has no other
        return
    if k3s.datastore == "sqlite":
        findings.conflict("the datastore sqlite works with one k3s server only", ("k3s", "datastore"))
        return
    if count % 2 == 0:
        summary = f"{count} k3s servers survive no more failures than {count - 1}"
        findings.conflict(summary, ("k3s",), remedy=f"declare {count - 1} or {count + 1} servers")
    if k3s.endpoint is None and not findings.written(("k3s", "endpoint")):
        remedy = "declare a virtual address, a load balancer or a DNS name of all servers"
        findings.lacks("a cluster of several servers", "endpoint", ("k3s",), remedy=remedy)


def _members(inventory: Inventory, findings: Findings) -> None:
    """What is said of a Node object needs a cluster that has it."""
    for name, node in inventory.nodes.items():
        if node.k3s is not None or inventory.cluster.kubeconfig is not None:
            continue
        for key in ("labels", "annotations", "taints", "kube_name"):
            if getattr(node, key):
                findings.conflict(
                    f"{name} is not in a cluster, and {key!r} is about its Node object",
                    ("nodes", name, key),
                    remedy="Add `k3s: agent`, or name an existing cluster in cluster.kubeconfig.",
                )


def _any_written_server(inventory: Inventory, findings: Findings) -> bool:
    """Whether a node that was left out for its own errors says `k3s: server`."""
    nodes = findings.tree.find(("nodes",))
    if nodes is None or not isinstance(nodes.value, dict):
        return False
    lost = [item for name, item in nodes.value.items() if name not in inventory.nodes]
    return any(str(role.value) == "server" for item in lost if (role := item.child("k3s")) is not None)


def _sharing(inventory: Inventory, findings: Findings) -> None:
    sharing = inventory.sharing
    if sharing is None:
        return
    mode = sharing.mode
    for key in type(sharing).model_fields:
        if key != "mode" and getattr(sharing, key) and key not in _SHARING_KEYS[mode]:
            findings.conflict(f"sharing mode {mode} does not use {key!r}", ("sharing", key))
    for key in _SHARING_NEEDS.get(mode, ()):
        if getattr(sharing, key) is None and not findings.written(("sharing", key)):
            findings.lacks(f"sharing mode {mode}", key, ("sharing", "mode"))
    _sharing_references(inventory, sharing, findings)
    if mode == "kai_fractions":
        _fractions(inventory, findings)


def _sharing_references(inventory: Inventory, sharing: Sharing, findings: Findings) -> None:
    for alias, slots in sharing.cards.items():
        for index, slot in enumerate(slots):
            _slot(inventory, slot, ("sharing", "cards", alias, index), findings)
    for name, queue in sharing.queues.items():
        if queue.parent is not None:
            findings.reference(
                "queue", queue.parent, ("sharing", "queues"), ("sharing", "queues", name, "parent")
            )


def _slot(inventory: Inventory, slot: str, path: KeyPath, findings: Findings) -> None:
    match = _SLOT(slot)
    if match is None:
        findings.add("INVENTORY_VALUE", f"{slot[:60]!r} is not a card slot like gpu05/0", path)
        return
    if not findings.reference("node", match[1], ("nodes",), path):
        return
    node = inventory.nodes.get(match[1])
    count = node.gpu_cards.count if node is not None and node.gpu_cards is not None else None
    if count is not None and int(match[2]) >= count:
        findings.add("INVENTORY_REFERENCE", f"{match[1]} has {count} cards: the first one is slot 0", path)


def _mig(inventory: Inventory, findings: Findings) -> None:
    """Parts of a card are no whole cards: modes that count or limit these exclude them."""
    operator = inventory.gpu.operator if inventory.gpu is not None else None
    mig = operator.mig if operator is not None else None
    if mig is None:
        return
    path: KeyPath = ("gpu", "operator", "mig")
    for name in mig.profiles:
        if findings.reference("node", name, ("nodes",), (*path, "profiles", name)):
            node = inventory.nodes.get(name)
            if node is not None and not node.wants_gpu:
                findings.conflict(f"{name} has no GPUs", (*path, "profiles", name))
    sharing = inventory.sharing
    divides = any(profile != "all-disabled" for profile in mig.profiles.values())
    if divides and sharing is not None and (sharing.mode not in {"none", "kai"} or sharing.fractions):
        what = "kai with fractions" if sharing.mode == "kai" else sharing.mode
        findings.conflict(f"sharing mode {what} excludes MIG", (*path, "profiles"))


def _fractions(inventory: Inventory, findings: Findings) -> None:
    """KAI fractions force driver 615 or newer, the operator's toolkit, and a word that one knows."""
    sharing, gpu = inventory.sharing, inventory.gpu
    if sharing is not None and not sharing.experimental:
        findings.lacks("sharing mode kai_fractions", "experimental", ("sharing", "mode"))
    if gpu is None or gpu.toolkit != "operator":
        findings.conflict("sharing mode kai_fractions needs `gpu.toolkit: operator`", ("sharing", "mode"))
    for name, node in inventory.nodes.items():
        branch = node.driver.branch or node.driver.minimum if node.driver is not None else None
        major = re.match(r"[0-9]+", branch or "")
        if node.wants_gpu and (major is None or int(major[0]) < _FRACTIONS_DRIVER):
            summary = f"sharing mode kai_fractions needs driver {_FRACTIONS_DRIVER} or newer on {name}"
            findings.conflict(summary, ("nodes", name, "driver"))
