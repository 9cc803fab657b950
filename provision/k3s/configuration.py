"""What k3s's configuration files say, from the inventory: pure functions.

Sources: docs.k3s.io (server and agent options, HA embedded etcd, private registry).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from provision.inventory import Inventory
from provision.inventory.models.cluster import K3s
from provision.inventory.models.node import Node
from provision.k3s import paths
from provision.values.image_reference import host_of

PORT = 6443


def servers(inventory: Inventory) -> tuple[Node, ...]:
    """Return the servers in the order in which they are declared; the first one makes the cluster."""
    return tuple(node for node in inventory.nodes.values() if node.k3s == "server")


def uses_etcd(inventory: Inventory) -> bool:
    """Whether the datastore is embedded etcd."""
    declared = inventory.k3s.datastore if inventory.k3s is not None else None
    return declared == "etcd" if declared else len(servers(inventory)) > 1


def stable_url(inventory: Inventory) -> str:
    """Return the address that agents join through."""
    endpoint = inventory.k3s.endpoint if inventory.k3s is not None else None
    return f"https://{endpoint or servers(inventory)[0].address}:{PORT}"


def server_config(
    inventory: Inventory, node: Node, k3s: K3s, interface: str, join_url: str
) -> Mapping[str, Any]:
    """Return the configuration of a server.

    Args:
        inventory: what was declared.
        node: the server.
        k3s: its section.
        interface: the device with the node's address, empty where it is not known.
        join_url: the server that it joins; empty for the one that makes the cluster.
    """
    config = {**k3s.config, **_common(node, interface), "token-file": paths.TOKEN}
    if join_url:
        config["server"] = join_url
    elif uses_etcd(inventory):
        config["cluster-init"] = True
    if k3s.agent_token is not None:
        config["agent-token-file"] = paths.AGENT_TOKEN
    config |= {
        "cluster-cidr": k3s.pod_cidr,
        "service-cidr": k3s.service_cidr,
        "write-kubeconfig-mode": "0600",
    }
    if k3s.disable:
        config["disable"] = list(k3s.disable)
    names = [*([k3s.endpoint] if k3s.endpoint else ()), *(server.address for server in servers(inventory))]
    config["tls-san"] = list(dict.fromkeys([*names, *k3s.tls_san]))
    if k3s.snapshots is not None and uses_etcd(inventory):
        config["etcd-snapshot-schedule-cron"] = k3s.snapshots.schedule
        config["etcd-snapshot-retention"] = k3s.snapshots.keep
    return config


_SERVER_ONLY = (
    "tls-san",
    "disable",
    "cluster-",
    "service-",
    "etcd-",
    "kube-apiserver",
    "kube-controller",
    "kube-scheduler",
    "kube-cloud",
    "secrets-encryption",
    "embedded-registry",
    "egress-",
    "write-kubeconfig",
    "datastore-",
    "advertise-",
    "flannel-backend",
    "flannel-ipv6",
    "flannel-ext",
    "default-local-storage-path",
    "helm-job-image",
    "servicelb-",
    "supervisor-metrics",
)
"""How keys begin that an agent does not know."""


def agent_config(inventory: Inventory, node: Node, k3s: K3s, interface: str) -> Mapping[str, Any]:
    """Return the configuration of an agent; keys of `k3s.config` that only servers know are left out."""
    shared = {key: value for key, value in k3s.config.items() if not key.startswith(_SERVER_ONLY)}
    return {
        **shared,
        **_common(node, interface),
        "server": stable_url(inventory),
        "token-file": paths.TOKEN,
    }


def _common(node: Node, interface: str) -> dict[str, Any]:
    config: dict[str, Any] = {"node-name": node.kubernetes_name, "node-ip": node.address}
    if interface:
        config["flannel-iface"] = interface
    return config


_RESERVED = re.compile(r"(?:.*\.)?(?:kubernetes|k8s)\.io/.*").fullmatch
"""Labels of Kubernetes itself: with most of them no kubelet starts (k3s-io/k3s#10916), so none registers."""


def registration(node: Node) -> Mapping[str, Any]:
    """Return what counts only when the node registers; all other labels and changes go through the API."""
    values: dict[str, Any] = {}
    labels = [f"{key}={value}" for key, value in node.labels.items() if not _RESERVED(key)]
    if labels:
        values["node-label"] = labels
    if node.taints:
        values["node-taint"] = list(node.taints)
    return values


def registries(inventory: Inventory, k3s: K3s) -> Mapping[str, Any]:
    """Return the container registries, empty where none are declared; `k3s.registries` comes first.

    k3s looks a login up by the host of the endpoint: that of docker.io is registry-1.docker.io (k3s #12614).

    Raises:
        UsageError: a password cannot be opened.
    """
    mirrors = {host: {"endpoint": [url]} for host, url in inventory.sources.registries.items()}
    declared = dict(k3s.registries)
    if mirrors:
        declared["mirrors"] = {**mirrors, **declared.get("mirrors", {})}
    configs = dict(declared.get("configs", {}))
    for name, login in inventory.sources.logins.items():
        password = login.password.open(inventory.redactor).get_secret_value()
        auth = {"auth": {"username": login.user, "password": password}}
        configs[host_of(name)] = {**auth, **configs.get(host_of(name), {})}
    if configs:
        declared["configs"] = configs
    return declared
