"""The small Kubernetes API against what a real API server answered to the same requests."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from provision.lab.kube.app import KubeApi, Request
from provision.lab.kube.kinds import kinds_of
from provision.lab.kube.store import Store

SHARED = Path(__file__).parents[3] / "shared"
RECORDED = SHARED / "kube-api" / "recorded-1.36.2.jsonl.gz"
CRDS = (
    "MacvlanNetwork",
    "HostDeviceNetwork",
    "IPoIBNetwork",
    "NicNodePolicy",
    "NicClusterPolicy",
    "ClusterPolicy",
)
FIRST_VERSION = 319
"""Of the recording: its watches name versions."""
NOT_COMPARED = {
    "version": "names the build",
    "api groups mellanox": "has short names and hashes",
    "cr merge typo Strict": "quotes the whole object with its times",
}
DEFAULTED = frozenset({"Pod", "DaemonSet"})
"""Kinds whose many defaults the small API leaves out."""


def _recorded() -> list[dict[str, Any]]:
    if not RECORDED.exists():
        pytest.skip("../shared is absent")
    with gzip.open(RECORDED, "rt") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def exchanges() -> list[tuple[dict[str, Any], int, object, str]]:
    recorded = _recorded()
    store = Store(clock=lambda: 0.0)
    for name in CRDS:
        definition = yaml.safe_load((SHARED / "crds" / f"{name}.yaml").read_text())
        store.kinds |= {(kind.group, kind.version, kind.plural): kind for kind in kinds_of(definition)}
    store.version = FIRST_VERSION
    api = KubeApi(store, watch_seconds=0.0)
    answered = []
    for exchange in recorded:
        user = {"no token": "", "bad token": None}.get(exchange["name"], "admin")
        body = exchange["body"]
        text = body if isinstance(body, str) else json.dumps(body) if body is not None else ""
        request = Request(
            exchange["method"], exchange["path"], exchange["content_type"] or "", text, user=user
        )
        response = api.handle(request)
        answer = list(response.stream) if response.stream is not None else response.body
        answered.append((exchange, response.status, json.loads(json.dumps(answer)), response.warning))
    return answered


def test_each_status_is_that_of_the_real_server(exchanges: list[Any]) -> None:
    wrong = [
        (exchange["name"], status) for exchange, status, _, _ in exchanges if status != exchange["status"]
    ]
    assert not wrong
    assert len(exchanges) == 78


def test_refusals_are_worded_as_by_the_real_server(exchanges: list[Any]) -> None:
    compared = 0
    for exchange, _, body, _ in exchanges:
        real = exchange["response"]
        if exchange["name"] in NOT_COMPARED or not _is_status(real):
            continue
        compared += 1
        for key in ("reason", "message", "code", "details"):
            assert body.get(key) == real.get(key), exchange["name"]
    assert compared > 25


def test_objects_and_their_owners_are_those_of_the_real_server(exchanges: list[Any]) -> None:
    compared = 0
    for exchange, _, body, warning in exchanges:
        real = exchange["response"]
        assert warning == exchange["headers"].get("Warning", ""), exchange["name"]
        if not isinstance(real, dict) or "metadata" not in real or _is_status(real):
            continue
        if exchange["name"] in NOT_COMPARED or real["kind"].startswith("SelfSubject"):
            continue
        compared += 1
        name = exchange["name"]
        assert body["kind"] == real["kind"], name
        if "items" in real:
            names = [item["metadata"]["name"] for item in real["items"]]
            ours = [item["metadata"]["name"] for item in body["items"]]
            assert ours[: len(names)] == names, name
            assert ("continue" in body["metadata"]) == ("continue" in real["metadata"]), name
        elif real["kind"] not in DEFAULTED:
            assert _normal(body) == _normal(real), name
    assert compared > 20


def test_watches_tell_the_events_of_the_real_server(exchanges: list[Any]) -> None:
    watches = [(exchange, body) for exchange, _, body, _ in exchanges if "watch=1" in exchange["path"]]
    for exchange, body in watches:
        assert list(_events(body)) == list(_events(exchange["response"])), exchange["name"]
    assert any("BOOKMARK" in str(exchange["response"]) for exchange, _ in watches)


def _events(events: list[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    for event in events:
        metadata = event["object"]["metadata"]
        marks = ",".join(metadata.get("annotations", {}))
        yield event["type"], metadata.get("name", ""), marks or metadata["resourceVersion"]


def _is_status(body: object) -> bool:
    return isinstance(body, dict) and body.get("kind") == "Status"


def _normal(body: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what no two servers share."""
    text = json.dumps(body)
    text = re.sub(r'"(uid|time|creationTimestamp|deletionTimestamp)": "[^"]*"', r'"\1": "*"', text)
    plain: dict[str, Any] = json.loads(text)
    for entry in plain["metadata"].get("managedFields", ()):
        entry["fieldsV1"] = _without_dots(entry["fieldsV1"])
    return plain


def _without_dots(fields: dict[str, Any]) -> dict[str, Any]:
    """Return owned fields without the maps themselves, which the small API does not keep."""
    return {key: _without_dots(inner) for key, inner in fields.items() if key != "."}
