"""A label by which a chart picks its nodes, on exactly the nodes that are to have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.remedy import ApiCall, Request
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.kube.actions import MERGE
from provision.kube.comparison import MANAGER
from provision.kube.facts import NODES, NodeFact, node_fact
from provision.kube.kinds import NODE, object_path
from provision.kube.queries import Listing, ListQuery, Live


@dataclass(frozen=True, slots=True)
class NodeMark(KeyedResource):
    """A label that the declared nodes have, and no other node has from us.

    It is patched, not applied: what `kubernetes_node` applies to the same Node is not ours to drop.

    Args:
        label: its key.
        value: its value.
        nodes: name and address of each Node that is to have it; those that have not joined are left out.
    """

    kind: ClassVar[str] = "node-mark"

    label: str
    value: str
    nodes: tuple[tuple[str, str], ...] = ()

    def _key_name(self) -> str:
        return self.label

    def queries(self) -> tuple[ListQuery, ...]:
        """Ask for all nodes, once for all of them."""
        return (NODES,)

    def _wanted(self, facts: Mapping[str, NodeFact]) -> set[str]:
        names = set()
        for name, address in self.nodes:
            by_address = [fact.name for fact in facts.values() if address in fact.addresses]
            names |= {name} if name in facts else set(by_address[:1])
        return names

    def _changes(self, snapshot: Snapshot) -> Iterator[tuple[str, str | None, str | None]]:
        listing: Listing = snapshot[NODES]
        facts = {live.name: node_fact(live) for live in listing.objects}
        desired = self._wanted(facts)
        for live in listing.objects:
            held = live.labels.get(self.label)
            if live.name in desired and held != self.value:
                yield live.name, held, self.value
            elif live.name not in desired and held is not None and self._is_ours(live):
                yield live.name, held, None

    def _is_ours(self, live: Live) -> bool:
        """Whether we patched the label onto the Node: one that a person or another role set stays."""
        entries = live.metadata.get("managedFields")
        for entry in entries if isinstance(entries, list) else []:
            if not isinstance(entry, Mapping) or entry.get("operation") != "Update":
                continue
            fields: object = entry.get("fieldsV1") if entry.get("manager") == MANAGER else None
            for part in ("f:metadata", "f:labels"):
                fields = fields.get(part) if isinstance(fields, Mapping) else None
            if isinstance(fields, Mapping) and f"f:{self.label}" in fields:
                return True
        return False

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Name the nodes that lack the label, and those that have it from us and are not to."""
        return tuple(
            Change(Op.DELETE if new is None else Op.CREATE if old is None else Op.UPDATE, name, old, new)
            for name, old, new in self._changes(snapshot)
        )

    def fix(self, snapshot: Snapshot, /) -> ApiCall:
        """Set it, or take it away."""
        return ApiCall(
            tuple(
                Request(
                    MERGE,
                    object_path(NODE.api, NODE.plural, "", name),
                    {"metadata": {"labels": {self.label: new}}},
                )
                for name, _, new in self._changes(snapshot)
            )
        )
