"""Objects with their versions and history, and how each kind of write changes them."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.lab.kube import admission, errors, fields, schema
from provision.lab.kube.errors import StatusError
from provision.lab.kube.fields import Path
from provision.lab.kube.kinds import Kind, core_kinds, kinds_of

Object = dict[str, Any]
Place = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""
Controller = Callable[["Store", str, Kind, Object], None]
"""Called after each change with what happened (ADDED, MODIFIED, DELETED), the kind and the object."""
GRACE = 0


@dataclass(frozen=True, slots=True)
class Write:
    """One write.

    Args:
        manager: field manager.
        operation: Apply or Update.
        subresource: `status`, or empty.
        force: take fields that other managers own.
        dry_run: answer, and change nothing.
    """

    manager: str
    operation: str = "Update"
    subresource: str = ""
    force: bool = False
    dry_run: bool = False


@dataclass
class Store:
    """All objects of a cluster.

    Args:
        clock: seconds since the epoch.
        controllers: called after each change, without the lock.
        version: resource version of the latest change.
    """

    clock: Callable[[], float] = time.time
    controllers: list[Controller] = field(default_factory=list)
    version: int = 0
    kinds: dict[tuple[str, str, str], Kind] = field(default_factory=core_kinds)
    changed: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))
    history: list[tuple[int, str, Kind, Object]] = field(default_factory=list)
    _objects: dict[tuple[str, str], dict[Place, Object]] = field(default_factory=dict)
    _queue: list[tuple[str, Kind, Object]] = field(default_factory=list)
    _is_working: bool = False

    def __post_init__(self) -> None:
        for name in ("default", "kube-node-lease", "kube-public", "kube-system"):
            if self.get(self.kind("Namespace"), ("", name)) is None:
                self.seed({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    # ------------------------------------------------------------ reading

    def kind(self, name: str, group: str | None = None) -> Kind:
        """Return a kind by its name; for controllers, which name kinds that exist."""
        return next(kind for kind in self.kinds.values() if kind.name == name and group in {None, kind.group})

    def of_kind(self, kind: Kind) -> dict[Place, Object]:
        """Return the objects of a kind; versions share them."""
        return self._objects.setdefault((kind.group, kind.plural), {})

    def get(self, kind: Kind, place: Place) -> Object | None:
        """Return an object, or None."""
        return self.of_kind(kind).get(place)

    def listed(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Return the objects of a kind in the order of their names."""
        return [body for place, body in sorted(self.of_kind(kind).items()) if namespace in {"", place[0]}]

    # ------------------------------------------------------------ writing

    def seed(self, body: Mapping[str, Any], manager: str = "kube-apiserver") -> Object:
        """Put an object there as it is, with its status; no admission looks at it."""
        with self.changed:
            kind = self._kind_of(body)
            made = self._started(kind, _copy(dict(body)))
            metadata = made["metadata"]
            if kind.name == "Namespace":
                metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]
            owned = set(fields.leaves({key: made[key] for key in made if key != "status"}, kind.schema))
            self._set_owners(made, [self._entry(kind, Write(manager), owned)])
            held = self.get(kind, _place(made))
            self._keep(kind, made, "ADDED" if held is None else "MODIFIED")
        self._work()
        return made

    def create(self, kind: Kind, body: Mapping[str, Any], write: Write) -> Object:
        """Create an object.

        Raises:
            StatusError: it exists, or it is refused.
        """
        with self.changed:
            place = _place(body)
            if self.get(kind, place) is not None:
                raise StatusError(
                    409,
                    "AlreadyExists",
                    f'{kind.resource} "{place[1]}" already exists',
                    errors.about(kind, place[1]),
                )
            made = self._started(kind, _copy(dict(body)))
            if kind.status:
                made.pop("status", None)
            made = self._checked(kind, made, None)
            self._set_owners(made, [self._entry(kind, write, set(fields.leaves(made, kind.schema)))])
            if not write.dry_run:
                self._keep(kind, made, "ADDED")
        self._work()
        return made

    def apply(self, kind: Kind, body: Mapping[str, Any], write: Write) -> tuple[Object, bool]:
        """Apply an object server-side; return it and whether it was created.

        Raises:
            StatusError: a conflict, or it is refused.
        """
        with self.changed:
            place = _place(body)
            if text := schema.apply_error(kind, body):
                where = f"{place[0]}/{place[1]}" if place[0] else f"/{place[1]}"
                raise StatusError(
                    500,
                    "",
                    f"failed to create typed patch object ({where}; {kind.api_version}, Kind={kind.name}):"
                    f" {text}",
                )
            live = self.get(kind, place)
            _check_version(kind, body, live)
            stripped = {key: value for key, value in body.items() if key != "status" or not kind.status}
            if write.subresource:
                stripped = {
                    "apiVersion": body["apiVersion"],
                    "kind": body["kind"],
                    "status": body.get("status", {}),
                }
            applied = fields.leaves(stripped, kind.schema)
            entries = [] if live is None else [dict(entry) for entry in live["metadata"]["managedFields"]]
            base = (
                self._started(kind, {key: body[key] for key in ("apiVersion", "kind", "metadata")})
                if live is None
                else _copy(live)
            )
            self._check_conflicts(base if live is not None else {}, applied, entries, write, kind)
            mine = next((entry for entry in entries if _is_of(entry, write)), None)
            former = fields.decoded(mine["fieldsV1"]) if mine is not None else set()
            others = {
                path for entry in entries if entry is not mine for path in fields.decoded(entry["fieldsV1"])
            }
            made = fields.merged(base, stripped, kind.schema)
            made = fields.without(made, former - set(applied) - others, kind.schema)
            made = self._checked(kind, made, live)
            entries = [entry for entry in entries if entry is not mine and fields.decoded(entry["fieldsV1"])]
            fresh = self._entry(kind, write, set(applied))
            self._set_owners(made, [fresh, *entries])
            if live is not None and _same(made, live):
                return live, False
            self._raise_generation(kind, made, live)
            if not write.dry_run:
                self._keep(kind, made, "ADDED" if live is None else "MODIFIED")
        self._work()
        return made, live is None

    def update(self, kind: Kind, place: Place, body: Mapping[str, Any], write: Write) -> Object:
        """Replace an object, or its status, by what a PUT or a patch made of it.

        Raises:
            StatusError: it is not there, it moved, or it is refused.
        """
        with self.changed:
            live = self.get(kind, place)
            if live is None:
                raise errors.not_found(kind, place[1])
            _check_version(kind, body, live)
            made = _copy(live)
            if write.subresource == "status":
                made["status"] = _copy(body.get("status", {}))
            else:
                status = live.get("status")
                made = _copy(dict(body))
                made["metadata"] = {**made.get("metadata", {}), **_identity(live)}
                if kind.status:
                    made.pop("status", None)
                    if status is not None:
                        made["status"] = _copy(status)
            made = self._checked(kind, made, live)
            self._set_owners(made, self._updated_owners(kind, made, live, write))
            if _same(made, live):
                return live
            self._raise_generation(kind, made, live)
            if not write.dry_run:
                self._keep(kind, made, "MODIFIED")
        self._work()
        return made

    def delete(self, kind: Kind, place: Place, *, dry_run: bool = False) -> Object:
        """Delete an object; one with finalizers stays until they are gone.

        Raises:
            StatusError: it is not there.
        """
        with self.changed:
            live = self.get(kind, place)
            if live is None:
                raise errors.not_found(kind, place[1])
            made: Object = _copy(live)
            is_namespace = kind.name == "Namespace"
            if "deletionTimestamp" not in made["metadata"]:
                made["metadata"]["deletionTimestamp"] = self.now()
                if not is_namespace:
                    made["metadata"]["deletionGracePeriodSeconds"] = GRACE
                if kind.generation:
                    made["metadata"]["generation"] = made["metadata"].get("generation", 0) + 1
                if is_namespace:
                    made.setdefault("status", {})["phase"] = "Terminating"
            if not dry_run:
                self._keep(kind, made, "MODIFIED")
        self._work()
        return made

    def finalize_namespaces(self) -> None:
        """Do what the namespace controller does: empty terminating namespaces, and remove those that are."""
        kind = self.kind("Namespace")
        for namespace in list(self.listed(kind)):
            if "deletionTimestamp" not in namespace["metadata"]:
                continue
            name = namespace["metadata"]["name"]
            held = [
                (inner, _place(body))
                for inner in dict.fromkeys(self.kinds.values())
                if inner.namespaced
                for body in self.listed(inner, name)
            ]
            for inner, place in held:
                if self.get(inner, place) is not None:
                    self.delete(inner, place)
            if not any(self.listed(inner, name) for inner in self.kinds.values() if inner.namespaced):
                with self.changed:
                    self._remove(kind, namespace)
        self._work()

    # ------------------------------------------------------------ inside

    def now(self) -> str:
        """Return the time as objects spell it."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.clock()))

    def _kind_of(self, body: Mapping[str, Any]) -> Kind:
        group, _, version = str(body["apiVersion"]).rpartition("/")
        return next(
            kind
            for kind in self.kinds.values()
            if (kind.group, kind.version, kind.name) == (group, version, body["kind"])
        )

    def _started(self, kind: Kind, body: Object) -> Object:
        metadata = dict(body.get("metadata", {}))
        metadata = {
            key: value for key, value in metadata.items() if key not in {"resourceVersion", "managedFields"}
        }
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": self.now(), "managedFields": []}
        if kind.generation:
            metadata["generation"] = 1
        return {**body, "metadata": metadata}

    def _checked(self, kind: Kind, made: Object, live: Object | None) -> Object:
        """Return an object with defaults; refuse one that is not valid or not admitted."""
        made = schema.defaulted(made, kind.schema)
        admission.check(self, kind, made, live)
        causes = list(schema.causes(made, kind.schema))
        if causes:
            raise errors.invalid(kind, made["metadata"]["name"], causes)
        return admission.completed(kind, made)

    def _check_conflicts(
        self,
        live: Object,
        applied: Mapping[Path, Any],
        entries: list[dict[str, Any]],
        write: Write,
        kind: Kind,
    ) -> None:
        """Refuse fields that others own with another value, or take them from these by force."""
        held = fields.leaves(live, kind.schema) if live else {}
        conflicts: list[tuple[str, str, str]] = []
        for entry in entries:
            if _is_of(entry, write):
                continue
            owned = fields.decoded(entry["fieldsV1"])
            lost = {path for path in owned if (path in applied and held.get(path) != applied[path])}
            if lost and not write.force:
                using = f'conflict with "{entry["manager"]}" using {entry["apiVersion"]}'
                conflicts += [("FieldManagerConflict", using, fields.spelled(path)) for path in sorted(lost)]
            elif lost:
                entry["fieldsV1"] = fields.encoded(owned - lost)
        if conflicts:
            texts = [f"{message}: {path}" for _, message, path in conflicts]
            many = "" if len(texts) == 1 else "s"
            lines = texts[0] if len(texts) == 1 else "\n".join(f"- {text}" for text in texts)
            message = f"Apply failed with {len(texts)} conflict{many}: {lines}"
            causes = [{"reason": reason, "message": text, "field": path} for reason, text, path in conflicts]
            raise StatusError(409, "Conflict", message, {"causes": causes})

    def _updated_owners(self, kind: Kind, made: Object, live: Object, write: Write) -> list[dict[str, Any]]:
        before, after = fields.leaves(live, kind.schema), fields.leaves(made, kind.schema)
        moved = {path for path in after if path not in before or before[path] != after[path]}
        gone = set(before) - set(after)
        entries = []
        mine: set[Path] = set(moved)
        for held in live["metadata"]["managedFields"]:
            owned = fields.decoded(held["fieldsV1"])
            if _is_of(held, write):
                mine |= owned - gone
                continue
            kept = owned - moved - gone
            if kept:
                entries.append({**held, "fieldsV1": fields.encoded(kept)} if kept != owned else held)
        if mine:
            entries.append(self._entry(kind, write, mine))
        return entries

    def _entry(self, kind: Kind, write: Write, owned: set[Path]) -> dict[str, Any]:
        entry = {
            "manager": write.manager,
            "operation": write.operation,
            "apiVersion": kind.api_version,
            "time": self.now(),
            "fieldsType": "FieldsV1",
            "fieldsV1": fields.encoded(sorted(owned)),
        }
        return {**entry, "subresource": write.subresource} if write.subresource else entry

    @staticmethod
    def _set_owners(made: Object, entries: list[dict[str, Any]]) -> None:
        order = {"Apply": 0, "Update": 1}
        made["metadata"]["managedFields"] = sorted(
            entries, key=lambda entry: (order[entry["operation"]], entry.get("subresource", ""))
        )

    @staticmethod
    def _raise_generation(kind: Kind, made: Object, live: Object | None) -> None:
        if live is None or not kind.generation:
            return
        desired = [
            {key: value for key, value in body.items() if key not in {"metadata", "status"}}
            for body in (made, live)
        ]
        is_deleted = "deletionTimestamp" in made["metadata"] and desired[0] != desired[1]
        if desired[0] != desired[1] or is_deleted:
            made["metadata"]["generation"] = live["metadata"].get("generation", 0) + 1

    def _keep(self, kind: Kind, made: Object, event: str) -> None:
        metadata = made["metadata"]
        is_over = "deletionTimestamp" in metadata and not metadata.get("finalizers")
        if is_over and kind.name != "Namespace":
            self._remove(kind, made)
            return
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        self.of_kind(kind)[_place(made)] = made
        self._tell(event, kind, made)
        if kind.name == "CustomResourceDefinition":
            for served in kinds_of(made):
                self.kinds[served.group, served.version, served.plural] = served
            if not made.get("status"):
                names = {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"}
                made["status"] = {"conditions": [names]}

    def _remove(self, kind: Kind, made: Object) -> None:
        self.version += 1
        self.of_kind(kind).pop(_place(made), None)
        if kind.name == "CustomResourceDefinition":
            for served in kinds_of(made):
                self.kinds.pop((served.group, served.version, served.plural), None)
                self._objects.pop((served.group, served.plural), None)
        body = _copy(made)
        body["metadata"]["resourceVersion"] = str(self.version)
        self._tell("DELETED", kind, body)

    def _tell(self, event: str, kind: Kind, body: Object) -> None:
        self.history.append((self.version, event, kind, _copy(dict(body))))
        self._queue.append((event, kind, body))
        self.changed.notify_all()

    def _work(self) -> None:
        """Let the controllers see what happened, in order; what they do is seen in its turn."""
        with self.changed:
            if self._is_working:
                return
            self._is_working = True
        try:
            while self._queue:
                event, kind, body = self._queue.pop(0)
                for controller in self.controllers:
                    controller(self, event, kind, body)
        finally:
            self._is_working = False


def _copy(value: Any) -> Any:
    """Return a copy of JSON data; `copy.deepcopy`, which knows any object, takes five times as long."""
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_copy(inner) for inner in value]
    return value


def _place(body: Mapping[str, Any]) -> Place:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]


def _is_of(entry: Mapping[str, Any], write: Write) -> bool:
    return (entry["manager"], entry["operation"], entry.get("subresource", "")) == (
        write.manager,
        write.operation,
        write.subresource,
    )


def _identity(live: Object) -> dict[str, Any]:
    kept = (
        "uid",
        "creationTimestamp",
        "generation",
        "managedFields",
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "name",
        "namespace",
    )
    return {key: live["metadata"][key] for key in kept if key in live["metadata"]}


def _check_version(kind: Kind, body: Mapping[str, Any], live: Object | None) -> None:
    stated = body.get("metadata", {}).get("resourceVersion")
    if stated and live is not None and stated != live["metadata"]["resourceVersion"]:
        raise errors.modified(kind, live["metadata"]["name"])


def _same(made: Object, live: Object) -> bool:
    """Whether nothing but times of managed fields would change."""
    return json.dumps(_timeless(made), sort_keys=True) == json.dumps(_timeless(live), sort_keys=True)


def _timeless(body: Object) -> Object:
    entries = [
        {key: value for key, value in entry.items() if key != "time"}
        for entry in body["metadata"].get("managedFields", ())
    ]
    return {**body, "metadata": {**body["metadata"], "managedFields": entries}}


def matching(
    objects: Iterator[Object] | list[Object], labels: Callable[[Mapping[str, str]], bool]
) -> list[Object]:
    """Return the objects whose labels a selector accepts."""
    return [body for body in objects if labels(body["metadata"].get("labels", {}))]
