"""What the GPU Operator brings, as far as our code sees it; states as seen on a real one without cards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.kube.releases import Release
from provision.lab.kube.kinds import Kind, kinds_of
from provision.lab.kube.store import Object, Store, Write
from provision.testing.model_definitions import OWNED, definition, of_release

CRD = definition("nvidia.com", "v1", "ClusterPolicy", "clusterpolicies")
NFD_CRD = definition("nfd.k8s-sigs.io", "v1alpha1", "NodeFeature", "nodefeatures", "Namespaced")
PLUGIN = "nvidia-device-plugin-daemonset"
MIG_CONFIG, MIG_STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
TOOLKIT = "nvidia-container-toolkit-daemonset"
PCI_LABEL = "feature.node.kubernetes.io/pci-10de.present"
DAEMON_SETS = ("gpu-feature-discovery", "nvidia-dcgm-exporter", "nvidia-operator-validator")


@dataclass
class GpuOperator:
    """Reacts to the release of its chart, and to nodes that join later.

    Args:
        cards: cards of each Node that has some.
        chart: name of its chart.
        memory: MiB of each card, which the labels say; 0 leaves that label out.
        mig_state: what the MIG manager says when it has divided cards.
        has_runtime: whether containerd of a Node works with the toolkit's runtime, without which no operand
            but the toolkit starts there.
    """

    cards: dict[str, int] = field(default_factory=dict)
    chart: str = "gpu-operator"
    values: Mapping[str, Any] = field(default_factory=dict)
    namespace: str = ""
    memory: int = 0
    mig_state: str = "success"
    has_runtime: Callable[[str], bool] = lambda _: True

    def installed(self, store: Store, release: Release, values: Mapping[str, Any]) -> None:
        """Bring what the chart brings; see HelmController."""
        if release.chart != self.chart:
            return
        self.namespace, self.values = release.namespace, values
        for kind in kinds_of(CRD):
            store.kinds[kind.group, kind.version, kind.plural] = kind
        established = {"conditions": [{"type": "Established", "status": "True"}]}
        store.seed({**CRD, "status": established})
        if values.get("nfd", {}).get("enabled"):
            for kind in kinds_of(NFD_CRD):
                store.kinds[kind.group, kind.version, kind.plural] = kind
            store.seed({**NFD_CRD, "status": established})
        self.reconcile(store)

    def removed(self, store: Store, name: str) -> None:
        """Take it away again; labels, NFD's CRDs and the kubelets' resources with an amount of 0 stay."""
        if name == self.chart and self.namespace:
            if self.values.get("devicePlugin", {}).get("enabled", True):
                for node in self.cards:
                    offer(store, node, 0)
            for kind_name in ("DaemonSet", "Pod", "ClusterPolicy"):
                kind = store.kind(kind_name)
                for body in list(store.listed(kind, self.namespace if kind.namespaced else "")):
                    place = (body["metadata"].get("namespace", ""), body["metadata"]["name"])
                    if store.get(kind, place) is not None:
                        store.delete(kind, place)
            self.namespace = ""

    def reconcile(self, store: Store) -> None:
        """Label nodes, offer their cards, and write the policy's status."""
        if not self.namespace:
            return
        plugin = bool(self.values.get("devicePlugin", {}).get("enabled", True))
        if self.has_toolkit:
            self._bring_toolkit(store)
        for name in (*DAEMON_SETS, *([PLUGIN] if plugin else [])):
            spec = {
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"nodeSelector": {"nvidia.com/gpu.present": "true"}, "containers": []},
                },
            }
            self._keep(store, "apps/v1", "DaemonSet", name, spec)
        if not plugin:
            self._drop_plugin(store)
        labelled = [name for name in self.cards if self._offer(store, name, plugin=plugin)]
        waiting = [name for name in labelled if self._waits(name)]
        reason = "OperandNotReady" if waiting else "Reconciled" if labelled else "NoGPUNodes"
        condition = {"type": "Ready", "status": "False" if waiting else "True", "reason": reason}
        if store.get(store.kind("ClusterPolicy"), ("", "cluster-policy")) is None:
            body = {
                "apiVersion": "nvidia.com/v1",
                "kind": "ClusterPolicy",
                "metadata": {"name": "cluster-policy", **of_release(self.chart, self.namespace)},
            }
            store.seed({**body, "spec": {}})
        state = "notReady" if waiting else "ready"
        status = {"metadata": {}, "status": {"state": state, "conditions": [condition]}}
        write = Write("gpu-operator", subresource="status")
        store.update(store.kind("ClusterPolicy"), ("", "cluster-policy"), status, write)

    @property
    def has_toolkit(self) -> bool:
        """Whether the chart brings the container toolkit."""
        return bool(self.namespace) and bool(self.values.get("toolkit", {}).get("enabled", True))

    def _waits(self, name: str) -> bool:
        return self.has_toolkit and not self.has_runtime(name)

    def _bring_toolkit(self, store: Store) -> None:
        for name in self.cards:
            pod = (self.namespace, f"{TOOLKIT}-{name}")
            if store.get(store.kind("Node"), ("", name)) is None or store.get(store.kind("Pod"), pod):
                continue
            metadata = {"name": pod[1], "namespace": self.namespace, "labels": {"app": TOOLKIT}, **OWNED}
            spec = {"nodeName": name, "containers": []}
            store.seed({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def _keep(self, store: Store, api: str, kind: str, name: str, spec: Mapping[str, Any]) -> None:
        metadata = {"name": name, "namespace": self.namespace, **OWNED}
        if store.get(store.kind(kind), (self.namespace, name)) is None:
            store.seed({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec})

    def _drop_plugin(self, store: Store) -> None:
        """Take away the plugin that was turned off: the kubelets have no cards to offer then."""
        kind, place = store.kind("DaemonSet"), (self.namespace, PLUGIN)
        if store.get(kind, place) is None:
            return
        store.delete(kind, place)
        for name in self.cards:
            pod = (self.namespace, f"{PLUGIN}-{name}")
            if store.get(store.kind("Pod"), pod) is not None:
                store.delete(store.kind("Pod"), pod)
            offer(store, name, 0)

    def _offer(self, store: Store, name: str, *, plugin: bool) -> bool:
        kind, place = store.kind("Node"), ("", name)
        node = store.get(kind, place)
        if node is None:
            return False
        count = self.cards[name]
        labels = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": str(count)}
        labels |= {"nvidia.com/gpu.memory": str(self.memory)} if self.memory else {}
        if self.values.get("nfd", {}).get("enabled"):
            labels[PCI_LABEL] = "true"
            metadata = {"name": name, "namespace": self.namespace}
            store.seed(
                {"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature", "metadata": metadata}
            )
        deploy = {f"nvidia.com/gpu.deploy.{part}": "true" for part in ("device-plugin", "operator-validator")}
        held = node["metadata"].get("labels", {})
        merged = {**deploy, **held, **labels}
        if merged != held:
            made = {**node, "metadata": {**node["metadata"], "labels": merged}}
            node = store.update(kind, place, made, Write("gpu-operator"))
        if plugin and not self._waits(name):
            pod_name = f"{PLUGIN}-{name}"
            pod = {"name": pod_name, "namespace": self.namespace, "labels": {"app": PLUGIN}, **OWNED}
            if store.get(store.kind("Pod"), (self.namespace, pod_name)) is None:
                spec = {"nodeName": name, "containers": []}
                running = {"name": PLUGIN, "state": {"running": {"startedAt": store.now()}}}
                status = {"phase": "Pending", "containerStatuses": [running]}
                store.seed(
                    {"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": spec, "status": status}
                )
            offer(store, name, count * self._replicas())
        return True

    def _replicas(self) -> int:
        data = self.values.get("devicePlugin", {}).get("config", {}).get("data", {})
        for text in data.values():
            sharing = json.loads(text)["sharing"]
            rule = sharing.get("timeSlicing") or sharing.get("mps")
            return int(rule["resources"][0]["replicas"])
        return 1

    def __call__(self, store: Store, event: str, kind: Kind, body: Object) -> None:
        """Look after nodes that join later; a controller of ModelCluster."""
        name = body["metadata"]["name"]
        if kind.name != "Node" or name not in self.cards:
            return
        if event == "ADDED":
            self.reconcile(store)
        elif body["metadata"].get("labels", {}).get(MIG_STATE) == "pending":
            self._divide(store, body)

    def _divide(self, store: Store, node: Object) -> None:
        """Do what the MIG manager does: divide the cards into seven parts, and say so."""
        labels = {**node["metadata"]["labels"], MIG_STATE: self.mig_state}
        made = {**node, "metadata": {**node["metadata"], "labels": labels}}
        name = node["metadata"]["name"]
        store.update(store.kind("Node"), ("", name), made, Write("mig-manager"))
        offer(store, name, self.cards[name] * (1 if labels[MIG_CONFIG] == "all-disabled" else 7))


def offer(store: Store, name: str, count: int) -> None:
    """Write how many cards a Node offers, as its kubelet does."""
    kind, place = store.kind("Node"), ("", name)
    node = store.get(kind, place)
    if node is None:
        return
    offered = {"nvidia.com/gpu": str(count)}
    amounts = {key: {**node["status"].get(key, {}), **offered} for key in ("allocatable", "capacity")}
    status = {**node["status"], **amounts}
    if status != node["status"]:
        store.update(kind, place, {"metadata": {}, "status": status}, Write("kubelet", subresource="status"))
