"""The GPU Operator has done its work: its policy, its DaemonSets, the labels, and the cards that pods get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from provision.contracts.snapshot import Snapshot
from provision.gpu.operator_values import RESOURCE
from provision.kube.facts import NODES, NodeFact
from provision.kube.kinds import DAEMON_SET, POD, KubeKind
from provision.kube.logs import PluginLogs, PodLog
from provision.kube.queries import Listing, ListQuery, Live, ObjectQuery, list_query, object_query
from provision.kube.readiness import Conditions, State
from provision.kube.resources.stack import (
    Problem,
    StackResource,
    daemon_set_problems,
    has_ready_pod,
    ready_nodes,
)

POLICY = KubeKind("nvidia.com/v1", "ClusterPolicy", "clusterpolicies", namespaced=False)
GPU_CLUSTER = KubeKind("nvidia.com/v1alpha1", "GPUCluster", "gpuclusters", namespaced=False)
POLICY_NAME = "cluster-policy"
PLUGIN = "app=nvidia-device-plugin-daemonset"
NO_CARDS = (
    "No devices found. Waiting indefinitely",
    "could not load NVML library",
    "did you configure the NVIDIA Container Toolkit",
)
"""What the device plugin says when its container was started without the cards; it runs on, and is ready."""
MOST_LINES = 5
# `state` alone is `ready` on a cluster without any card, with another reason; and for a moment after each
# change it is that of before, which the generations of the DaemonSets show.
POLICY_READY = Conditions((("state", "ready"), ("conditions[Ready].reason", "Reconciled")))
DEPLOY = "nvidia.com/gpu.deploy."
COUNT_LABEL = "nvidia.com/gpu.count"


@dataclass(frozen=True, slots=True)
class Cards:
    """The cards of one node.

    Args:
        node: as the inventory calls it.
        kube_name: its Node, by name.
        address: its Node, by address.
        count: cards; 0 where that is not declared.
        offered: what the node must offer to pods; 0 where another plugin decides.
    """

    node: str
    kube_name: str
    address: str
    count: int
    offered: int


@dataclass(frozen=True, slots=True)
class GpuStack(StackResource):
    """The operator is ready, and each GPU node that is up offers its cards under a plugin pod that runs.

    Args:
        namespace: of the operator.
        cards: what is declared, by node.
    """

    kind: ClassVar[str] = "gpu-stack"
    title: ClassVar[str] = "the GPU stack is"

    namespace: str
    cards: tuple[Cards, ...]

    @property
    def _policy(self) -> ObjectQuery:
        return object_query(POLICY, POLICY_NAME)

    @property
    def _daemon_sets(self) -> ListQuery:
        return list_query(DAEMON_SET, self.namespace)

    @property
    def _plugins(self) -> ListQuery:
        return list_query(POD, self.namespace, PLUGIN)

    @property
    def _logs(self) -> PluginLogs:
        """Of the plugin's pods that do not work: no request more while all is well."""
        is_offering = any(row.offered for row in self.cards)
        return PluginLogs(self.namespace, PLUGIN, (RESOURCE,) if is_offering else ())

    def queries(self) -> tuple[Any, ...]:
        """Ask for the policy, the DaemonSets, the plugin's pods and logs, the nodes, and the other stack."""
        return (self._policy, self._daemon_sets, self._plugins, self._logs, NODES, list_query(GPU_CLUSTER))

    def problems(self, snapshot: Snapshot) -> Iterator[Problem]:
        """Yield what is missing."""
        others: Listing = snapshot[list_query(GPU_CLUSTER)]
        policy: Live | None = snapshot[self._policy]
        if others.objects and policy is not None:
            remedy = "Remove one of them: `kubectl get clusterpolicies,gpuclusters`."
            names = ", ".join(live.name for live in others.objects)
            text = f"GPUCluster {names} and ClusterPolicy {policy.name} exclude each other"
            yield Problem("stack", "GPU_STACKS_BOTH", text, remedy, heals=False)
        up = ready_nodes(snapshot[NODES], self.cards)
        if not up:
            return  # every GPU node is off, or has not joined: there is nothing to offer
        logs: tuple[PodLog, ...] = snapshot[self._logs]
        for cards, fact in up:
            yield from _paused(fact)
            if cards.offered:
                own = [log for log in logs if log.node == fact.name]
                yield from self._plugin_problems(cards, fact, own)
        yield from self._policy_problems(policy)
        daemon_sets: Listing = snapshot[self._daemon_sets]
        yield from daemon_set_problems(snapshot, daemon_sets, self.namespace, "GPU_OPERANDS_NOT_READY")
        for cards, fact in up:
            yield from self._card_problems(snapshot, cards, fact)

    def _policy_problems(self, policy: Live | None) -> Iterator[Problem]:
        if policy is None:
            yield Problem("policy", "GPU_POLICY_NOT_READY", "not there", "See the operator's own log.")
            return
        verdict = POLICY_READY.of(policy.body)
        if verdict.state is not State.READY:
            remedy = f"See `kubectl -n {self.namespace} get pods`, and the events of {POLICY_NAME}."
            yield Problem("policy", "GPU_POLICY_NOT_READY", verdict.reason, remedy)

    def _card_problems(self, snapshot: Snapshot, cards: Cards, fact: NodeFact) -> Iterator[Problem]:
        label = fact.labels.get(COUNT_LABEL)
        remedy = f"See the GPUs of the node itself: `provision verify --target {cards.node}`."
        if label is None:
            yield Problem(f"{cards.node}: labels", "GPU_LABELS_MISSING", f"no label {COUNT_LABEL}", remedy)
        elif cards.count and label != str(cards.count):
            text = f"{COUNT_LABEL} is {label}, {cards.count} are declared"
            yield Problem(f"{cards.node}: labels", "GPU_COUNT_WRONG", text, remedy)
        if not cards.offered:
            return
        # After a reboot the kubelet offers the cards of before, without a plugin.
        plugins: Listing = snapshot[self._plugins]
        if not has_ready_pod(plugins, fact.name):
            text = "no ready pod of the device plugin"
            yield Problem(f"{cards.node}: plugin", "GPU_PLUGIN_MISSING", text, remedy)
        offered = fact.allocatable.get(RESOURCE, "0")
        if offered != str(cards.offered):
            text = f"{offered} {RESOURCE} allocatable, {cards.offered} are declared"
            yield Problem(f"{cards.node}: cards", "GPU_ALLOCATABLE_WRONG", text, remedy)

    def _plugin_problems(self, cards: Cards, fact: NodeFact, logs: list[PodLog]) -> Iterator[Problem]:
        """Yield why a plugin's pod offers nothing, by what it says itself."""
        path, command = f"{cards.node}: plugin", f"kubectl -n {self.namespace} delete pod"
        for log in logs:
            lines = tuple(line for line in log.lines if any(text in line for text in NO_CARDS))[:MOST_LINES]
            if lines:
                text = f"{log.pod} was started without the node's cards"
                remedy = (
                    f"See whether containerd has the runtime: `provision verify --target {cards.node}`;"
                    f" then start the plugin again: `{command} {log.pod}`."
                )
                yield Problem(path, "GPU_PLUGIN_SEES_NOTHING", text, remedy, heals=False, lines=lines)
            elif "CrashLoopBackOff" in log.reason:
                remedy = f"See `kubectl -n {self.namespace} logs --previous {log.pod}` on {fact.name}."
                text = f"{log.pod}: {log.reason}"
                yield Problem(path, "GPU_PLUGIN_CRASHES", text, remedy, lines=log.lines[-MOST_LINES:])


def _paused(fact: NodeFact) -> Iterator[Problem]:
    """Yield operands that somebody has paused on a node: no DaemonSet wants a pod there, and is `ready`."""
    held = {key: value for key, value in fact.labels.items() if key.startswith(DEPLOY) and value != "true"}
    if held:
        first = next(iter(held))
        text = ", ".join(f"{key.removeprefix(DEPLOY)}={value}" for key, value in sorted(held.items()))
        command = f"kubectl label node {fact.name} {first}=true --overwrite"
        remedy = f"If nothing upgrades the driver there: `{command}`."
        yield Problem(f"{fact.name}: operands", "GPU_OPERANDS_PAUSED", text, remedy, heals=False)
