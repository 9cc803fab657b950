"""MIG of a node's cards, as the GPU Operator's MIG manager makes it: a label asks, another one answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op, Settles
from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall, Remedy, Request
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.gpu.gpu_effects import GPU_PODS_LOSE_DEVICE
from provision.gpu.resources.stack import Cards
from provision.kube.actions import MERGE
from provision.kube.facts import NODES, NodeFact
from provision.kube.kinds import NODE, object_path
from provision.kube.names import SUBJECT
from provision.kube.queries import ListQuery
from provision.kube.resources.stack import ready_nodes

CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class MigConfig(KeyedResource):
    """The cards of nodes are divided as a named configuration of the MIG manager says.

    The manager stops the operator's pods on the node, divides the cards and starts them again; pods that use
    the cards lose them. A node that is not up is left out.

    Args:
        nodes: with the name of the configuration of each.
        seconds: how long it may take.
    """

    kind: ClassVar[str] = "mig-config"

    nodes: tuple[tuple[Cards, str], ...]
    seconds: float = SECONDS

    def _key_name(self) -> str:
        return "mig"

    def queries(self) -> tuple[ListQuery, ...]:
        """Ask for all nodes."""
        return (NODES,)

    def _rows(self, snapshot: Snapshot) -> Iterator[tuple[str, NodeFact, str]]:
        configs = {cards.node: config for cards, config in self.nodes}
        for cards, fact in ready_nodes(snapshot[NODES], [cards for cards, _ in self.nodes]):
            yield cards.node, fact, configs[cards.node]

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Compare the label, then what the manager says of it."""
        changes: list[Change] = []
        for node, fact, config in self._rows(snapshot):
            held, state = fact.labels.get(CONFIG), fact.labels.get(STATE)
            if held != config:
                changes.append(Change(Op.UPDATE if held else Op.CREATE, node, held, config))
            elif state == "failed":
                changes.append(Change(Op.ATTENTION, f"{node}: state", state, "success"))
            elif state != "success":
                old = state or "not begun"
                changes.append(
                    Change(Op.ATTENTION, f"{node}: state", old, "success", Settles.WITHIN, self.seconds)
                )
        return tuple(changes)

    def fix(self, snapshot: Snapshot, /) -> Remedy:
        """Set the labels; what the manager then does is waited for."""
        rows = list(self._rows(snapshot))
        requests = [
            Request(
                MERGE,
                object_path(NODE.api, NODE.plural, "", fact.name),
                {"metadata": {"labels": {CONFIG: config, STATE: "pending"}}},
            )
            for _, fact, config in rows
            if fact.labels.get(CONFIG) != config
        ]
        if requests:
            return ApiCall(tuple(requests), risks=(Effect(GPU_PODS_LOSE_DEVICE),))
        failed = [(node, fact) for node, fact, _ in rows if fact.labels.get(STATE) != "success"]
        return self._refused(
            "MIG_NOT_APPLIED",
            f"the MIG manager has not divided the cards of {', '.join(node for node, _ in failed)}",
            subject=SUBJECT,
            evidence=tuple(f"{node}: {fact.labels.get(STATE) or 'not begun'}" for node, fact in failed),
            untouched="What was installed stays as it is.",
            remedy="End the pods that use the cards; see `kubectl logs -A -l app=nvidia-mig-manager`.",
        )
