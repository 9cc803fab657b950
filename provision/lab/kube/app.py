"""Requests and answers of the API, without any transport."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from provision.lab.kube import errors, fields, schema, selectors
from provision.lab.kube.discovery import discovered
from provision.lab.kube.errors import StatusError, bad_request
from provision.lab.kube.kinds import Kind
from provision.lab.kube.store import Object, Store, Write

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
_ENDLESS = 3600.0


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Args:
        method: GET, POST, PUT, PATCH, DELETE.
        path: with its query string.
        content_type: of the body.
        body: JSON text.
        user: who asks; empty for nobody, None for credentials that are wrong.
    """

    method: str
    path: str
    content_type: str = ""
    body: str = ""
    user: str | None = "admin"


@dataclass(frozen=True, slots=True)
class Response:
    """One answer: a body, or the lines of a watch."""

    status: int
    body: object = None
    warning: str = ""
    stream: Iterator[dict[str, Any]] | None = None


@dataclass
class KubeApi:
    """A Kubernetes API over a store.

    Args:
        store: the objects.
        version: as `/version` answers it.
        faults: asked before each request: an answer of theirs is given instead.
        watch_seconds: how long a watch waits in fact, per second that was asked for.
        logs: text of a pod's log by namespace and pod.
        requests: all requests so far, in order.
    """

    store: Store = field(default_factory=Store)
    version: str = "v1.36.2"
    faults: list[Callable[[Request], Response | None]] = field(default_factory=list)
    watch_seconds: float = 1.0
    logs: dict[tuple[str, str], str] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    def handle(self, request: Request) -> Response:
        """Answer one request."""
        self.requests.append(request)
        for fault in self.faults:
            answer = fault(request)
            if answer is not None:
                return answer
        path, _, query = request.path.partition("?")
        try:
            self._check_user(request, path)
            return self._route(request, path, dict(parse_qsl(query, keep_blank_values=True)))
        except StatusError as error:
            return Response(error.code, error.body)

    @staticmethod
    def _check_user(request: Request, path: str) -> None:
        if request.user is None:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        if not request.user and path not in {"/version", "/readyz", "/livez", "/healthz"}:
            verb = {"GET": "get", "POST": "post", "PATCH": "patch", "PUT": "put"}.get(
                request.method, "delete"
            )
            text = f'forbidden: User "system:anonymous" cannot {verb} path "{path}"'
            raise StatusError(403, "Forbidden", text, {})

    def _route(self, request: Request, path: str, query: Mapping[str, str]) -> Response:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if path in {"/readyz", "/livez", "/healthz"}:
            return Response(200, "ok")
        if path == "/version":
            major, minor, *_ = self.version.lstrip("v").split(".")
            platform = {"goVersion": "go1.26.6", "compiler": "gc", "platform": "linux/amd64"}
            return Response(200, {"major": major, "minor": minor, "gitVersion": self.version, **platform})
        if parts[0] == "api" and len(parts) > 1:
            return self._group(request, "", parts[1], parts[2:], query)
        if parts[0] == "apis" and len(parts) > 2:  # noqa: PLR2004 - apis, group, version
            return self._group(request, parts[1], parts[2], parts[3:], query)
        known = discovered(path, self.store.kinds.values())
        if known is not None:
            return Response(200, known)
        return Response(404, "404 page not found\n")

    def _group(
        self, request: Request, group: str, version: str, parts: list[str], query: Mapping[str, str]
    ) -> Response:
        if group in {"authentication.k8s.io", "authorization.k8s.io"} and parts:
            return _review(request, parts[0])
        served = [
            kind for kind in self.store.kinds.values() if (kind.group, kind.version) == (group, version)
        ]
        if not served:
            return Response(404, "404 page not found\n")
        if not parts:
            name = f"{group}/{version}" if group else version
            body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name}
            return Response(200, {**body, "resources": [row for kind in served for row in _resources(kind)]})
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2 and parts[2] not in {"status", "finalize"}:  # noqa: PLR2004 - a namespace, and what is in it
            namespace, parts = parts[1], parts[2:]
        kind = next((kind for kind in served if kind.plural == parts[0]), None)
        if kind is None:
            return Response(404, "404 page not found\n")
        if len(parts) == 1:
            return self._collection(request, kind, namespace, query)
        return self._object(request, kind, (namespace, parts[1]), parts[2:], query)

    # ------------------------------------------------------------ many

    def _collection(self, request: Request, kind: Kind, namespace: str, query: Mapping[str, str]) -> Response:
        if request.method == "POST":
            return self._create(request, kind, namespace, query)
        is_labelled = selectors.labels(query.get("labelSelector", ""))
        has_fields = selectors.fields(query.get("fieldSelector", ""), kind.plural)

        def is_chosen(body: Object) -> bool:
            in_namespace = namespace in {"", body["metadata"].get("namespace", "")}
            return in_namespace and is_labelled(body["metadata"].get("labels", {})) and has_fields(body)

        if query.get("watch") in {"1", "true"}:
            return Response(200, stream=self._watch(kind, is_chosen, query))
        with self.store.changed:
            chosen = [body for body in self.store.listed(kind, namespace) if is_chosen(body)]
            version = str(self.store.version)
        if request.method == "DELETE":
            for body in chosen:
                self.store.delete(kind, (body["metadata"].get("namespace", ""), body["metadata"]["name"]))
            return Response(200, _list_of(kind, chosen, {"resourceVersion": version}))
        start = int(base64.b64decode(query["continue"])) if query.get("continue") else 0
        limit = int(query.get("limit") or 0) or len(chosen)
        page, rest = chosen[start : start + limit], chosen[start + limit :]
        metadata: dict[str, Any] = {"resourceVersion": version}
        if rest:
            metadata["continue"] = base64.b64encode(str(start + limit).encode()).decode()
            metadata["remainingItemCount"] = len(rest)
        elif kind.schema is not None:
            metadata = {"continue": "", **metadata}
        return Response(200, _list_of(kind, page, metadata))

    def _create(self, request: Request, kind: Kind, namespace: str, query: Mapping[str, str]) -> Response:
        body = _parsed(request, kind)
        warning = _validated(kind, body, query.get("fieldValidation", ""), _duplicate(request.body))
        body = _placed(kind, body, namespace, "")
        if not body["metadata"].get("name"):
            text = "Required value: name or generateName is required"
            raise errors.invalid(kind, "", [("FieldValueRequired", text, "metadata.name")])
        write = Write(query.get("fieldManager", "unknown"), dry_run=query.get("dryRun") == "All")
        return Response(201, self.store.create(kind, body, write), warning)

    def _watch(
        self, kind: Kind, is_chosen: Callable[[Object], bool], query: Mapping[str, str]
    ) -> Iterator[dict[str, Any]]:
        """Yield events until the time that was asked for is over."""
        store = self.store
        stated = query.get("resourceVersion", "0") or "0"
        begins = stated == "0" or query.get("sendInitialEvents") == "true"
        seconds = float(query.get("timeoutSeconds", _ENDLESS)) * self.watch_seconds
        with store.changed:
            sent = store.version if begins else min(int(stated), store.version)
            initial = [body for body in store.listed(kind) if is_chosen(body)] if begins else []
        for body in initial:
            yield {"type": "ADDED", "object": body}
        if begins and query.get("allowWatchBookmarks") in {"1", "true"}:
            metadata = {"resourceVersion": str(sent), "annotations": {"k8s.io/initial-events-end": "true"}}
            bookmark = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}
            yield {"type": "BOOKMARK", "object": bookmark}
        ends = store.clock() + seconds
        while True:
            with store.changed:
                events = [
                    (version, event, body)
                    for version, event, of, body in store.history
                    if version > sent
                    and (of.group, of.plural) == (kind.group, kind.plural)
                    and is_chosen(body)
                ]
                sent = max(sent, store.version)
                left = ends - store.clock()
                if not events and left > 0:
                    store.changed.wait(left)
                    continue
            for _, event, body in events:
                yield {"type": event, "object": body}
            if left <= 0:
                return

    # ------------------------------------------------------------ one

    def _object(
        self, request: Request, kind: Kind, place: tuple[str, str], rest: list[str], query: Mapping[str, str]
    ) -> Response:
        dry_run = query.get("dryRun") == "All"
        subresource = rest[0] if rest else ""
        if subresource not in {"", "status", "finalize"}:
            return self._subresource(kind, place, subresource, query)
        if request.method == "GET":
            held = self.store.get(kind, place)
            if held is None:
                raise errors.not_found(kind, place[1])
            return Response(200, held)
        if request.method == "DELETE":
            return Response(200, self.store.delete(kind, place, dry_run=dry_run))
        default = "unknown" if request.content_type != APPLY else ""
        write = Write(
            query.get("fieldManager", default),
            "Apply" if request.content_type == APPLY else "Update",
            "status" if subresource == "status" else "",
            force=query.get("force") in {"true", "1"},
            dry_run=dry_run,
        )
        if request.method == "PUT":
            return Response(
                200, self.store.update(kind, place, _placed(kind, _parsed(request, kind), *place), write)
            )
        return self._patch(request, kind, place, write, query)

    def _subresource(
        self, kind: Kind, place: tuple[str, str], name: str, query: Mapping[str, str]
    ) -> Response:
        if (kind.name, name) == ("Pod", "eviction"):
            return self._evict(kind, place)
        if (kind.name, name) != ("Pod", "log"):
            return Response(404, "404 page not found\n")
        if self.store.get(kind, place) is None:
            raise errors.not_found(kind, place[1])
        lines = self.logs.get(place, "").splitlines(keepends=True)
        text = "".join(lines[-int(query.get("tailLines", len(lines))) or len(lines) :])
        return Response(
            200, text.encode()[: int(query.get("limitBytes", sys.maxsize))].decode(errors="replace")
        )

    def _patch(
        self, request: Request, kind: Kind, place: tuple[str, str], write: Write, query: Mapping[str, str]
    ) -> Response:
        if request.content_type == APPLY:
            return self._apply(request, kind, place, write)
        if request.content_type not in {MERGE, JSON_PATCH, STRATEGIC}:
            raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
        if request.content_type == STRATEGIC and kind.schema is not None:
            text = (
                "the body of the request was in an unknown format - accepted media types include:"
                " application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
            )
            raise StatusError(415, "UnsupportedMediaType", text)
        patch = json.loads(request.body)
        live = self.store.get(kind, place)
        if live is None:
            raise errors.not_found(kind, place[1])
        if request.content_type == JSON_PATCH:
            try:
                made = fields.json_patched(live, patch)
            except (KeyError, IndexError, ValueError):
                text = "the server rejected our request due to an error in our request"
                raise StatusError(422, "Invalid", text, {}) from None
        else:
            made = fields.merge_patched(live, patch)
        if query.get("fieldValidation") == "Strict":
            unknown = next(schema.unknown_fields(made, kind.schema), "")
            if unknown:
                value = json.dumps(json.dumps(made, separators=(",", ":"), sort_keys=True))
                text = f'Invalid value: {value}: strict decoding error: unknown field "{unknown}"'
                causes = [{"reason": "FieldValueInvalid", "message": text, "field": "patch"}]
                raise StatusError(422, "Invalid", f' "" is invalid: patch: {text}', {"causes": causes})
        return Response(200, self.store.update(kind, place, made, write))

    def _apply(self, request: Request, kind: Kind, place: tuple[str, str], write: Write) -> Response:
        if not write.manager:
            message = "Required value: is required for apply patch"
            details = {
                "group": "meta.k8s.io",
                "kind": "PatchOptions",
                "causes": [{"reason": "FieldValueRequired", "message": message, "field": "fieldManager"}],
            }
            text = f'PatchOptions.meta.k8s.io "" is invalid: fieldManager: {message}'
            raise StatusError(422, "Invalid", text, details)
        body = _parsed(request, kind)
        if not body.get("apiVersion") or not body.get("kind"):
            text = f"invalid object type: {body.get('apiVersion', '')}/, Kind={body.get('kind', '')}"
            raise bad_request(text)
        if body.get("metadata", {}).get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        name = body.get("metadata", {}).get("name")
        if name and name != place[1]:
            raise bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({place[1]})"
            )
        made, is_new = self.store.apply(kind, _placed(kind, body, *place), write)
        return Response(201 if is_new else 200, made)

    def _evict(self, kind: Kind, place: tuple[str, str]) -> Response:
        """Evict a pod, unless a PodDisruptionBudget allows no further disruption."""
        pod = self.store.get(kind, place)
        if pod is None:
            raise errors.not_found(kind, place[1])
        held = pod["metadata"].get("labels", {})
        budgets = [
            budget
            for budget in self.store.listed(self.store.kind("PodDisruptionBudget"), place[0])
            if selectors.of_object(budget["spec"].get("selector"))(held)
        ]
        if pod.get("status", {}).get("phase") in {"Pending", "Succeeded", "Failed"}:
            budgets = []
        if len(budgets) > 1:
            text = (
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"
                " support."
            )
            raise StatusError(500, "", text)
        for budget in budgets:
            status = budget.get("status", {})
            if status.get("disruptionsAllowed", 0) < 1:
                message = f"The disruption budget {budget['metadata']['name']} {_needs(status)}"
                causes = [{"reason": "DisruptionBudget", "message": message}]
                text = "Cannot evict pod as it would violate the pod's disruption budget."
                raise StatusError(429, "TooManyRequests", text, {"causes": causes})
        self.store.delete(kind, place)
        return Response(
            201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        )


def _needs(status: Mapping[str, Any]) -> str:
    """Return what a budget lacks, in the words of the real API."""
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if healthy > desired:
        return "does not allow evicting pods currently"
    return f"needs {desired} healthy pods and has {healthy} currently"


def _review(request: Request, plural: str) -> Response:
    """Answer who asks, and that everything is allowed."""
    if plural == "selfsubjectaccessreviews":
        return Response(201, {**_parsed(request, None), "status": {"allowed": True}})
    groups = ["system:masters", "system:authenticated"]
    user = {"userInfo": {"username": request.user, "groups": groups}}
    return Response(201, {**_parsed(request, None), "status": user})


def _parsed(request: Request, kind: Kind | None) -> dict[str, Any]:
    name = kind.name if kind is not None else "object"
    try:
        body = json.loads(request.body)
    except ValueError as error:
        position = getattr(error, "pos", 0)
        character = request.body[position : position + 1]
        text = (
            f"the object provided is unrecognized (must be of type {name}): couldn't get version/kind;"
            f" json parse error: invalid character '{character}' looking for beginning of object key string"
            f" ({request.body})"
        )
        raise bad_request(text) from None
    if not isinstance(body, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {name})")
    return body


def _placed(kind: Kind, body: dict[str, Any], namespace: str, name: str) -> dict[str, Any]:
    """Return an object with its place in its metadata."""
    metadata = dict(body.get("metadata", {}))
    if name:
        metadata["name"] = name
    if not metadata.get("name") and metadata.get("generateName"):
        import secrets  # noqa: PLC0415 - for this alone

        metadata["name"] = metadata["generateName"] + secrets.token_hex(3)
    if kind.namespaced:
        metadata["namespace"] = namespace or metadata.get("namespace", "default")
    return {"kind": kind.name, "apiVersion": kind.api_version, **body, "metadata": metadata}


def _duplicate(text: str) -> str:
    """Return a key that an object of a JSON text has twice, or an empty text."""
    doubles: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in items]
        doubles.extend(name for name in names if names.count(name) > 1)
        return dict(items)

    json.loads(text, object_pairs_hook=pairs)
    return doubles[0] if doubles else ""


def _validated(kind: Kind, body: dict[str, Any], mode: str, duplicate: str) -> str:
    """Drop unknown fields of a new object; refuse them if strict; return the warning."""
    unknown = list(schema.unknown_fields(body, kind.schema))
    if mode == "Strict" and (unknown or duplicate):
        text = f'unknown field "{unknown[0]}"' if unknown else f'duplicate field "spec.{duplicate}"'
        raise bad_request(
            f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}:'
            f" strict decoding error: {text}"
        )
    for place in unknown:
        *parents, last = place.split(".")
        inner = body
        for key in parents:
            inner = inner.get(key, {})
        inner.pop(last, None)
    return f'299 - "unknown field \\"{unknown[0]}\\""' if unknown and mode in {"", "Warn"} else ""


def _list_of(kind: Kind, items: list[Object], metadata: dict[str, Any]) -> dict[str, Any]:
    bare = [
        {
            key: value
            for key, value in body.items()
            if kind.schema is not None or key not in {"kind", "apiVersion"}
        }
        for body in items
    ]
    return {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata, "items": bare}


def _resources(kind: Kind) -> Iterator[dict[str, Any]]:
    row = {"namespaced": kind.namespaced, "kind": kind.name}
    yield {"name": kind.plural, "singularName": kind.name.lower(), **row, "verbs": _VERBS}
    if kind.status:
        yield {
            "name": f"{kind.plural}/status",
            "singularName": "",
            **row,
            "verbs": ["get", "patch", "update"],
        }
