"""Objects of a cluster: applied server-side, proven ready, removed, and pruned by label."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from provision.contracts.change import Change, Op, Settles
from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall, Remedy, Request
from provision.contracts.resource import AnswerId, KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.kube import refusals
from provision.kube.actions import KIND_SECONDS, apply_request, not_ready, wait_request
from provision.kube.comparison import differences
from provision.kube.kinds import KubeKind, object_path
from provision.kube.names import SUBJECT, labels_of
from provision.kube.queries import Drift, DriftQuery, Listing, ListQuery, Live, ObjectQuery
from provision.kube.readiness import Conditions, Readiness, State, readiness
from provision.values.diagnostics import Source

READY_SECONDS = 300.0
REMOVAL_SECONDS = 300.0
MOST_SHOWN = 40
"""Fields of one object that a plan shows."""


@dataclass(frozen=True, slots=True)
class KubeObject(KeyedResource):
    """An object that is as a manifest says, and ready.

    No secret belongs in a manifest: it is a part of questions, which the controller remembers.

    Args:
        of: kind of the object.
        manifest: JSON text; see `kube_object`.
        seconds: how long it may take until it is ready; 0 if nobody waits.
        conditions: when it is ready, where its kind does not say that itself.
        force: take fields that other managers own.
        risks: consents that a change needs.
        affected: answers that a change alters for others.
        arrival: how long its kind may take to come, which a chart brings.
    """

    kind: ClassVar[str] = "kube-object"

    of: KubeKind
    manifest: str
    seconds: float = READY_SECONDS
    conditions: Conditions | None = None
    force: bool = False
    risks: tuple[Effect, ...] = ()
    affected: tuple[AnswerId, ...] = ()
    arrival: float = KIND_SECONDS

    @property
    def body(self) -> dict[str, Any]:
        """The manifest."""
        body: dict[str, Any] = json.loads(self.manifest)
        return body

    @property
    def place(self) -> tuple[str, str]:
        """Namespace (empty for objects of the cluster) and name."""
        metadata = self.body["metadata"]
        return metadata.get("namespace", ""), metadata["name"]

    def _key_name(self) -> str:
        return titled(self.of, *self.place)

    @property
    def _query(self) -> DriftQuery:
        return DriftQuery(self.of.api, self.of.plural, *self.place, self.manifest, self.force)

    def queries(self) -> tuple[DriftQuery, ...]:
        """Ask what applying it would change."""
        return (self._query,)

    def affects(self, changes: Sequence[Change], /) -> frozenset[AnswerId]:
        """Return what others may read of it."""
        return frozenset(self.affected) if changes else frozenset()

    def creation(self) -> tuple[Change, ...]:
        """Return the change that makes it."""
        return (Change(Op.CREATE, "object", None, titled(self.of, *self.place)),)

    def _readiness(self, live: Live) -> Readiness:
        if not self.seconds:
            return Readiness(State.READY)
        return readiness(live.body) if self.conditions is None else self.conditions.of(live.body)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Compare the object with what a dry run made of it; one that is as desired may not be ready yet."""
        drift: Drift = snapshot[self._query]
        if drift.live is None:
            return self.creation()
        if drift.refusal is not None and not drift.refusal.not_yet:
            return (Change(Op.ATTENTION, "manifest", drift.refusal.message, "accepted"),)
        if drift.applied is not None:
            changes = [
                Change(Op.UPDATE if old is not None else Op.CREATE, path, old, new)
                if new is not None
                else Change(Op.DELETE, path, old, None)
                for path, old, new in differences(drift.live.body, drift.applied.body)
            ]
            return tuple(changes[:MOST_SHOWN]) or (Change(Op.UPDATE, "managed fields", "other", "provision"),)
        verdict = self._readiness(drift.live)
        if verdict.state is State.READY:
            return ()
        if verdict.state is State.BROKEN:
            return (Change(Op.ATTENTION, "ready", verdict.reason, "ready"),)
        return (Change(Op.ATTENTION, "ready", verdict.reason, "ready", Settles.WITHIN, self.seconds),)

    def fix(self, snapshot: Snapshot, /) -> Remedy:
        """Apply it and wait until it is ready; an object that is only not ready yet is waited for."""
        drift: Drift = snapshot[self._query]
        what = titled(self.of, *self.place)
        if drift.refusal is not None and not drift.refusal.not_yet:
            problem = refusals.diagnostic_of(drift.refusal, what, SUBJECT)
            return self._refused(
                problem.code,
                problem.summary,
                subject=SUBJECT,
                evidence=problem.evidence,
                untouched=problem.untouched,
                remedy=problem.remedy,
            )
        if drift.live is not None and drift.applied is None and drift.refusal is None:
            problem = not_ready(what, self._readiness(drift.live), self.seconds, SUBJECT)
            return self._refused(
                problem.code,
                problem.summary,
                subject=SUBJECT,
                untouched=problem.untouched,
                remedy=problem.remedy,
            )
        applied = apply_request(
            self.of.api, self.of.plural, self.body, force=self.force, seconds=self.arrival
        )
        requests = [applied]
        if self.seconds:
            wait = wait_request(self.of.api, self.of.plural, *self.place, self.seconds, self.conditions)
            requests.append(wait)
        return ApiCall(tuple(requests), risks=self.risks)


@dataclass(frozen=True, slots=True)
class KubeAbsent(KeyedResource):
    """An object that is not there; one with finalizers is waited for.

    Args:
        of: kind of the object.
        namespace: empty for objects of the cluster.
        name: of the object.
        seconds: how long its removal may take.
        risks: consents that its removal needs.
    """

    kind: ClassVar[str] = "kube-object"

    of: KubeKind
    namespace: str
    name: str
    seconds: float = REMOVAL_SECONDS
    risks: tuple[Effect, ...] = ()

    def _key_name(self) -> str:
        return titled(self.of, self.namespace, self.name)

    @property
    def _query(self) -> ObjectQuery:
        return ObjectQuery(self.of.api, self.of.plural, self.namespace, self.name)

    def queries(self) -> tuple[ObjectQuery, ...]:
        """Ask for the object."""
        return (self._query,)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """An object that is being deleted is still there."""
        live: Live | None = snapshot[self._query]
        if live is None:
            return ()
        return (Change(Op.DELETE, "object", "being deleted" if live.is_terminating else "present", None),)

    def fix(self, snapshot: Snapshot, /) -> ApiCall:
        """Delete it, and wait until its finalizers are gone."""
        del snapshot
        path = object_path(self.of.api, self.of.plural, self.namespace, self.name)
        return ApiCall((deletion(path, self.seconds),), risks=self.risks)


@dataclass(frozen=True, slots=True)
class KubePruned(KeyedResource):
    """Objects of a kind with some labels, of which only the named ones are there.

    Args:
        of: kind of the objects.
        namespace: empty for all namespaces.
        labels: label selector of what a role has made.
        keep: `namespace/name`, or the name alone for objects of the cluster.
        seconds: how long the removal of each may take.
        risks: consents that their removal needs.
        parent: field of `spec` that names an object's parent, which is not deleted before its children.
    """

    kind: ClassVar[str] = "kube-pruned"

    of: KubeKind
    namespace: str
    labels: str
    keep: tuple[str, ...]
    seconds: float = REMOVAL_SECONDS
    risks: tuple[Effect, ...] = ()
    parent: str = ""

    def _key_name(self) -> str:
        return f"{self.of.name} {self.labels}"

    @property
    def _query(self) -> ListQuery:
        return ListQuery(self.of.api, self.of.plural, self.namespace, self.labels)

    def queries(self) -> tuple[ListQuery, ...]:
        """Ask for all of them."""
        return (self._query,)

    def _orphans(self, snapshot: Snapshot) -> list[Live]:
        listing: Listing = snapshot[self._query]
        parents = {live.name: str(live.at("spec", self.parent) or "") for live in listing.objects}

        def depth(name: str) -> int:
            visited: set[str] = set()
            while name in parents and name not in visited:
                visited.add(name)
                name = parents[name]
            return len(visited)

        orphans = [live for live in listing.objects if _full_name(live) not in self.keep]
        return sorted(orphans, key=lambda live: -depth(live.name)) if self.parent else orphans

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Name what is there and not declared any more."""
        return tuple(Change(Op.DELETE, _full_name(live), "present", None) for live in self._orphans(snapshot))

    def fix(self, snapshot: Snapshot, /) -> ApiCall:
        """Delete it."""
        requests = []
        for live in self._orphans(snapshot):
            namespace = str(live.metadata.get("namespace") or "")
            path = object_path(self.of.api, self.of.plural, namespace, live.name)
            requests.append(deletion(path, self.seconds))
        return ApiCall(tuple(requests), risks=self.risks)


def deletion(path: str, seconds: float) -> Request:
    """Return the request that deletes an object and waits until it is gone."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}
    return Request("DELETE", path, options, task=seconds)


def _full_name(live: Live) -> str:
    namespace = live.metadata.get("namespace")
    return f"{namespace}/{live.name}" if namespace else live.name


def titled(of: KubeKind, namespace: str, name: str) -> str:
    """Return what an object is called: `DaemonSet gpu-operator/driver`."""
    return f"{of.name} {namespace}/{name}" if namespace else f"{of.name} {name}"


def manifest_text(body: Mapping[str, Any]) -> str:
    """Return a manifest as canonical JSON text."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


def kube_object(
    system: str,
    of: KubeKind,
    name: str,
    fields: Mapping[str, Any] | None = None,
    *,
    role: str,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    seconds: float = READY_SECONDS,
    conditions: Conditions | None = None,
    force: bool = False,
    risks: tuple[Effect, ...] = (),
    affected: tuple[AnswerId, ...] = (),
    arrival: float = KIND_SECONDS,
    source: Source | None = None,
) -> KubeObject:
    """Return an object of a role.

    Args:
        system: the cluster's API.
        of: kind of the object.
        name: of the object.
        fields: what the manifest has beside its type and metadata (`{"spec": ...}`).
        role: which role declares it; a label says so.
        namespace: empty for objects of the cluster.
        labels: further labels.
        annotations: of the object.
        seconds: see KubeObject.
        conditions: see KubeObject.
        force: see KubeObject.
        risks: see KubeObject.
        affected: see KubeObject.
        arrival: see KubeObject.
        source: inventory line.
    """
    metadata: dict[str, Any] = {"name": name, "labels": {**labels_of(role), **(labels or {})}}
    metadata |= {"namespace": namespace} if namespace else {}
    metadata |= {"annotations": dict(annotations)} if annotations else {}
    body = {"apiVersion": of.api, "kind": of.name, "metadata": metadata, **(fields or {})}
    return KubeObject(
        system,
        of,
        manifest_text(body),
        seconds,
        conditions,
        force,
        risks,
        affected,
        arrival,
        source=source,
    )
