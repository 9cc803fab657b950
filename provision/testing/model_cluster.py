"""A cluster in memory: the lab's small Kubernetes API behind our own driver, with controllers that pretend.

Nothing runs here: no scheduler, no kubelet, no helm. What controllers would write into a status, functions
write, and tests can replace each of them by one that fails.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.connections.contracts import KubeReply
from provision.kube.driver import KubeDriver
from provision.lab.kube.app import KubeApi, Request, Response
from provision.lab.kube.kinds import Kind, kinds_of
from provision.lab.kube.store import Controller, Object, Store, Write
from provision.testing.model_card_pods import CardPods
from provision.testing.model_cuda import CudaPods
from provision.testing.model_gpu_operator import GpuOperator
from provision.testing.model_helm import HELM_CHART_CRD, HelmController, ModelHelm
from provision.testing.model_network_operator import NetworkOperator
from provision.testing.model_pods import TRIAL, PodNetwork, PodRunner
from provision.testing.model_sharing import Sharing
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Transient


@dataclass
class ModelKube:
    """A connection to an API in memory; a KubeConnection.

    Args:
        api: answers.
        requests: how many there were through this connection.
        is_away: whether nobody answers (the only server reboots).
        on_write: called before and after each request that writes, with its text.
        lock: of the cluster: one request after the other, as its objects have no lock of their own.
    """

    api: KubeApi
    requests: int = 0
    is_away: bool = False
    on_write: Callable[[str], None] | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)

    def request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json"
    ) -> KubeReply:
        """Answer a request; see KubeConnection."""
        if self.is_away:
            raise Transient(Diagnostic("KUBE_UNREACHABLE", "the Kubernetes API does not answer"))
        self.requests += 1
        text = json.dumps(body) if body is not None else ""
        is_write = method != "GET" and "dryRun=All" not in path
        if is_write and self.on_write is not None:
            self.on_write(f"before {method} {path.partition('?')[0]}")
        with self.lock:
            response = self.api.handle(Request(method, path, content_type, text))
            reply = json.dumps(response.body)
        if is_write and self.on_write is not None:
            self.on_write(f"after {method} {path.partition('?')[0]}")
        # As through a wire: nobody shares an object with the store.
        return KubeReply(response.status, json.loads(reply), (response.warning,))

    def close(self) -> None:
        """Nothing is open."""


def ready_workloads(store: Store, event: str, kind: Kind, body: Object) -> None:
    """Make DaemonSets, Deployments, Jobs and Pods ready at once, as a healthy cluster does."""
    if event == "DELETED" or TRIAL in body["metadata"].get("labels", {}):
        return
    status = ready_status(store, kind, body)
    if status is not None and any(body.get("status", {}).get(key) != value for key, value in status.items()):
        set_status(store, kind, body, status)


def ready_status(store: Store, kind: Kind, body: Object) -> dict[str, Any] | None:
    """Return the status of a healthy object of one of these kinds; None for others."""
    generation = body["metadata"].get("generation", 1)
    if kind.name == "DaemonSet":
        pods = body["spec"].get("template", {}).get("spec", {})
        count = sum(_takes(node, pods) for node in store.listed(store.kind("Node")))
        numbers = (
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "updatedNumberScheduled",
            "numberReady",
        )
        return {"observedGeneration": generation, **dict.fromkeys((*numbers, "numberAvailable"), count)}
    if kind.name in {"Deployment", "StatefulSet"}:
        replicas = body["spec"].get("replicas", 1)
        names = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        return {"observedGeneration": generation, **dict.fromkeys(names, replicas)}
    if kind.name == "Job" and not body["metadata"]["name"].startswith("helm-"):
        return {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}
    if kind.name == "Pod" and body.get("status", {}).get("phase", "Pending") == "Pending":
        return {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return None


def _takes(node: Object, pods: Mapping[str, Any]) -> bool:
    selector = pods.get("nodeSelector", {})
    return bool(selector.items() <= node["metadata"].get("labels", {}).items())


def set_status(store: Store, kind: Kind, body: Object, status: Mapping[str, Any]) -> None:
    """Write into the status of an object, as its controller does."""
    place = (body["metadata"].get("namespace", ""), body["metadata"]["name"])
    held = store.get(kind, place)
    if held is not None:
        made = {"metadata": {}, "status": {**held.get("status", {}), **status}}
        store.update(kind, place, made, Write("controller", subresource="status"))


def end_namespaces(store: Store, event: str, kind: Kind, body: Object) -> None:
    """Empty namespaces that are being deleted, and remove them."""
    if kind.name == "Namespace" or (event == "DELETED" and kind.namespaced):
        del body
        store.finalize_namespaces()


@dataclass
class ModelCluster:
    """A cluster in memory.

    Args:
        api: its API; add `faults` to it for answers of your own.
        connections: all connections that were made.
        on_write: see ModelKube; for connections that are made from now on.
        helm: the Helm controller of k3s.
        program: the program helm.
        gpus: the GPU Operator, once its chart is installed.
        nics: the Network Operator, likewise.
        sharing: HAMi and KAI Scheduler, once the chart of one is installed.
        pods: the kubelets of all nodes, for Jobs of checks.
        cards: what those pods see of shared cards.
        network: how pods reach each other.
        lock: held by each request.
        cuda: what their pods see of cards.
    """

    api: KubeApi = field(default_factory=lambda: KubeApi(version="v1.35.7+k3s1", watch_seconds=0.0))
    connections: list[ModelKube] = field(default_factory=list)
    on_write: Callable[[str], None] | None = None
    helm: HelmController = field(default_factory=HelmController)
    gpus: GpuOperator = field(default_factory=GpuOperator)
    nics: NetworkOperator = field(default_factory=NetworkOperator)
    sharing: Sharing = field(init=False)
    program: ModelHelm = field(init=False)
    pods: PodRunner = field(init=False)
    cards: CardPods = field(init=False)
    network: PodNetwork = field(init=False)
    lock: threading.RLock = field(default_factory=threading.RLock)
    cuda: CudaPods = field(init=False)

    def __post_init__(self) -> None:
        self.define(HELM_CHART_CRD)
        self.program = ModelHelm(self.store, self.helm)
        self.api.logs = self.helm.logs
        self.nics.logs = self.helm.logs
        self.sharing = Sharing(self.gpus)
        for operator in (self.gpus, self.nics, self.sharing):
            self.helm.installed.append(operator.installed)
            self.helm.removed.append(operator.removed)
        self.pods = PodRunner(self.api.logs)
        self.network = PodNetwork()
        self.pods.behaviours.append(self.network)
        self.cards = CardPods(self.store, self.gpus)
        self.pods.behaviours.append(self.cards)
        self.cuda = CudaPods(self.gpus)
        self.pods.behaviours.append(self.cuda)
        reacting = (
            end_namespaces,
            self.helm,
            self.gpus,
            self.nics,
            self.sharing,
            self.pods,
            ready_workloads,
        )
        self.controllers.extend(reacting)

    @property
    def store(self) -> Store:
        """Its objects."""
        return self.api.store

    @property
    def controllers(self) -> list[Controller]:
        """What reacts to changes; replace one to make it fail."""
        return self.api.store.controllers

    @property
    def requests(self) -> list[Request]:
        """All requests so far."""
        return self.api.requests

    def writes(self) -> list[str]:
        """Return the requests that changed something, as `PATCH /path`."""
        return [
            f"{request.method} {request.path.partition('?')[0]}"
            for request in self.requests
            if request.method != "GET" and "dryRun=All" not in request.path
        ]

    def connect(self) -> ModelKube:
        """Return a new connection."""
        connection = ModelKube(self.api, on_write=self.on_write, lock=self.lock)
        self.connections.append(connection)
        return connection

    def driver(self, system: str = "cluster/api") -> KubeDriver:
        """Return a driver on a connection of its own."""
        return KubeDriver(system, self.connect(), self.connect, "test", self.program)

    def define(self, definition: Mapping[str, Any]) -> None:
        """Serve the kinds of a CustomResourceDefinition, as if a chart had brought it."""
        for kind in kinds_of(definition):
            self.store.kinds[kind.group, kind.version, kind.plural] = kind
        self.store.seed({**definition, "status": {"conditions": [{"type": "Established", "status": "True"}]}})

    def add_node(self, name: str, address: str, **more: Any) -> Object:
        """Add a Node that is ready.

        Args:
            name: of the Node.
            address: its InternalIP.
            more: `labels`, `taints`, `allocatable`, `machine_id`, `system_uuid`, `ready`, `conditions`.
        """
        info = {"machineID": more.get("machine_id", ""), "systemUUID": more.get("system_uuid", "")}
        amounts = {"cpu": "8", "memory": "16Gi", **more.get("allocatable", {})}
        ready = "True" if more.get("ready", True) else "False"
        return self.store.seed(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": {"kubernetes.io/hostname": name, **more.get("labels", {})},
                },
                "spec": {"taints": more["taints"]} if more.get("taints") else {},
                "status": {
                    "addresses": [{"type": "InternalIP", "address": address}],
                    "nodeInfo": {**info, "kubeletVersion": "v1.35.7+k3s1"},
                    "allocatable": amounts,
                    "capacity": amounts,
                    "conditions": [
                        {"type": "Ready", "status": ready, "reason": "KubeletReady"},
                        *more.get("conditions", ()),
                    ],
                },
            }
        )

    def get(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """Return an object by the name of its kind."""
        return self.store.get(self.store.kind(kind), (namespace, name))

    def dump(self) -> dict[str, Any]:
        """Return all objects as plain data, without what differs between two equal clusters."""
        left_out = {"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"}
        return {
            f"{kind.name} {body['metadata'].get('namespace', '')}/{body['metadata']['name']}": {
                **body,
                "metadata": {key: value for key, value in body["metadata"].items() if key not in left_out},
            }
            for kind in {(kind.group, kind.plural): kind for kind in self.store.kinds.values()}.values()
            if kind.name != "Lease"
            for body in self.store.listed(kind)
        }


def answering(
    status: int, body: object, *, method: str, path: str, times: int = 1
) -> Callable[[Request], Response | None]:
    """Return a fault: the next requests of a method whose path contains some text get this answer."""
    left = [times]

    def fault(request: Request) -> Response | None:
        if left[0] and request.method == method and path in request.path:
            left[0] -= 1
            return Response(status, body)
        return None

    return fault
