"""What the charts of HAMi and KAI Scheduler bring, as far as our code sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.kube.releases import Release
from provision.lab.kube.kinds import Kind, kinds_of
from provision.lab.kube.store import Object, Store, Write
from provision.testing.model_card_pods import HAMI_WEBHOOK, MEMORY, uuids_of
from provision.testing.model_definitions import definition
from provision.testing.model_gpu_operator import GpuOperator, offer

HAMI, KAI, FRACTIONS = "hami", "kai-scheduler", "gpu-fractioning"
PLUGIN = "hami-device-plugin"
REGISTER = "hami.io/node-nvidia-register"
CONTROLLERS = {
    HAMI: ("hami-scheduler",),
    KAI: (
        "kai-operator",
        "kai-scheduler-default",
        "binder",
        "admission",
        "pod-grouper",
        "podgroup-controller",
        "queue-controller",
    ),
    FRACTIONS: ("gpu-fractioning-operator",),
}
KAI_WEBHOOKS = (
    ("Mutating", "mutating-kai-admission"),
    ("Validating", "validating-kai-admission"),
    ("Validating", "kai-queue-validation-v2"),
    ("Validating", "kai-podgroup-validation-v2alpha2"),
)
CRDS = (
    definition("scheduling.run.ai", "v2", "Queue", "queues"),
    definition("scheduling.run.ai", "v1alpha2", "BindRequest", "bindrequests"),
    definition("kai.scheduler", "v1", "SchedulingShard", "schedulingshards"),
    definition("kai.scheduler", "v1", "Config", "configs"),
)


FRACTIONS_CRD = definition(
    "gpu-fractioning.kai.scheduler", "v1alpha1", "GpuFractioningConfig", "gpufractioningconfigs"
)


@dataclass
class Sharing:
    """Reacts to the releases of both charts, and to the labels of nodes.

    Args:
        gpus: which Node has how many cards.
        namespaces: of the releases that are there, by chart.
        values: of HAMi's release.
    """

    gpus: GpuOperator
    namespaces: dict[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    def installed(self, store: Store, release: Release, values: Mapping[str, Any]) -> None:
        """Bring what the chart brings; see HelmController."""
        if release.chart not in CONTROLLERS:
            return
        self.namespaces[release.chart] = release.namespace
        for name in CONTROLLERS[release.chart]:
            _keep(store, "Deployment", release.namespace, name, {"replicas": 1})
        if release.chart == KAI:
            self._bring_queues(store)
            return
        if release.chart == FRACTIONS:
            _bring_fractions(store, release.namespace)
            return
        self.values = values
        hook = {"kind": "MutatingWebhookConfiguration", "metadata": {"name": HAMI_WEBHOOK}, "webhooks": []}
        store.seed({"apiVersion": "admissionregistration.k8s.io/v1", **hook})
        pods = {"spec": {"nodeSelector": values["devicePlugin"]["nvidiaNodeSelector"], "containers": []}}
        _keep(store, "DaemonSet", release.namespace, PLUGIN, {"template": pods})
        for node in list(store.listed(store.kind("Node"))):
            self._offer(store, node)

    def _bring_queues(self, store: Store) -> None:
        for crd in CRDS:
            for kind in kinds_of(crd):
                store.kinds[kind.group, kind.version, kind.plural] = kind
            store.seed({**crd, "status": {"conditions": [{"type": "Established", "status": "True"}]}})
        free = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
        spec = {"resources": {"cpu": free, "gpu": free, "memory": free}}
        parent, child = "default-parent-queue", "default-queue"
        for name, more in ((parent, {}), (child, {"parentQueue": parent})):
            if store.get(store.kind("Queue"), ("", name)) is None:
                metadata = {"name": name}
                body = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": metadata}
                store.seed({**body, "spec": {**spec, **more}})
        for what, name in KAI_WEBHOOKS:
            hook = {"kind": f"{what}WebhookConfiguration", "metadata": {"name": name}, "webhooks": []}
            store.seed({"apiVersion": "admissionregistration.k8s.io/v1", **hook})
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "kai-resource-reservation"},
        }
        store.seed(namespace)

    def removed(self, store: Store, name: str) -> None:
        """Take it away again; KAI's CRDs, webhooks and the namespace of its reservations stay behind."""
        namespace = self.namespaces.pop(name, None)
        if namespace is None:
            return
        for kind_name in ("DaemonSet", "Deployment", "Pod"):
            kind = store.kind(kind_name)
            for body in list(store.listed(kind, namespace)):
                store.delete(kind, (namespace, body["metadata"]["name"]))
        for node in self.gpus.cards if name == HAMI else ():
            offer(store, node, 0)

    def _offer(self, store: Store, node: Object) -> None:
        """Run the plugin on a node with its label and with cards."""
        namespace, name = self.namespaces.get(HAMI), node["metadata"]["name"]
        plugin = self.values.get("devicePlugin", {})
        labels = node["metadata"].get("labels", {})
        if namespace is None or name not in self.gpus.cards:
            return
        if not plugin["nvidiaNodeSelector"].items() <= labels.items():
            return
        pod = (namespace, f"{PLUGIN}-{name}")
        if store.get(store.kind("Pod"), pod) is None:
            own = {"app.kubernetes.io/component": PLUGIN}
            metadata = {"name": pod[1], "namespace": namespace, "labels": own}
            spec = {"nodeName": name, "containers": []}
            store.seed({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        offer(store, name, self.gpus.cards[name] * int(plugin.get("deviceSplitCount", 10)))
        rows = [
            {"id": uuid, "devmem": self.gpus.memory or MEMORY}
            for uuid in uuids_of(name, self.gpus.cards[name])
        ]
        held = store.get(store.kind("Node"), ("", name))
        if held is not None:
            notes = {**held["metadata"].get("annotations", {}), REGISTER: json.dumps(rows)}
            made = {**held, "metadata": {**held["metadata"], "annotations": notes}}
            store.update(store.kind("Node"), ("", name), made, Write("hami-device-plugin"))

    def __call__(self, store: Store, event: str, kind: Kind, body: Object) -> None:
        """Look after nodes that get the label later; a controller of ModelCluster."""
        if kind.name == "Node" and event != "DELETED" and HAMI in self.namespaces:
            pod = (self.namespaces[HAMI], f"{PLUGIN}-{body['metadata']['name']}")
            if store.get(store.kind("Pod"), pod) is None:
                self._offer(store, body)


def _bring_fractions(store: Store, namespace: str) -> None:
    for kind in kinds_of(FRACTIONS_CRD):
        store.kinds[kind.group, kind.version, kind.plural] = kind
    established = {"conditions": [{"type": "Established", "status": "True"}]}
    store.seed({**FRACTIONS_CRD, "status": established})
    for name in ("gpu-fractioning-mpsd", "gpu-fractioning-fractiond"):
        pods = {"spec": {"nodeSelector": {"nvidia.com/gpu.present": "true"}, "containers": []}}
        _keep(store, "DaemonSet", namespace, name, {"template": pods})
    names = ("FractiondReady", "MpsdReady", "Ready")
    conditions = [{"type": name, "status": "True", "reason": "AllReady"} for name in names]
    body = {"apiVersion": "gpu-fractioning.kai.scheduler/v1alpha1", "kind": "GpuFractioningConfig"}
    spec = {"nodeSelector": {"nvidia.com/gpu.present": "true"}}
    metadata = {"name": "default"}
    store.seed({**body, "metadata": metadata, "spec": spec, "status": {"conditions": conditions}})


def _keep(store: Store, kind: str, namespace: str, name: str, spec: Mapping[str, Any]) -> None:
    if store.get(store.kind(kind), (namespace, name)) is None:
        metadata: dict[str, Any] = {"name": name, "namespace": namespace}
        metadata |= {"labels": {"app.kubernetes.io/component": name}}
        store.seed({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec})
