"""Questions to a Kubernetes API, and what their answers can be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from provision.kube.kinds import KubeKind

JsonObject = Mapping[str, Any]
"""An object of the API, as JSON types."""

_MOVING = frozenset({"lastHeartbeatTime", "lastProbeTime", "lastUpdateTime", "renewTime"})
"""Times that components renew while nothing happens."""


@dataclass(frozen=True, slots=True)
class Live:
    """An object as the API has it. Two are equal if they differ only in what moves by itself.

    Args:
        meaning: canonical text of what is compared.
        body: all of it.
    """

    meaning: str
    body: JsonObject = field(compare=False, repr=False)

    @classmethod
    def of(cls, body: JsonObject) -> Live:
        """Return an object that the API has answered."""
        return cls(json.dumps(_still(body), sort_keys=True, separators=(",", ":")), body)

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.metadata.get("name", ""))

    @property
    def metadata(self) -> JsonObject:
        """Its metadata; empty where there is none."""
        return _mapping(self.body.get("metadata"))

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return _mapping(self.metadata.get("labels"))

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations."""
        return _mapping(self.metadata.get("annotations"))

    @property
    def is_terminating(self) -> bool:
        """Whether it is being deleted, and finalizers hold it."""
        return "deletionTimestamp" in self.metadata

    def at(self, *path: str) -> Any:
        """Return the value at a path; None where there is none."""
        value: Any = self.body
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value


@dataclass(frozen=True, slots=True)
class Listing:
    """What a LIST answered.

    Args:
        objects: in the order of the API.
        is_served: whether the API knows the kind at all; without its CRD there are no objects.
    """

    objects: tuple[Live, ...] = ()
    is_served: bool = True

    def named(self, name: str) -> Live | None:
        """Return the object of a name."""
        return next((live for live in self.objects if live.name == name), None)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the API says to a change that it would not take.

    Args:
        status: HTTP status.
        message: the API's own.
        conflicts: other managers and the fields that they own: `("kubectl-edit", ".data.x")`.
        not_yet: it may be taken later in this run: its namespace or its kind does not exist yet.
    """

    status: int
    message: str
    conflicts: tuple[tuple[str, str], ...] = ()
    not_yet: bool = False


@dataclass(frozen=True, slots=True)
class Drift:
    """An object beside what applying a desired state would make of it.

    Args:
        live: as it is; None where there is none.
        applied: as it would be, without managed fields; None where nothing would change.
        refusal: why the API would not take it.
    """

    live: Live | None
    applied: Live | None = None
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class ObjectQuery:
    """One object; answer: Live, None when it is not there."""

    kind: ClassVar[str] = "kube-object"
    api: str
    plural: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ListQuery:
    """All objects of a kind, or those that selectors choose; answer: Listing.

    An empty namespace is all of them.
    """

    kind: ClassVar[str] = "kube-list"
    api: str
    plural: str
    namespace: str = ""
    labels: str = ""
    fields: str = ""


@dataclass(frozen=True, slots=True)
class DriftQuery:
    """An object and what applying a manifest would change; answer: Drift.

    An object that has all fields of the manifest, and no further one that we applied before, costs no request
    of its own. Any other is applied with `dryRun=All`.

    Args:
        api: as in `apps/v1`.
        plural: as in `daemonsets`.
        namespace: empty for objects of the cluster.
        name: of the object.
        manifest: JSON text.
        force: whether fields that others own are taken.
    """

    kind: ClassVar[str] = "kube-drift"
    api: str
    plural: str
    namespace: str
    name: str
    manifest: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class JobLog:
    """Last lines of the newest pod of a Job that has failed; answer: lines, empty where none has failed."""

    kind: ClassVar[str] = "kube-job-log"
    namespace: str
    name: str
    lines: int = 20


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """Version of the API server (`v1.35.7+k3s1`); answer: str."""

    kind: ClassVar[str] = "kube-version"


def object_query(kind: KubeKind, name: str, namespace: str = "") -> ObjectQuery:
    """Return the question for an object."""
    return ObjectQuery(kind.api, kind.plural, namespace, name)


def list_query(kind: KubeKind, namespace: str = "", labels: str = "") -> ListQuery:
    """Return the question for all objects of a kind."""
    return ListQuery(kind.api, kind.plural, namespace, labels)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _still(value: Any, key: str = "") -> Any:
    """Return a value without what moves by itself."""
    if isinstance(value, Mapping):
        left_out = {"resourceVersion", "managedFields"} if key == "metadata" else _MOVING
        return {name: _still(inner, name) for name, inner in value.items() if name not in left_out}
    if isinstance(value, list):
        return [_still(item) for item in value]
    return value
