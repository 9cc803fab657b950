"""`/cluster/mapping/usb`: named USB devices. The lab's hypervisor has none, so no start looks at them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from provision.lab.api.core import Call, Need, Route
from provision.lab.api.errors import failed
from provision.lab.api.mapping_routes import CONFIG_ID
from provision.lab.api.schema import Field, Params
from provision.lab.api.store import read_json, write_json

_ANY = ("Mapping.Modify", "Mapping.Use", "Mapping.Audit")
_PATH = "/cluster/mapping/usb"
_MAP = {
    "node": Field(required=True),
    "id": Field(required=True, pattern=r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}"),
    "path": Field(pattern=r"\d+-\d+(\.\d+)*"),
    "description": Field(),
}
_ENTRIES = Field("array", required=True, parts=_MAP)
_VALUES = {"description": Field(max_length=4096)}


def _stored(call: Call) -> dict[str, dict[str, Any]]:
    mappings: dict[str, dict[str, Any]] = read_json(call.lab.folder / "mapping" / "usb.json", {})
    return mappings


def _save(call: Call, mappings: dict[str, dict[str, Any]]) -> None:
    write_json(call.lab.folder / "mapping" / "usb.json", mappings)


def _digest(mappings: dict[str, dict[str, Any]]) -> str:
    text = json.dumps(mappings, sort_keys=True)
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _list(call: Call) -> Any:
    mappings = _stored(call)
    shown = [name for name in sorted(mappings) if call.may(f"/mapping/usb/{name}", *_ANY, some=True)]
    return [{"id": name, "digest": _digest(mappings), **mappings[name]} for name in shown]


def _values(call: Call) -> dict[str, Any]:
    text = {"description": call.params["description"]} if "description" in call.params else {}
    return text | ({"map": call.items("map")} if "map" in call.params else {})


def _add(call: Call) -> None:
    with call.lab.mapping_lock:
        mappings, name = _stored(call), call.text("id")
        if name in mappings:
            raise failed(f"create hardware mapping failed: usb ID '{name}' already defined")
        _save(call, {**mappings, name: _values(call)})


def _change(call: Call) -> None:
    with call.lab.mapping_lock:
        mappings, name = _stored(call), call.text("id")
        if call.text("digest") and call.text("digest") != _digest(mappings):
            raise failed("detected modified configuration - file changed by other user? Try again.")
        if name not in mappings:
            raise failed(f"mapping '{name}' not found")
        _save(call, {**mappings, name: {**mappings[name], **_values(call)}})


def _delete(call: Call) -> None:
    with call.lab.mapping_lock:
        mappings = _stored(call)
        mappings.pop(call.text("id"), None)
        _save(call, mappings)


_MODIFY = ("Mapping.Modify",)
ROUTES: tuple[Route, ...] = (
    Route("GET", _PATH, _list, Params({"check-node": Field()})),
    Route(
        "POST",
        _PATH,
        _add,
        Params({"id": CONFIG_ID, **_VALUES, "map": _ENTRIES}),
        Need("/mapping/usb", _MODIFY),
    ),
    Route(
        "PUT",
        f"{_PATH}/{{id}}",
        _change,
        Params({"id": CONFIG_ID, **_VALUES, "map": _ENTRIES, "digest": Field(max_length=64)}),
        Need("/mapping/usb/{id}", _MODIFY),
    ),
    Route("DELETE", f"{_PATH}/{{id}}", _delete, Params({"id": CONFIG_ID}), Need("/mapping/usb", _MODIFY)),
)
