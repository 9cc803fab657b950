from __future__ import annotations

import json
from typing import Any

import pytest

from provision.report.schema import event_classes, event_schema
from provision.values import events
from provision.values.diagnostics import Diagnostic, Source

PROBLEM = Diagnostic("CODE", "summary", "vm-1", source=Source("f", 1, 2, "text", 3), evidence=("a",))
EXAMPLES: tuple[events.Event, ...] = (
    events.RunStarted(run="r", inventory="lab", verb="apply", subjects=("pve",), journal="/j"),
    events.StepStarted(run="r", subject="pve", role="image", usually=3.0),
    events.StepProgress(run="r", subject="pve", role="image", line="half way"),
    events.ChangeMade(
        run="r",
        subject="pve",
        role="image",
        key="pve/api:image:x",
        verdict="done",
        changes=(("+", "a", "", "b"),),
    ),
    events.EffectDone(run="r", system="pve/ssh", effect="initramfs", verdict="done", seconds=2.5),
    events.StepEnded(run="r", subject="pve", role="image", outcome="changed", seconds=1.0, reason=""),
    events.Problem(run="r", diagnostic=PROBLEM.as_json()),
    events.Problem(run="r", diagnostic=Diagnostic("CODE", "without a source").as_json()),
    events.ChangePlanned(
        run="r",
        subject="pve",
        role="image",
        key="pve/api:image:x",
        changes=(("+", "a", "", "b"),),
        effects=("initramfs",),
        risks=("delete vm-1",),
        by_hand=("type it",),
    ),
    events.StepOpen(run="r", subject="vm-1", role="base_os", state="late", reason="after pve has rebooted"),
    events.PlanMade(
        run="r",
        empty=False,
        refused=False,
        changes=1,
        unchanged=2,
        late=1,
        unreached=0,
        consents=(("pve/ssh", "reboot-hypervisor", "ask"),),
        orphans=("pve/api:vm:old",),
    ),
    events.CheckDone(run="r", name="it is so", subject="vm-1", outcome="failed", message="it is not"),
    events.RunEnded(run="r", outcomes={"changed": 1}, exit_code=0, seconds=9.0),
)


KNOWN = {
    "$schema",
    "$defs",
    "title",
    "description",
    "pattern",
    "minimum",
    "type",
    "const",
    "enum",
    "required",
}
KNOWN |= {
    "properties",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "additionalProperties",
    "oneOf",
    "$ref",
}


def problems(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> list[str]:
    """Check a value against the keywords that our schema uses; any other keyword is an error of this test."""
    assert set(schema) <= KNOWN, set(schema) - KNOWN
    if "$ref" in schema:
        return problems(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "oneOf" in schema:
        fits = [each for each in schema["oneOf"] if not problems(value, each, root)]
        return [] if len(fits) == 1 else [f"{value!r} fits {len(fits)} of the types"]
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else [value])
    if value not in allowed:
        return [f"{value!r} is none of {allowed}"]
    kinds = schema.get("type", [])
    if kinds and not any(_is(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return [f"{value!r} is no {kinds}"]
    if isinstance(value, dict):
        return _of_object(value, schema, root)
    return _of_array(value, schema, root) if isinstance(value, list) else []


def _of_object(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any]) -> list[str]:
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
    faults = [f"{name} is missing" for name in schema.get("required", []) if name not in value]
    for name, each in value.items():
        if name not in properties and rest is None:
            faults.append(f"{name} is not in the schema")
        else:
            faults += problems(each, properties.get(name, rest), root)
    return faults


def _of_array(value: list[Any], schema: dict[str, Any], root: dict[str, Any]) -> list[str]:
    prefix = schema.get("prefixItems", [])
    fits = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
    faults = [] if fits else [f"{value!r} has the wrong length"]
    for number, each in enumerate(value):
        faults += problems(each, prefix[number] if number < len(prefix) else schema["items"], root)
    return faults


def _is(value: object, kind: str) -> bool:
    types: dict[str, type | tuple[type, ...]] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "object": dict,
        "array": list,
        "null": type(None),
    }
    return isinstance(value, types[kind]) and not (kind in {"integer", "number"} and isinstance(value, bool))


def test_there_is_an_example_of_every_event() -> None:
    assert {type(example) for example in EXAMPLES} == set(event_classes())


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda each: each.type)
def test_every_event_fits_the_published_schema(event: events.Event) -> None:
    schema = event_schema()
    assert problems(json.loads(json.dumps(event.as_json())), schema, schema) == []


@pytest.mark.parametrize("spoil", ["type", "run", "at", "seconds"])
def test_an_event_without_a_field_does_not_fit(spoil: str) -> None:
    schema = event_schema()
    data = json.loads(json.dumps(EXAMPLES[5].as_json()))
    del data[spoil]
    assert problems(data, schema, schema) != []


def test_a_field_of_another_type_does_not_fit() -> None:
    schema = event_schema()
    data = json.loads(json.dumps(EXAMPLES[5].as_json())) | {"seconds": "1"}
    assert problems(data, schema, schema) != []
