"""`/cluster/mapping/pci`: named cards that a token may use."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from provision.lab.api.changes import split_list
from provision.lab.api.core import Call, Need, Route
from provision.lab.api.errors import bad_parameter, failed
from provision.lab.api.pci import mapping_problem, parse_entry
from provision.lab.api.schema import Field, FormatError, Params

BOOL = Field("boolean")
_ANY = ("Mapping.Modify", "Mapping.Use", "Mapping.Audit")
_PAIR = Field(required=True, pattern=r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}")
_ADDRESS = r"[0-9a-fA-F]{4,}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(\.[0-9a-fA-F])?"
_MAP = Field(
    "array",
    parts={
        "node": Field(required=True),
        "path": Field(required=True, pattern=rf"{_ADDRESS}(;{_ADDRESS})*"),
        "id": _PAIR,
        "subsystem-id": Field(pattern=_PAIR.pattern),
        "iommugroup": Field("integer", minimum=-1),
        "description": Field(),
    },
)


def _config_id(text: str) -> None:
    if not re.fullmatch(r"[A-Za-z][\w-]+", text):
        raise FormatError(f"invalid configuration ID '{text}'")


CONFIG_ID = Field(required=True, check=_config_id)
_OPTIONS = {
    "description": Field(max_length=4096),
    "mdev": BOOL,
    "live-migration-capable": BOOL,
}


def _digest(mappings: dict[str, dict[str, Any]]) -> str:
    text = json.dumps(mappings, sort_keys=True)
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _checks(call: Call, name: str, entries: list[str], node: str) -> list[dict[str, str]]:
    own = [entry for entry in map(parse_entry, entries) if entry["node"] == node]
    if not own:
        return [{"severity": "warning", "message": f"No mapping for node {node}."}]
    devices = call.lab.pci()
    problems = (mapping_problem(entry, devices, name) for entry in own)
    return [
        {"severity": "error", "message": f"Invalid configuration: {problem}\n"}
        for problem in problems
        if problem is not None
    ]


def _list(call: Call) -> Any:
    mappings = call.lab.mappings()
    digest = _digest(mappings)
    result = []
    for name, entry in sorted(mappings.items()):
        if not call.may(f"/mapping/pci/{name}", *_ANY, some=True):
            continue
        shown = {"id": name, "type": "pci", "digest": digest, **entry}
        if "check-node" in call.params:
            shown["checks"] = _checks(call, name, entry["map"], call.text("check-node"))
        result.append(shown)
    return result


def _get(call: Call) -> Any:
    mappings = call.lab.mappings()
    if call.text("id") not in mappings:
        raise failed(f"mapping '{call.text('id')}' not found")
    return {**mappings[call.text("id")], "digest": _digest(mappings), "type": "pci"}


def _values(call: Call) -> dict[str, Any]:
    values: dict[str, Any] = {key: call.params[key] for key in _OPTIONS if key in call.params}
    return values | ({"map": call.items("map")} if "map" in call.params else {})


def _add(call: Call) -> None:
    with call.lab.mapping_lock:
        mappings = call.lab.mappings()
        if call.text("id") in mappings:
            name = call.text("id")
            raise failed(f"create hardware mapping failed: pci ID '{name}' already defined")
        call.lab.save_mappings({**mappings, call.text("id"): _values(call)})


def _change(call: Call) -> None:
    with call.lab.mapping_lock:
        mappings = call.lab.mappings()
        if call.text("digest") and call.text("digest") != _digest(mappings):
            raise failed("detected modified configuration - file changed by other user? Try again.")
        if call.text("id") not in mappings:
            raise failed(f"mapping '{call.text('id')}' not found")
        entry = {**mappings[call.text("id")], **_values(call)}
        for key in split_list(call.text("delete")):
            if key not in _OPTIONS:
                raise bad_parameter("delete", f"unable to delete required property '{key}'")
            entry.pop(key, None)
        call.lab.save_mappings({**mappings, call.text("id"): entry})


def _delete(call: Call) -> None:
    with call.lab.mapping_lock:
        mappings = call.lab.mappings()
        mappings.pop(call.text("id"), None)
        call.lab.save_mappings(mappings)


_ONE = "/mapping/pci/{id}"
_PATH = "/cluster/mapping/pci"

ROUTES: tuple[Route, ...] = (
    Route("GET", _PATH, _list, Params({"check-node": Field()})),
    Route(
        "POST",
        _PATH,
        _add,
        Params({"id": CONFIG_ID, **_OPTIONS, "map": Field("array", required=True, parts=_MAP.parts)}),
        Need("/mapping/pci", ("Mapping.Modify",)),
    ),
    Route("GET", f"{_PATH}/{{id}}", _get, Params({"id": CONFIG_ID}), Need(_ONE, _ANY, some=True)),
    Route(
        "PUT",
        f"{_PATH}/{{id}}",
        _change,
        Params({"id": CONFIG_ID, **_OPTIONS, "map": _MAP, "delete": Field(), "digest": Field(max_length=64)}),
        Need(_ONE, ("Mapping.Modify",)),
    ),
    Route(
        "DELETE",
        f"{_PATH}/{{id}}",
        _delete,
        Params({"id": CONFIG_ID}),
        Need("/mapping/pci", ("Mapping.Modify",)),
    ),
)
