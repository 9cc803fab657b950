"""What an API says of itself: versions, groups, and which requests it checks; enough for kubectl and helm.

Source: kubernetes.io (Kubernetes API Concepts: discovery, OpenAPI V3). The documents have no schemas: they
say that the server checks fields (`fieldValidation`), so that clients do not.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from provision.lab.kube.kinds import Kind


def discovered(path: str, kinds: Collection[Kind]) -> dict[str, Any] | None:
    """Return what a path of discovery answers; None for other paths."""
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups(kinds)}
    root, _, place = path.removeprefix("/openapi/v3").partition("/")
    if not path.startswith("/openapi/v3") or root:
        return None
    places = {_place(kind) for kind in kinds}
    if not place:
        return {"paths": {one: {"serverRelativeURL": f"/openapi/v3/{one}"} for one in sorted(places)}}
    return _document([kind for kind in kinds if _place(kind) == place]) if place in places else None


def _groups(kinds: Collection[Kind]) -> list[dict[str, Any]]:
    groups: dict[str, list[dict[str, str]]] = {}
    for kind in kinds:
        row = {"groupVersion": kind.api_version, "version": kind.version}
        rows = groups.setdefault(kind.group, [])
        if row not in rows:
            rows.append(row)
    return [
        {"name": name, "versions": rows, "preferredVersion": rows[0]}
        for name, rows in sorted(groups.items())
        if name
    ]


def _place(kind: Kind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"


def _document(kinds: Collection[Kind]) -> dict[str, Any]:
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    paths = {}
    for kind in kinds:
        inner = "namespaces/{namespace}/" if kind.namespaced else ""
        names = {"group": kind.group, "version": kind.version, "kind": kind.name}
        checked = {"parameters": [parameter], "responses": {}, "x-kubernetes-group-version-kind": names}
        collection = f"/{_place(kind)}/{inner}{kind.plural}"
        paths[collection] = {"post": checked}
        paths[f"{collection}/{{name}}"] = {"patch": checked, "put": checked}
    info = {"title": "Kubernetes", "version": "unversioned"}
    return {"openapi": "3.0.0", "info": info, "paths": paths}
