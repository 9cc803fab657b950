"""A mode of sharing is at work: HAMi offers slots on each GPU node, KAI's controllers are available."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from provision.contracts.snapshot import Snapshot
from provision.gpu.operator_values import RESOURCE
from provision.gpu.resources.stack import Cards
from provision.kube.facts import NODES, NodeFact
from provision.kube.kinds import DAEMON_SET, DEPLOYMENT, POD
from provision.kube.queries import Listing, ListQuery, Live, ObjectQuery, list_query
from provision.kube.readiness import State, readiness
from provision.kube.resources.stack import Problem, StackResource, has_ready_pod, ready_nodes
from provision.sharing import fractions
from provision.sharing.names import HAMI_NAMESPACE, HAMI_PODS, HAMI_SCHEDULER, KAI_DEPLOYMENTS, KAI_NAMESPACE
from provision.values.numbers import is_number

SHARING_SECONDS = 600.0
MEMORY_LABEL = "nvidia.com/gpu.memory"
"""Label of GPU Feature Discovery, without which KAI cannot place a part of a card."""


@dataclass(frozen=True, slots=True)
class Stack(StackResource):
    """What a mode's chart brings runs, and GPU nodes that are up have what the mode needs of them.

    Args:
        cards: what is declared, by node.
    """

    kind: ClassVar[str] = "sharing-stack"
    title: ClassVar[str] = "GPU sharing is"

    cards: tuple[Cards, ...]
    seconds: float = field(default=SHARING_SECONDS, kw_only=True)

    def _up(self, snapshot: Snapshot) -> list[tuple[Cards, NodeFact]]:
        return ready_nodes(snapshot[NODES], self.cards)

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

    def problems(self, snapshot: Snapshot) -> Iterator[Problem]:
        """Yield what is missing."""
        yield from self._deployments(snapshot, HAMI_NAMESPACE, (HAMI_SCHEDULER,))
        plugins: Listing = snapshot[list_query(POD, HAMI_NAMESPACE, HAMI_PODS)]
        for cards, fact in self._up(snapshot):
            if not cards.offered:
                continue
            # After a reboot the kubelet offers the slots of before, without a plugin.
            if not has_ready_pod(plugins, fact.name):
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

    def queries(self) -> tuple[ListQuery | ObjectQuery, ...]:
        """Ask for the controllers and the nodes."""
        return (list_query(DEPLOYMENT, KAI_NAMESPACE), NODES)

    def problems(self, snapshot: Snapshot) -> Iterator[Problem]:
        """Yield what is missing."""
        yield from self._deployments(snapshot, KAI_NAMESPACE, KAI_DEPLOYMENTS)
        for cards, fact in self._up(snapshot) if self.fractions else ():
            if not is_number(fact.labels.get(MEMORY_LABEL, "")):
                text = f"no amount in the label {MEMORY_LABEL}"
                remedy = "See the log of gpu-feature-discovery on that node; or declare `fractions: false`."
                yield Problem(f"{cards.node}: labels", "KAI_MEMORY_LABEL_MISSING", text, remedy)


@dataclass(frozen=True, slots=True)
class FractionsStack(KaiStack):
    """KAI's controllers are available, and the daemons of GPU fractions run on each GPU node that is up."""

    def _key_name(self) -> str:
        return "kai-fractions"

    def queries(self) -> tuple[ListQuery | ObjectQuery, ...]:
        """Ask for the controllers, the nodes, the daemons and the configuration of GPU fractions."""
        daemons = list_query(DAEMON_SET, fractions.NAMESPACE)
        return (list_query(DEPLOYMENT, KAI_NAMESPACE), NODES, daemons, fractions.DEFAULT)

    def problems(self, snapshot: Snapshot) -> Iterator[Problem]:
        """Yield what is missing, or what fractions refuse."""
        yield from KaiStack.problems(self, snapshot)
        config: Live | None = snapshot[fractions.DEFAULT]
        verdict = fractions.READY.of(config.body) if config is not None else None
        if verdict is None or verdict.state is not State.READY:
            text = "not there" if verdict is None else verdict.reason
            heals = verdict is None or verdict.state is State.WAITING
            remedy = "See `kubectl get gpufractioningconfig default -o yaml`."
            yield Problem("GpuFractioningConfig default", "FRACTIONS_NOT_READY", text, remedy, heals)
        daemons: Listing = snapshot[list_query(DAEMON_SET, fractions.NAMESPACE)]
        for name in fractions.DAEMONS if self._up(snapshot) else ():
            live = daemons.named(name)
            verdict = readiness(live.body) if live is not None else None
            if verdict is None or verdict.state is not State.READY:
                text = "not there" if verdict is None else verdict.reason
                remedy = f"See `kubectl -n {fractions.NAMESPACE} describe daemonset {name}`."
                yield Problem(name, "FRACTIONS_NOT_READY", text, remedy)
