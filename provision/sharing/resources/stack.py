"""A mode of sharing is at work: HAMi offers slots on each GPU node, KAI's controllers are available."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op, Settles
from provision.contracts.remedy import Remedy
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.gpu.operator_values import RESOURCE
from provision.gpu.resources.stack import Cards, Problem, fact_of
from provision.kube.facts import NODES, NodeFact
from provision.kube.kinds import DEPLOYMENT, POD
from provision.kube.names import SUBJECT
from provision.kube.queries import Listing, ListQuery, list_query
from provision.kube.readiness import State, readiness
from provision.sharing.names import HAMI_NAMESPACE, HAMI_PODS, HAMI_SCHEDULER, KAI_DEPLOYMENTS, KAI_NAMESPACE

READY_SECONDS = 600.0
MEMORY_LABEL = "nvidia.com/gpu.memory"
"""Label of GPU Feature Discovery, without which KAI cannot place a part of a card."""


@dataclass(frozen=True, slots=True)
class Stack(KeyedResource):
    """What a mode's chart brings runs, and GPU nodes that are up have what the mode needs of them.

    A node that is not Ready, or not there, is not waited for: its own steps and checks say so.

    Args:
        cards: what is declared, by node.
        seconds: how long it may take.
    """

    kind: ClassVar[str] = "sharing-stack"

    cards: tuple[Cards, ...]
    seconds: float = READY_SECONDS

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Name what is missing."""
        return tuple(
            Change(Op.ATTENTION, problem.path, problem.text, "ready", Settles.WITHIN, self.seconds)
            for problem in self._problems(snapshot)
        )

    def fix(self, snapshot: Snapshot, /) -> Remedy:
        """Say what is missing first: the chart's own controllers bring the rest about."""
        problems = list(self._problems(snapshot))
        first = problems[0]
        return self._refused(
            first.code,
            f"GPU sharing is not ready: {first.path}: {first.text}",
            subject=SUBJECT,
            evidence=tuple(f"{problem.path}: {problem.text}" for problem in problems[:10]),
            untouched="What was installed stays as it is.",
            remedy=first.remedy,
        )

    def _problems(self, snapshot: Snapshot) -> Iterator[Problem]:
        raise NotImplementedError

    def _up(self, snapshot: Snapshot) -> Iterator[tuple[Cards, NodeFact]]:
        nodes: Listing = snapshot[NODES]
        for cards in self.cards:
            fact = fact_of(nodes, cards)
            if fact is not None and fact.is_ready:
                yield cards, fact

    def _deployments(self, snapshot: Snapshot, namespace: str, names: tuple[str, ...]) -> Iterator[Problem]:
        listing: Listing = snapshot[list_query(DEPLOYMENT, namespace)]
        remedy = f"See `kubectl -n {namespace} get pods`, and the log of the one that is not ready."
        for name in names:
            live = listing.named(name)
            verdict = readiness(live.body) if live is not None else None
            if verdict is None or verdict.state is not State.READY:
                text = "not there" if verdict is None else verdict.reason
                yield Problem(name, "SHARING_NOT_READY", text, remedy)


@dataclass(frozen=True, slots=True)
class HamiStack(Stack):
    """HAMi schedules, and each GPU node that is up offers its slots under a ready plugin pod."""

    def _key_name(self) -> str:
        return "hami"

    def queries(self) -> tuple[ListQuery, ...]:
        """Ask for the scheduler, the plugin's pods and the nodes."""
        return (list_query(DEPLOYMENT, HAMI_NAMESPACE), list_query(POD, HAMI_NAMESPACE, HAMI_PODS), NODES)

    def _problems(self, snapshot: Snapshot) -> Iterator[Problem]:
        yield from self._deployments(snapshot, HAMI_NAMESPACE, (HAMI_SCHEDULER,))
        plugins: Listing = snapshot[list_query(POD, HAMI_NAMESPACE, HAMI_PODS)]
        for cards, fact in self._up(snapshot):
            if not cards.offered:
                continue
            # After a reboot the kubelet offers the slots of before, without a plugin.
            own = [live for live in plugins.objects if live.at("spec", "nodeName") == fact.name]
            if not any(readiness(live.body).state is State.READY for live in own):
                text = "no ready pod of HAMi's device plugin"
                remedy = f"See `kubectl -n {HAMI_NAMESPACE} get pods -o wide`."
                yield Problem(f"{cards.node}: plugin", "HAMI_PLUGIN_MISSING", text, remedy)
            offered = fact.allocatable.get(RESOURCE, "0")
            if offered != str(cards.offered):
                text = f"{offered} {RESOURCE} allocatable, {cards.offered} slots are declared"
                remedy = f"See the GPUs of the node itself: `provision verify --target {cards.node}`."
                yield Problem(f"{cards.node}: slots", "HAMI_SLOTS_WRONG", text, remedy)


@dataclass(frozen=True, slots=True)
class KaiStack(Stack):
    """KAI's controllers are available, and with fractions each GPU node that is up says its memory.

    Args:
        fractions: whether pods may ask for a part of a card.
    """

    fractions: bool = False

    def _key_name(self) -> str:
        return "kai"

    def queries(self) -> tuple[ListQuery, ...]:
        """Ask for the controllers and the nodes."""
        return (list_query(DEPLOYMENT, KAI_NAMESPACE), NODES)

    def _problems(self, snapshot: Snapshot) -> Iterator[Problem]:
        yield from self._deployments(snapshot, KAI_NAMESPACE, KAI_DEPLOYMENTS)
        for cards, fact in self._up(snapshot) if self.fractions else ():
            if not fact.labels.get(MEMORY_LABEL, "").isdigit():
                text = f"no amount in the label {MEMORY_LABEL}"
                remedy = "See the log of gpu-feature-discovery on that node; or declare `fractions: false`."
                yield Problem(f"{cards.node}: labels", "KAI_MEMORY_LABEL_MISSING", text, remedy)
