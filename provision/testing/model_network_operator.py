"""What the Network Operator brings, as far as our code sees it: kinds, DaemonSets, resources, networks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.kube.releases import Release
from provision.lab.kube.kinds import Kind, kinds_of
from provision.lab.kube.store import Object, Store, Write
from provision.testing.model_definitions import OWNED, definition

PLUGIN = "rdma-shared-dp"
PLUGIN_SET = "rdma-shared-dp-ds"
NIC_LABEL = "feature.node.kubernetes.io/pci-15b3.present"
OF_CHART = (
    definition("mellanox.com", "v1alpha1", "NicClusterPolicy", "nicclusterpolicies"),
    definition("mellanox.com", "v1alpha1", "MacvlanNetwork", "macvlannetworks"),
    definition(
        "k8s.cni.cncf.io",
        "v1",
        "NetworkAttachmentDefinition",
        "network-attachment-definitions",
        "Namespaced",
    ),
)
OF_POLICY = (definition("nv-ipam.nvidia.com", "v1alpha1", "IPPool", "ippools", "Namespaced"),)
"""What the operator brings only when a policy asks for it."""


@dataclass
class NetworkOperator:
    """Reacts to the release of its chart, and to its objects.

    Args:
        interfaces: network interfaces of each Node that has such a NIC.
        exclusive: Nodes whose namespaces have RDMA devices alone.
        chart: name of its chart.
        logs: text of a pod's log by namespace and pod; the API's.
    """

    interfaces: dict[str, tuple[str, ...]] = field(default_factory=dict)
    exclusive: set[str] = field(default_factory=set)
    chart: str = "network-operator"
    logs: dict[tuple[str, str], str] = field(default_factory=dict)
    namespace: str = ""

    def installed(self, store: Store, release: Release, values: Mapping[str, Any]) -> None:
        """Bring what the chart brings; see HelmController."""
        if release.chart == self.chart:
            self.namespace = release.namespace
            del values
            _define(store, OF_CHART)

    def removed(self, store: Store, name: str) -> None:
        """Take it away again; without it, nobody looks after a policy that is still there."""
        del store
        if name == self.chart:
            self.namespace = ""

    def __call__(self, store: Store, event: str, kind: Kind, body: Object) -> None:
        """React to an object; a controller of ModelCluster."""
        if not self.namespace:
            return
        if kind.name == "NicClusterPolicy":
            self._policy(store, event, body)
        elif kind.name == "MacvlanNetwork":
            self._network(store, event, body)
        elif kind.name == "IPPool" and event != "DELETED":
            self._pool(store, body)
        elif kind.name == "Node" and event == "ADDED":
            self._joined(store)

    def _joined(self, store: Store) -> None:
        for name in ("NicClusterPolicy", "IPPool"):
            kind = next((one for one in store.kinds.values() if one.name == name), None)
            for body in list(store.listed(kind)) if kind is not None else []:
                if name == "IPPool":
                    self._pool(store, body)
                else:
                    self._policy(store, "MODIFIED", body)

    def _nodes(self, store: Store) -> list[str]:
        known = {body["metadata"]["name"] for body in store.listed(store.kind("Node"))}
        return [name for name in self.interfaces if name in known]

    # ------------------------------------------------------------ the policy

    def _policy(self, store: Store, event: str, body: Object) -> None:
        if event == "DELETED":
            for name in ("DaemonSet", "Pod"):
                kind = store.kind(name)
                for one in list(store.listed(kind, self.namespace)):
                    store.delete(kind, (self.namespace, one["metadata"]["name"]))
            return
        spec = body.get("spec", {})
        if "nvIpam" in spec:
            _define(store, OF_POLICY)
        plugin = spec.get("rdmaSharedDevicePlugin")
        parts = [
            name
            for name, there in (("nv-ipam-node", "nvIpam"), ("kube-multus-ds", "secondaryNetwork"))
            if there in spec
        ]
        for name in (*([PLUGIN_SET] if plugin else []), *parts):
            self._daemon_set(store, name)
        is_well = True
        for node in self._nodes(store):
            self._label(store, node)
            if plugin:
                is_well &= self._offer(store, node, json.loads(plugin["config"])["configList"])
        state = {"state": "ready" if is_well else "notReady"}
        if body.get("status") != state:
            _status(store, store.kind("NicClusterPolicy"), body, state)

    def _daemon_set(self, store: Store, name: str) -> None:
        if store.get(store.kind("DaemonSet"), (self.namespace, name)) is None:
            pods = {
                "metadata": {"labels": {"app": PLUGIN}},
                "spec": {"nodeSelector": {NIC_LABEL: "true"}, "containers": []},
            }
            spec = {"selector": {"matchLabels": {"app": PLUGIN}}, "template": pods}
            metadata = {"name": name, "namespace": self.namespace, **OWNED}
            store.seed({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec})

    def _label(self, store: Store, name: str) -> None:
        kind = store.kind("Node")
        held = store.get(kind, ("", name))
        if held is not None and NIC_LABEL not in held["metadata"].get("labels", {}):
            labels = {**held["metadata"].get("labels", {}), NIC_LABEL: "true"}
            made = {**held, "metadata": {**held["metadata"], "labels": labels}}
            store.update(kind, ("", name), made, Write("nfd"))

    def _offer(self, store: Store, name: str, rules: list[dict[str, Any]]) -> bool:
        """Run the plugin on a node, and return whether it runs."""
        pod_name = f"{PLUGIN_SET}-{name}"
        lines = ["Starting K8s RDMA Shared Device Plugin version= master"]
        offered: dict[str, str] = {}
        is_alone = name in self.exclusive
        if is_alone:
            lines.append("Exiting.. can not change : incorrect RDMA subsystem network namespace")
        for rule in [] if is_alone else rules:
            interfaces = rule["selectors"]["ifNames"]
            has = set(interfaces) & set(self.interfaces[name])
            resource = rule["resourceName"]
            offered[f"{rule['resourcePrefix']}/{resource}"] = str(rule["rdmaHcaMax"] if has else 0)
            if not has:
                lines.append(
                    f"Warning: no devices in device pool, creating empty resource server for {resource}"
                )
        stamp = "2026/01/01 00:00:00"
        self.logs[self.namespace, pod_name] = "".join(f"{stamp} {line}\n" for line in lines)
        status: dict[str, Any] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        if is_alone:
            waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
            row = {"name": PLUGIN, "restartCount": 7, "state": waiting}
            status = {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "False"}],
                "containerStatuses": [row],
            }
        kind, place = store.kind("Pod"), (self.namespace, pod_name)
        if store.get(kind, place) is None:
            metadata = {"name": pod_name, "namespace": self.namespace, "labels": {"app": PLUGIN}, **OWNED}
            spec = {"nodeName": name, "containers": []}
            store.seed(
                {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
            )
        else:
            store.update(
                kind, place, {"metadata": {}, "status": status}, Write("kubelet", subresource="status")
            )
        node = store.get(store.kind("Node"), ("", name))
        if node is not None:
            amounts = {**node["status"].get("allocatable", {}), **offered}
            if amounts != node["status"].get("allocatable"):
                _status(store, store.kind("Node"), node, {"allocatable": amounts})
        return not is_alone

    # ------------------------------------------------------------ addresses and networks

    def _pool(self, store: Store, body: Object) -> None:
        rows = [{"nodeName": name, "startIP": "", "endIP": ""} for name in self._nodes(store)]
        if body.get("status", {}).get("allocations") != rows:
            _status(store, store.kind("IPPool"), body, {"allocations": rows})

    def _network(self, store: Store, event: str, body: Object) -> None:
        kind = store.kind("NetworkAttachmentDefinition")
        name, spec = body["metadata"]["name"], body["spec"]
        place = (spec["networkNamespace"], name)
        if event == "DELETED":
            if store.get(kind, place) is not None:
                store.delete(kind, place)
            return
        if store.get(kind, place) is None:
            metadata = {"name": name, "namespace": place[0]}
            store.seed(
                {"apiVersion": "k8s.cni.cncf.io/v1", "kind": kind.name, "metadata": metadata, "spec": {}}
            )
        if body.get("status", {}).get("state") != "ready":
            _status(store, store.kind("MacvlanNetwork"), body, {"state": "ready"})


def _define(store: Store, definitions: tuple[dict[str, Any], ...]) -> None:
    for one in definitions:
        kinds = list(kinds_of(one))
        if all((kind.group, kind.version, kind.plural) in store.kinds for kind in kinds):
            continue
        for kind in kinds:
            store.kinds[kind.group, kind.version, kind.plural] = kind
        store.seed({**one, "status": {"conditions": [{"type": "Established", "status": "True"}]}})


def _status(store: Store, kind: Kind, body: Object, status: Mapping[str, Any]) -> None:
    place = (body["metadata"].get("namespace", ""), body["metadata"]["name"])
    held = store.get(kind, place)
    if held is not None:
        made = {"metadata": {}, "status": {**held.get("status", {}), **status}}
        store.update(kind, place, made, Write("network-operator", subresource="status"))
