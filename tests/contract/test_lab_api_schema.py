"""The lab's parameters and privileges against the real schema: it may know less, never otherwise."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provision.lab.api.app import ROUTES
from provision.lab.api.core import Route
from provision.lab.api.schema import Field

APIDATA = Path(__file__).resolve().parents[3] / "shared" / "pve-api" / "apidata.json.gz"

pytestmark = pytest.mark.skipif(not APIDATA.exists(), reason="../shared/pve-api is absent")


def _walk(nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in nodes:
        yield node
        yield from _walk(node.get("children") or [])


def _shape(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


@pytest.fixture(scope="module")
def schema() -> dict[tuple[str, str], dict[str, Any]]:
    with gzip.open(APIDATA, "rt") as file:
        nodes = json.load(file)
    return {
        (method, _shape(node["path"])): {**info, "path": node["path"]}
        for node in _walk(nodes)
        for method, info in (node.get("info") or {}).items()
    }


def _identity(route: Route) -> str:
    return f"{route.method} {route.pattern}"


def _field_problems(name: str, field: Field, real: dict[str, Any]) -> Iterator[str]:
    if field.required != (not real.get("optional")):
        yield f"{name}: required differs"
    if field.kind in {"boolean", "integer", "array"} and real["type"] != field.kind:
        yield f"{name}: {field.kind} instead of {real['type']}"
    if real["type"] in {"boolean", "integer"} and field.kind != real["type"]:
        yield f"{name}: {field.kind} instead of {real['type']}"
    if not set(field.choices) <= set(real.get("enum") or field.choices):
        yield f"{name}: values that the real one lacks"
    parts = real.get("format")
    if field.parts and isinstance(parts, dict):
        for part in field.parts:
            if part not in parts:
                yield f"{name}.{part}: unknown to the real one"


@pytest.mark.parametrize("route", ROUTES, ids=_identity)
def test_parameters_are_those_of_the_real_api(
    route: Route, schema: dict[tuple[str, str], dict[str, Any]]
) -> None:
    info = schema[route.method, _shape(route.pattern)]
    real = info["parameters"].get("properties", {})
    for name in re.findall(r"\{([^}]+)\}", info["path"]):  # those of the path are not named on the wire
        real.pop(name, None)
    in_path = set(re.findall(r"\{(\w+)\*?\}", route.pattern))
    problems = []
    for name, field in route.params.fields.items():
        if name in in_path:
            continue
        numbered = re.sub(r"0$", "[n]", name)
        if name not in real and numbered not in real:
            problems.append(f"{name}: unknown to the real one")
            continue
        problems += _field_problems(name, field, real.get(name) or real[numbered])
    for name, (_, field) in route.params.numbered.items():
        if f"{name}[n]" not in real:
            problems.append(f"{name}[n]: unknown to the real one")
            continue
        problems += _field_problems(name, field, real[f"{name}[n]"])
    problems += [
        f"{name}: required by the real one"
        for name, each in real.items()
        if not each.get("optional") and route.params.find(name) is None
    ]
    assert problems == []


@pytest.mark.parametrize("route", [each for each in ROUTES if each.need is not None], ids=_identity)
def test_privileges_are_those_of_the_real_api(
    route: Route, schema: dict[tuple[str, str], dict[str, Any]]
) -> None:
    need = route.need
    assert need is not None
    check = schema[route.method, _shape(route.pattern)]["permissions"].get("check", [])
    flat = json.dumps(check)
    assert check, f"the real one checks by itself, ours wants {need}"
    for priv in need.privs:
        assert f'"{priv}"' in flat
    assert f'"{need.path}"' in flat


def test_no_route_hides_another() -> None:
    for index, route in enumerate(ROUTES):
        path = re.sub(r"\{(\w+)\*?\}", r"\1", route.pattern)
        first = next(each for each in ROUTES if each.match(route.method, path) is not None)
        assert first is route, (index, route.pattern)
