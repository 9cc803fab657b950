"""The GPU Operator has done its work: its policy, its DaemonSets, the labels, and the cards that pods get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op, Settles
from provision.contracts.remedy import Remedy
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.gpu.operator_values import RESOURCE
from provision.kube.facts import NODES, NodeFact, node_fact
from provision.kube.kinds import DAEMON_SET, POD, KubeKind
from provision.kube.names import SUBJECT
from provision.kube.queries import Listing, ListQuery, Live, ObjectQuery, list_query, object_query
from provision.kube.readiness import Conditions, State, readiness

POLICY = KubeKind("nvidia.com/v1", "ClusterPolicy", "clusterpolicies", namespaced=False)
GPU_CLUSTER = KubeKind("nvidia.com/v1alpha1", "GPUCluster", "gpuclusters", namespaced=False)
POLICY_NAME = "cluster-policy"
PLUGIN = "app=nvidia-device-plugin-daemonset"
# `state` alone is `ready` on a cluster without any card, with another reason; and for a moment after each
# change it is that of before, which the generations of the DaemonSets show.
POLICY_READY = Conditions((("state", "ready"), ("conditions[Ready].reason", "Reconciled")))
READY_SECONDS = 900.0
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
class Problem:
    """Something that is not as it should be.

    Args:
        path: what, as plans show it.
        code: of the diagnostic.
        text: what is seen.
        remedy: what to do.
        heals: whether waiting may help.
    """

    path: str
    code: str
    text: str
    remedy: str
    heals: bool = True


@dataclass(frozen=True, slots=True)
class GpuStack(KeyedResource):
    """The operator is ready, and each GPU node that is up offers its cards under a plugin pod that runs.

    A node that is not Ready, or not there, is not waited for: its own steps and checks say so.

    Args:
        namespace: of the operator.
        cards: what is declared, by node.
        seconds: how long it may take.
    """

    kind: ClassVar[str] = "gpu-stack"

    namespace: str
    cards: tuple[Cards, ...]
    seconds: float = READY_SECONDS

    @property
    def _policy(self) -> ObjectQuery:
        return object_query(POLICY, POLICY_NAME)

    @property
    def _daemon_sets(self) -> ListQuery:
        return list_query(DAEMON_SET, self.namespace)

    @property
    def _plugins(self) -> ListQuery:
        return list_query(POD, self.namespace, PLUGIN)

    def queries(self) -> tuple[ObjectQuery | ListQuery, ...]:
        """Ask for the policy, the DaemonSets, the plugin's pods, the nodes, and the other stack."""
        return (self._policy, self._daemon_sets, self._plugins, NODES, list_query(GPU_CLUSTER))

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Name what is missing."""
        return tuple(
            Change(Op.ATTENTION, problem.path, problem.text, "ready", Settles.WITHIN, self.seconds)
            if problem.heals
            else Change(Op.ATTENTION, problem.path, problem.text, "ready")
            for problem in self._problems(snapshot)
        )

    def fix(self, snapshot: Snapshot, /) -> Remedy:
        """Say what is missing first: the operator itself brings the rest about."""
        problems = list(self._problems(snapshot))
        first = next((problem for problem in problems if not problem.heals), problems[0])
        return self._refused(
            first.code,
            f"the GPU stack is not ready: {first.path}: {first.text}",
            subject=SUBJECT,
            evidence=tuple(f"{problem.path}: {problem.text}" for problem in problems[:10]),
            untouched="What was installed stays as it is.",
            remedy=first.remedy,
        )

    # ------------------------------------------------------------ what is seen

    def _problems(self, snapshot: Snapshot) -> Iterator[Problem]:
        others: Listing = snapshot[list_query(GPU_CLUSTER)]
        policy: Live | None = snapshot[self._policy]
        if others.objects and policy is not None:
            remedy = "Remove one of them: `kubectl get clusterpolicies,gpuclusters`."
            names = ", ".join(live.name for live in others.objects)
            text = f"GPUCluster {names} beside {policy.name}"
            yield Problem("stack", "GPU_STACKS_BOTH", text, remedy, heals=False)
        nodes: Listing = snapshot[NODES]
        up = [
            (cards, fact)
            for cards in self.cards
            if (fact := fact_of(nodes, cards)) is not None and fact.is_ready
        ]
        if not up:
            return  # every GPU node is off, or has not joined: there is nothing to offer
        paused = [problem for _, fact in up for problem in _paused(fact)]
        yield from paused
        yield from self._policy_problems(policy)
        yield from self._daemon_set_problems(snapshot, nodes)
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

    def _daemon_set_problems(self, snapshot: Snapshot, nodes: Listing) -> Iterator[Problem]:
        listing: Listing = snapshot[self._daemon_sets]
        away = sum(not fact.is_ready for fact in map(node_fact, nodes.objects))
        for live in listing.objects:
            verdict = readiness(live.body)
            if verdict.state is State.READY:
                continue
            wanted, ready = live.at("status", "desiredNumberScheduled"), live.at("status", "numberReady")
            seen = live.at("status", "observedGeneration")
            is_old = isinstance(seen, int) and seen < int(live.metadata.get("generation") or 0)
            counts = isinstance(wanted, int) and isinstance(ready, int)
            if counts and not is_old and ready + away >= wanted:
                continue  # the pods that are missing are on nodes that are not up
            remedy = f"See `kubectl -n {self.namespace} describe daemonset {live.name}`."
            yield Problem(live.name, "GPU_OPERANDS_NOT_READY", verdict.reason, remedy)

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
        own = [live for live in plugins.objects if live.at("spec", "nodeName") == fact.name]
        if not any(readiness(live.body).state is State.READY for live in own):
            text = "no ready pod of the device plugin"
            yield Problem(f"{cards.node}: plugin", "GPU_PLUGIN_MISSING", text, remedy)
        offered = fact.allocatable.get(RESOURCE, "0")
        if offered != str(cards.offered):
            text = f"{offered} {RESOURCE} allocatable, {cards.offered} are declared"
            yield Problem(f"{cards.node}: cards", "GPU_ALLOCATABLE_WRONG", text, remedy)


def fact_of(nodes: Listing, cards: Cards) -> NodeFact | None:
    """Return the Node of some cards, by its name, else by its address."""
    facts = [node_fact(live) for live in nodes.objects]
    named = next((fact for fact in facts if fact.name == cards.kube_name), None)
    return named or next((fact for fact in facts if cards.address in fact.addresses), None)


def _paused(fact: NodeFact) -> Iterator[Problem]:
    """Yield operands that somebody has paused on a node: no DaemonSet wants a pod there, and is `ready`."""
    held = {key: value for key, value in fact.labels.items() if key.startswith(DEPLOY) and value != "true"}
    if held:
        first = next(iter(held))
        text = ", ".join(f"{key.removeprefix(DEPLOY)}={value}" for key, value in sorted(held.items()))
        command = f"kubectl label node {fact.name} {first}=true --overwrite"
        remedy = f"If nothing upgrades the driver there: `{command}`."
        yield Problem(f"{fact.name}: operands", "GPU_OPERANDS_PAUSED", text, remedy, heals=False)
