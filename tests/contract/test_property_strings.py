"""Every key of our property strings, by Proxmox VE's own formats: read as written, compared by meaning."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.proxmox import formats
from provision.proxmox.formats import Format, explicit, join, normal, parse

SHARED = Path(__file__).resolve().parents[3] / "shared" / "pve-api"
OURS: dict[str, Format] = {
    **dict.fromkeys(("ide[n]", "sata[n]", "scsi[n]", "virtio[n]"), formats.DRIVE),
    "efidisk0": formats.EFIDISK,
    "tpmstate0": formats.TPMSTATE,
    "net[n]": formats.NET,
    "hostpci[n]": formats.HOSTPCI,
    "cpu": formats.CPU,
    "memory": formats.MEMORY,
    "agent": formats.AGENT,
    "machine": formats.MACHINE,
    "boot": formats.BOOT,
    "map": formats.MAPPING_ENTRY,
}
"""Our format of each parameter; `startup` has none in the schema, only code."""
NOT_DESIRED = {("efidisk0", "ms-cert"), ("boot", "legacy")}
"""Keys whose default does not count: PVE marks the first by itself, and the second is another way to boot."""
TRUE, FALSE = ("1", "on", "yes", "true", "On"), ("0", "off", "no", "false", "Off")
Schema = dict[str, dict[str, Any]]

pytestmark = pytest.mark.skipif(not SHARED.exists(), reason="../shared/pve-api is absent")


def _nodes(nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in nodes:
        yield node
        yield from _nodes(node.get("children") or [])


def _schemas() -> dict[str, Schema]:
    if not SHARED.exists():
        return {name: {} for name in OURS}
    with gzip.open(SHARED / "apidata.json.gz", "rt") as file:
        nodes = {node["path"]: node for node in _nodes(json.load(file))}
    with gzip.open(SHARED / "formats.json.gz", "rt") as file:
        named = json.load(file)["formats"]
    create = nodes["/nodes/{node}/qemu"]["info"]["POST"]["parameters"]["properties"]
    mapping = nodes["/cluster/mapping/pci"]["info"]["POST"]["parameters"]["properties"]["map"]["items"]
    fields = {**create, "map": mapping}
    found = {}
    for name in OURS:
        form = fields[name]["format"]
        found[name] = named[form] if isinstance(form, str) else form
    return found


SCHEMAS = _schemas()
KEYS = [(name, key) for name, schema in SCHEMAS.items() for key in schema]
each_key = pytest.mark.parametrize(("name", "key"), KEYS, ids=[f"{name}.{key}" for name, key in KEYS])
each_format = pytest.mark.parametrize("name", list(OURS))


@each_key
def test_a_key_has_the_default_the_alias_and_the_kind_of_the_schema(name: str, key: str) -> None:
    form, field = OURS[name], SCHEMAS[name][key]
    if field.get("default_key"):
        assert form.default_key == key
    if "keyAlias" in field:
        assert key in form.models
        return
    if "alias" in field:
        assert form.aliases[key] == field["alias"]
        return
    if field.get("type") == "boolean":
        assert key in form.flags
    if "default" in field and (name, key) not in NOT_DESIRED:
        assert form.defaults[key] == str(field["default"])


def _value(field: dict[str, Any]) -> st.SearchStrategy[str]:
    """Return values of a field that may stand in a property string."""
    if field.get("type") == "boolean":
        return st.sampled_from(["0", "1"])
    if "enum" in field:
        return st.sampled_from(field["enum"])
    if field.get("type") in ("integer", "number"):
        low, high = int(field.get("minimum", 0)), int(field.get("maximum", 10**6))
        return st.integers(low, high).map(str)
    if field.get("format") == "mac-addr":
        return st.binary(min_size=6, max_size=6).map(lambda data: data.hex(":").upper())
    return st.text("abcdefgh0123456789:/.+-_", min_size=1, max_size=20)


def _parts(name: str) -> st.SearchStrategy[dict[str, str]]:
    """Return parts of a property string under the names that the schema has for good."""
    fields = {key: field for key, field in SCHEMAS[name].items() if "alias" not in field}
    return st.fixed_dictionaries({}, optional={key: _value(field) for key, field in fields.items()})


def _any_format(test: Callable[[str, dict[str, str], st.DataObject], None]) -> Any:
    @each_format
    @given(data=st.data())
    def run(name: str, data: st.DataObject) -> None:
        test(name, data.draw(_parts(name)), data)

    run.__name__ = test.__name__
    return run


@_any_format
def test_what_is_written_is_read_again(name: str, parts: dict[str, str], data: st.DataObject) -> None:
    del name, data
    assert parse(join(parts)) == parts
    assert join(parse(join(parts))) == join(parts)


@_any_format
def test_order_defaults_aliases_and_spelling_do_not_change_the_meaning(
    name: str, parts: dict[str, str], data: st.DataObject
) -> None:
    form, schema = OURS[name], SCHEMAS[name]
    meaning = normal(join(parts), form)
    other: dict[str, str] = {}
    for key in data.draw(st.permutations(list(parts))):
        value = parts[key]
        if form.defaults.get(key) == value and data.draw(st.booleans()):
            continue  # what is the default need not stand there
        if key in form.flags:
            value = data.draw(st.sampled_from(TRUE if value == "1" else FALSE))
        elif key == "macaddr":
            value = value.lower()
        names = [key, *(alias for alias, target in form.aliases.items() if target == key and alias in schema)]
        other[data.draw(st.sampled_from(names))] = value
    if form.default_key in other and data.draw(st.booleans()):
        first = other.pop(form.default_key)
        other = {"": first, **other}
    if form.models and {"model", "macaddr"} <= {*other} and data.draw(st.booleans()):
        other[other.pop("model")] = other.pop("macaddr")
    for key, value in form.defaults.items():
        if key not in parts and key in schema and data.draw(st.booleans()):
            other[key] = value
    assert normal(join(other), form) == meaning


@_any_format
def test_another_value_is_another_meaning(name: str, parts: dict[str, str], data: st.DataObject) -> None:
    form, schema = OURS[name], SCHEMAS[name]
    keys = [key for key, field in schema.items() if "alias" not in field and key not in form.ignored]
    key = data.draw(st.sampled_from(keys))
    old = normal(join(parts), form).get(key)
    new = data.draw(_value(schema[key]).filter(lambda value: explicit(f"{key}={value}", form)[key] != old))
    assert normal(join({**parts, key: new}), form) != normal(join(parts), form)
