"""What the inventory says of a Node object: labels, annotations, taints. The object itself is not ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.remedy import ApiCall, Remedy, Request
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.kube.actions import FORCE, JSON_PATCH, wait_request
from provision.kube.comparison import MANAGER
from provision.kube.facts import NODES, Taint, node_fact
from provision.kube.kinds import NODE, object_path
from provision.kube.names import OWNER, TAINTS
from provision.kube.queries import Listing, ListQuery, Live

JOIN_SECONDS = 300.0
"""Until a machine on which k3s has started is Ready: its first images are imported meanwhile."""
Pairs = tuple[tuple[str, str], ...]


def parse_taint(text: str) -> Taint:
    """Return a taint as the inventory spells it: `key=value:Effect`, or `key:Effect`."""
    left, _, effect = text.rpartition(":")
    key, _, value = left.partition("=")
    return Taint(key, value, effect)


@dataclass(frozen=True, slots=True)
class NodeSettings(KeyedResource):
    """Labels, annotations and taints of a Node that is there.

    What we set before and the inventory does not declare any more is removed; everything else is left alone.

    Args:
        name: of the Node.
        labels: by key.
        annotations: by key.
        taints: all of ours.
        owner: name of the inventory that made the machine a node; empty for nodes of others.
        joins: it is waited for until it is Ready: k3s runs on its machine, and registers it by itself.
    """

    kind: ClassVar[str] = "kube-node"

    name: str
    labels: Pairs = ()
    annotations: Pairs = ()
    taints: tuple[Taint, ...] = ()
    owner: str = ""
    joins: bool = False

    def _key_name(self) -> str:
        return self.name

    def queries(self) -> tuple[ListQuery, ...]:
        """Ask for all nodes, once for all of them."""
        return (NODES,)

    def _live(self, snapshot: Snapshot) -> Live | None:
        listing: Listing = snapshot[NODES]
        return listing.named(self.name)

    def _annotations(self) -> dict[str, str]:
        """Return the annotations, with those that name our taints and whose node it is."""
        ours = (
            {TAINTS: ",".join(f"{taint.key}:{taint.effect}" for taint in self.taints)} if self.taints else {}
        )
        ours |= {OWNER: self.owner} if self.owner else {}
        return {**dict(self.annotations), **ours}

    def _desired_taints(self, live: Live) -> tuple[Taint, ...]:
        recorded = set(filter(None, live.annotations.get(TAINTS, "").split(",")))
        ours = recorded | {f"{taint.key}:{taint.effect}" for taint in self.taints}
        others = [taint for taint in node_fact(live).taints if f"{taint.key}:{taint.effect}" not in ours]
        return (*others, *self.taints)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Compare what is declared, and what we set before."""
        live = self._live(snapshot)
        if live is None:
            op = Op.CREATE if self.joins else Op.ATTENTION
            return (Change(op, "node", None, self.name),)
        changes = [
            *_pairs("labels", live.labels, dict(self.labels), _owned(live, "labels")),
            *_pairs("annotations", live.annotations, self._annotations(), _owned(live, "annotations")),
        ]
        before, after = node_fact(live).taints, self._desired_taints(live)
        changes += [Change(Op.DELETE, "taints", str(taint), None) for taint in before if taint not in after]
        changes += [Change(Op.CREATE, "taints", None, str(taint)) for taint in after if taint not in before]
        return tuple(changes)

    def fix(self, snapshot: Snapshot, /) -> Remedy:
        """Apply labels and annotations by force: what the inventory declares of a node is ours."""
        live = self._live(snapshot)
        if live is None and self.joins:  # its taints come with the registration
            ready = wait_request(NODE.api, NODE.plural, "", self.name, JOIN_SECONDS)
            return ApiCall((ready, self._own_fields()))
        if live is None:
            return self._refused(
                "NODE_NOT_IN_CLUSTER",
                f"the cluster has no node {self.name}",
                remedy="See `kubectl get nodes`; name its Node with nodes.*.kube_name.",
            )
        path = object_path(NODE.api, NODE.plural, "", self.name)
        requests: list[Request] = []
        before, after = node_fact(live).taints, self._desired_taints(live)
        if set(before) != set(after):
            requests.append(Request(JSON_PATCH, path, {"operations": _taint_patch(live, after)}))
        return ApiCall((*requests, self._own_fields()))

    def _own_fields(self) -> Request:
        """Return the request that applies labels and annotations."""
        metadata: dict[str, Any] = {"name": self.name}
        metadata |= {"labels": dict(self.labels)} if self.labels else {}
        annotations = self._annotations()
        metadata |= {"annotations": annotations} if annotations else {}
        manifest = {"apiVersion": NODE.api, "kind": NODE.name, "metadata": metadata}
        return Request(FORCE, object_path(NODE.api, NODE.plural, "", self.name), manifest)


def _taint_patch(live: Live, after: tuple[Taint, ...]) -> list[dict[str, object]]:
    """Return a JSON patch that fails if somebody changed the taints in the meantime."""
    rows = [
        {"key": taint.key, "effect": taint.effect, **({"value": taint.value} if taint.value else {})}
        for taint in after
    ]
    held = live.at("spec", "taints")
    if not held:
        return [{"op": "add", "path": "/spec/taints", "value": rows}]
    # Times in taints of controllers are kept: only our own rows are written from scratch.
    known = {(row.get("key"), row.get("effect"), row.get("value", "")): row for row in held}
    kept = [
        known.get((taint.key, taint.effect, taint.value), row) for taint, row in zip(after, rows, strict=True)
    ]
    test = {"op": "test", "path": "/spec/taints", "value": held}
    return [test, {"op": "replace", "path": "/spec/taints", "value": kept}]


def _pairs(name: str, live: Mapping[str, str], desired: Mapping[str, str], owned: set[str]) -> list[Change]:
    changes = []
    for key, value in desired.items():
        old = live.get(key)
        if old != value:
            changes.append(Change(Op.CREATE if old is None else Op.UPDATE, f"{name}[{key}]", old, value))
    dropped = sorted((owned - set(desired)) & set(live))
    return [*changes, *(Change(Op.DELETE, f"{name}[{key}]", live[key], None) for key in dropped)]


def _owned(live: Live, section: str) -> set[str]:
    """Return the keys of labels or annotations that we applied before."""
    entries = live.metadata.get("managedFields")
    keys: set[str] = set()
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and (entry.get("manager"), entry.get("operation")) == (
            MANAGER,
            "Apply",
        ):
            fields: object = entry.get("fieldsV1")
            for part in ("f:metadata", f"f:{section}"):
                fields = fields.get(part) if isinstance(fields, Mapping) else None
            if isinstance(fields, Mapping):
                keys |= {str(key).removeprefix("f:") for key in fields if str(key).startswith("f:")}
    return keys
