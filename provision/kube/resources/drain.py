"""A node that pods have left before it goes away, and one that takes pods again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall, Remedy, Request
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.kube.actions import EVICT, MERGE, wait_request
from provision.kube.facts import NODES
from provision.kube.kinds import BUDGET, NODE, POD, object_path
from provision.kube.kube_effects import DRAIN
from provision.kube.names import CORDONED
from provision.kube.queries import Listing, ListQuery, Live, list_query
from provision.kube.readiness import value_at

EVICTION_SECONDS = 300.0
READY_SECONDS = 600.0
_MIRROR = "kubernetes.io/config.mirror"
"""Annotation of a static pod, which no API evicts."""
BUDGETS = list_query(BUDGET)


@dataclass(frozen=True, slots=True)
class NodeDrained(KeyedResource):
    """A Node that takes no new pods and has none but those of DaemonSets.

    Budgets are read before anything is changed: where one allows no disruption, nothing is cordoned.

    Args:
        name: of the Node.
        subject: the node, as the inventory calls it.
    """

    kind: ClassVar[str] = "kube-drain"

    name: str
    subject: str

    def _key_name(self) -> str:
        return self.name

    @property
    def _pods(self) -> ListQuery:
        return ListQuery(POD.api, POD.plural, fields=f"spec.nodeName={self.name}")

    def queries(self) -> tuple[ListQuery, ...]:
        """Ask for the nodes, the pods on this one, and all budgets."""
        return (NODES, self._pods, BUDGETS)

    def _evicted(self, snapshot: Snapshot) -> list[Live]:
        listing: Listing = snapshot[self._pods]
        return [pod for pod in listing.objects if _is_evicted(pod)]

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Name the cordon and the pods that are evicted."""
        nodes: Listing = snapshot[NODES]
        node = nodes.named(self.name)
        if node is None:
            return ()
        changes = [] if _is_cordoned(node) else [Change(Op.UPDATE, "schedulable", old=True, new=False)]
        changes += [
            Change(Op.DELETE, f"pod {_titled(pod)}", "terminating" if pod.is_terminating else "running", None)
            for pod in self._evicted(snapshot)
        ]
        return tuple(changes)

    def fix(self, snapshot: Snapshot, /) -> Remedy:
        """Cordon it, and evict the pods one after the other."""
        pods = self._evicted(snapshot)
        bare = [pod for pod in pods if not (pod.metadata.get("ownerReferences") or pod.is_terminating)]
        if bare:
            return self._refused(
                "DRAIN_UNMANAGED_PODS",
                f"pods on {self.name} have no controller that would start them elsewhere:"
                f" {', '.join(map(_titled, bare))}",
                subject=self.subject,
                untouched=f"{self.name} was not cordoned, and no pod was evicted.",
                remedy="Delete them yourself with `kubectl delete pod`, then run the command again.",
            )
        budgets: Listing = snapshot[BUDGETS]
        blocked = [line for budget in budgets.objects if (line := _blocks(budget, pods))]
        blocked += [line for pod in pods if (line := _blocked_twice(budgets, pod))]
        if blocked:
            return self._refused(
                "DRAIN_BLOCKED",
                f"{self.name} cannot be drained: {blocked[0]}",
                subject=self.subject,
                evidence=tuple(blocked),
                untouched=f"{self.name} was not cordoned, and no pod was evicted.",
                remedy="Give the workload another ready pod, or change its PodDisruptionBudget.",
            )
        nodes: Listing = snapshot[NODES]
        node = nodes.named(self.name)
        requests: list[Request] = []
        if node is not None and not _is_cordoned(node):
            # The note tells ours from what a person has cordoned, which stays as it is.
            body = {"metadata": {"annotations": {CORDONED: "drain"}}, "spec": {"unschedulable": True}}
            requests.append(Request(MERGE, object_path(NODE.api, NODE.plural, "", self.name), body))
        requests += map(_eviction, pods)
        # a node that no pod must leave costs nobody anything
        return ApiCall(tuple(requests), risks=(Effect(DRAIN, self.subject),) if pods else ())


@dataclass(frozen=True, slots=True)
class NodeUsable(KeyedResource):
    """A Node that takes pods again, if it was us who cordoned it.

    Args:
        name: of the Node.
        waits: whether it must be Ready first.
    """

    kind: ClassVar[str] = "kube-cordon"

    name: str
    waits: bool = False

    def _key_name(self) -> str:
        return self.name

    def queries(self) -> tuple[ListQuery, ...]:
        """Ask for all nodes."""
        return (NODES,)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Compare with our note on it."""
        nodes: Listing = snapshot[NODES]
        node = nodes.named(self.name)
        if node is None or CORDONED not in node.annotations:
            return ()
        return (Change(Op.UPDATE, "schedulable", old=not _is_cordoned(node), new=True),)

    def fix(self, snapshot: Snapshot, /) -> ApiCall:
        """Uncordon it."""
        del snapshot
        path = object_path(NODE.api, NODE.plural, "", self.name)
        body = {"metadata": {"annotations": {CORDONED: None}}, "spec": {"unschedulable": None}}
        ready = wait_request(NODE.api, NODE.plural, "", self.name, READY_SECONDS)
        return ApiCall((*([ready] if self.waits else []), Request(MERGE, path, body)))


def _is_cordoned(node: Live) -> bool:
    return node.at("spec", "unschedulable") is True


def _is_evicted(pod: Live) -> bool:
    """Whether a drain removes a pod: not what a DaemonSet or the node itself runs, and not what has ended.

    One that is being deleted still works until its time is over: it is waited for as any other.
    """
    owners = pod.metadata.get("ownerReferences") or ()
    of_daemon_set = any(isinstance(owner, Mapping) and owner.get("kind") == "DaemonSet" for owner in owners)
    has_ended = pod.at("status", "phase") in {"Succeeded", "Failed"}
    return not (of_daemon_set or has_ended or _MIRROR in pod.annotations)


def _blocks(budget: Live, pods: list[Live]) -> str:
    """Return which pods a budget keeps, if it allows no disruption now."""
    allowed = budget.at("status", "disruptionsAllowed")
    kept = [_titled(pod) for pod in pods if _covers(budget, pod) and not _leaves_anyway(budget, pod)]
    if not kept or (isinstance(allowed, int) and allowed > 0):
        return ""
    return f"PodDisruptionBudget {_titled(budget)} allows no disruption of {', '.join(kept)}"


def _blocked_twice(budgets: Listing, pod: Live) -> str:
    """Return which budgets a pod has, if there are several: the API answers its eviction with HTTP 500."""
    names = [_titled(budget) for budget in budgets.objects if _covers(budget, pod)]
    if len(names) < 2 or _is_free(pod):  # noqa: PLR2004 - several
        return ""
    return f"{_titled(pod)} has more than one PodDisruptionBudget: {', '.join(names)}"


def _covers(budget: Live, pod: Live) -> bool:
    """Whether a budget is about a pod; an empty selector takes all of its namespace."""
    selector = budget.at("spec", "selector")
    if not isinstance(selector, Mapping) or budget.metadata.get("namespace") != pod.metadata.get("namespace"):
        return False
    labels: Mapping[str, str] = selector.get("matchLabels") or {}
    return labels.items() <= pod.labels.items() and all(
        _fits(row, pod.labels) for row in selector.get("matchExpressions") or ()
    )


def _fits(row: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    held, values = labels.get(str(row.get("key"))), row.get("values") or ()
    fits = {
        "In": held in values,
        "NotIn": held not in values,
        "Exists": held is not None,
        "DoesNotExist": held is None,
    }
    return fits.get(str(row.get("operator")), True)


def _leaves_anyway(budget: Live, pod: Live) -> bool:
    """Whether a budget without disruptions keeps no such pod: one that waits to start, or is not ready.

    Source: `canIgnorePDB` and `unhealthyPodEvictionPolicy` of Kubernetes' eviction API.
    """
    if _is_free(pod):
        return True
    if value_at(pod.body, "conditions[Ready].status") == "True":
        return False
    healthy, desired = budget.at("status", "currentHealthy"), budget.at("status", "desiredHealthy")
    is_healthy = isinstance(healthy, int) and isinstance(desired, int) and healthy >= desired > 0
    return budget.at("spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow" or is_healthy


def _is_free(pod: Live) -> bool:
    """Whether the API evicts a pod without asking any budget (`canIgnorePDB`)."""
    return pod.is_terminating or pod.at("status", "phase") == "Pending"


def _titled(pod: Live) -> str:
    return f"{pod.metadata.get('namespace')}/{pod.name}"


def _eviction(pod: Live) -> Request:
    namespace = str(pod.metadata.get("namespace"))
    path = object_path(POD.api, POD.plural, namespace, pod.name)
    # How long it may work on: an inference server or a database asks for minutes.
    grace = pod.at("spec", "terminationGracePeriodSeconds")
    seconds = EVICTION_SECONDS + (grace if isinstance(grace, int) else 0)
    return Request(EVICT, path, {"namespace": namespace, "name": pod.name}, task=seconds)
