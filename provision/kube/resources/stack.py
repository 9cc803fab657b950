"""What operators bring to a cluster is ready: the part that all such proofs share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeVar

from provision.contracts.change import Change, Op, Settles
from provision.contracts.remedy import Remedy
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.kube.facts import NODES, NodeFact, node_fact
from provision.kube.names import SUBJECT
from provision.kube.queries import Listing, Live
from provision.kube.readiness import State, readiness

READY_SECONDS = 900.0
_MOST_PROBLEMS = 10


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be.

    Args:
        path: what, as plans show it.
        code: of the diagnostic.
        text: what the cluster says.
        remedy: what to do.
        heals: whether waiting may help.
        lines: of a log.
    """

    path: str
    code: str
    text: str
    remedy: str
    heals: bool = True
    lines: tuple[str, ...] = ()


class Place(Protocol):
    """A machine of which a proof expects something."""

    @property
    def kube_name(self) -> str:
        """Its Node, by name."""

    @property
    def address(self) -> str:
        """Its Node, by address."""


P = TypeVar("P", bound=Place)


@dataclass(frozen=True, slots=True)
class StackResource(KeyedResource):
    """A proof: it names problems, waits for those that heal, and refuses with the first of them.

    A node that is not Ready, or not there, is not waited for: its own steps and checks say so.

    Args:
        seconds: how long it may take.
    """

    title: ClassVar[str]
    """What is not ready, with its verb: `the GPU stack is`."""

    seconds: float = field(default=READY_SECONDS, kw_only=True)

    def problems(self, snapshot: Snapshot) -> Iterator[Problem]:
        """Yield what is not as it should be, causes before what follows from them."""
        raise NotImplementedError

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Name what is missing."""
        return tuple(
            Change(Op.ATTENTION, problem.path, problem.text, "ready", Settles.WITHIN, self.seconds)
            if problem.heals
            else Change(Op.ATTENTION, problem.path, problem.text, "ready")
            for problem in self.problems(snapshot)
        )

    def fix(self, snapshot: Snapshot, /) -> Remedy:
        """Say what is missing first: controllers in the cluster bring the rest about."""
        problems = list(self.problems(snapshot))
        first = next((problem for problem in problems if not problem.heals), problems[0])
        evidence = (f"{problem.path}: {problem.text}" for problem in problems[:_MOST_PROBLEMS])
        return self._refused(
            first.code,
            f"{self.title} not ready: {first.path}: {first.text}",
            subject=SUBJECT,
            evidence=(*evidence, *first.lines),
            untouched="What was installed stays as it is.",
            remedy=first.remedy,
        )


def ready_nodes(nodes: Listing, places: Sequence[P]) -> list[tuple[P, NodeFact]]:
    """Return machines whose Node, by its name, else by its address, is there and Ready."""
    facts = [node_fact(live) for live in nodes.objects]
    pairs = ((place, _fact_of(facts, place)) for place in places)
    return [(place, fact) for place, fact in pairs if fact is not None and fact.is_ready]


def _fact_of(facts: Sequence[NodeFact], place: Place) -> NodeFact | None:
    named = next((fact for fact in facts if fact.name == place.kube_name), None)
    return named or next((fact for fact in facts if place.address in fact.addresses), None)


def daemon_set_problems(
    snapshot: Snapshot, daemon_sets: Listing, namespace: str, code: str
) -> Iterator[Problem]:
    """Yield DaemonSets with fewer ready pods than there are Ready nodes for them."""
    nodes: Listing = snapshot[NODES]
    away = sum(not fact.is_ready for fact in map(node_fact, nodes.objects))
    for live in daemon_sets.objects:
        verdict = readiness(live.body)
        if verdict.state is State.READY:
            continue
        desired, ready = live.at("status", "desiredNumberScheduled"), live.at("status", "numberReady")
        generation = live.at("status", "observedGeneration")
        is_old = isinstance(generation, int) and generation < int(live.metadata.get("generation") or 0)
        are_counts = isinstance(desired, int) and isinstance(ready, int)
        if are_counts and not is_old and ready + away >= desired:
            continue  # the pods that are missing are on nodes that are not up
        remedy = f"See `kubectl -n {namespace} describe daemonset {live.name}`."
        yield Problem(live.name, code, verdict.reason, remedy)


def has_ready_pod(pods: Listing, node_name: str) -> bool:
    """Whether a pod on a node is ready."""
    own: Iterator[Live] = (live for live in pods.objects if live.at("spec", "nodeName") == node_name)
    return any(readiness(live.body).state is State.READY for live in own)
