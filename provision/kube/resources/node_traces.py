"""What an operator and its plugins have written on nodes, which outlives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.remedy import ApiCall, Request
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.kube.actions import MERGE, wait_request
from provision.kube.comparison import MANAGER
from provision.kube.facts import NODES
from provision.kube.kinds import NODE, object_path
from provision.kube.queries import JsonObject, Listing, ListQuery, Live
from provision.kube.readiness import READY, Conditions, Readiness, State, readiness

_METADATA = (("metadata", "labels"), ("metadata", "annotations"))
_STATUS = (("status", "capacity"), ("status", "allocatable"))
_PEOPLE = ("kubectl", MANAGER)
FORGOTTEN_SECONDS = 420.0
"""A kubelet forgets a plugin five minutes after its end (`endpointStopGracePeriod`), and writes its resource
back until then: measured with Kubernetes 1.36.2, by the next report of the node."""


@dataclass(frozen=True, slots=True)
class Forgotten(Conditions):
    """The kubelet of a Node counts nothing of some resources any more, or does not report.

    Args:
        resources: by their names.
    """

    ready: tuple[tuple[str, str], ...] = ()
    resources: tuple[str, ...] = ()

    def of(self, body: JsonObject) -> Readiness:
        """Judge a Node."""
        node = Live.of(body)
        capacity = node.at("status", "capacity") or {}
        held = [name for name in self.resources if str(capacity.get(name, "0")) != "0"]
        if not held or readiness({**body, "kind": NODE.name}).state is not State.READY:
            return READY
        return Readiness(State.WAITING, f"its kubelet still knows the plugin of {', '.join(held)}")


@dataclass(frozen=True, slots=True)
class NodeTraces(KeyedResource):
    """Labels, annotations and amounts of resources that nobody looks after any more are gone from all nodes.

    A kubelet keeps the resource of a plugin that is gone, with the amount 0, for ever
    (kubernetes/kubernetes#92396). What a person has set with kubectl stays, and what we declare of a Node.

    Args:
        name: whose traces they are.
        prefixes: with which keys begin, as `nvidia.com/`.
        kept: keys that somebody else goes on with.
        own: keys that we wrote for the operator; other keys of ours are declared of the Node itself.
    """

    kind: ClassVar[str] = "node-traces"

    name: str
    prefixes: tuple[str, ...]
    kept: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    def _key_name(self) -> str:
        return self.name

    def queries(self) -> tuple[ListQuery, ...]:
        """Ask for all nodes, once for all of them."""
        return (NODES,)

    def _traces(self, live: Live) -> Iterator[tuple[str, str, str]]:
        """Yield section, field and key of each trace on a Node."""
        for section, field in (*_METADATA, *_STATUS):
            rows = live.at(section, field)
            for key in rows if isinstance(rows, Mapping) else ():
                is_set = section == "metadata" and _is_set_by(self._others(str(key)), live, field, str(key))
                if str(key).startswith(self.prefixes) and key not in self.kept and not is_set:
                    yield section, field, str(key)

    def _others(self, key: str) -> tuple[str, ...]:
        return ("kubectl",) if key in self.own else _PEOPLE

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Name the nodes with traces, and how many."""
        listing: Listing = snapshot[NODES]
        rows = ((live.name, sorted({key for *_, key in self._traces(live)})) for live in listing.objects)
        return tuple(Change(Op.DELETE, name, ", ".join(keys), None) for name, keys in rows if keys)

    def fix(self, snapshot: Snapshot, /) -> ApiCall:
        """Take them away; amounts are in the status, which is patched by a path of its own."""
        listing: Listing = snapshot[NODES]
        requests = []
        for live in listing.objects:
            path = object_path(NODE.api, NODE.plural, "", live.name)
            bodies: dict[str, dict[str, dict[str, Any]]] = {}
            for section, field, key in self._traces(live):
                bodies.setdefault(section, {}).setdefault(field, {})[key] = None
            if amounts := bodies.get("status"):
                names = tuple(sorted({key for rows in amounts.values() for key in rows}))
                forgotten = Forgotten(resources=names)
                requests.append(
                    wait_request(NODE.api, NODE.plural, "", live.name, FORGOTTEN_SECONDS, forgotten)
                )
            for section, body in bodies.items():
                requests.append(Request(MERGE, path + "/status" * (section == "status"), {section: body}))
        return ApiCall(tuple(requests))


def _is_set_by(managers: tuple[str, ...], live: Live, field: str, key: str) -> bool:
    """Whether one of these programs has set a label or an annotation."""
    entries = live.metadata.get("managedFields")
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, Mapping) or not str(entry.get("manager", "")).startswith(managers):
            continue
        fields: object = entry.get("fieldsV1")
        for part in ("f:metadata", f"f:{field}"):
            fields = fields.get(part) if isinstance(fields, Mapping) else None
        if isinstance(fields, Mapping) and f"f:{key}" in fields:
            return True
    return False
