"""Every request of ours against Proxmox VE's own schema."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.proxmox.roles.world import INVENTORY, World

SHARED = Path(__file__).resolve().parents[3] / "shared" / "pve-api"
APIDATA, FORMATS = SHARED / "apidata.json.gz", SHARED / "formats.json.gz"

pytestmark = pytest.mark.skipif(not APIDATA.exists(), reason="../shared/pve-api is absent")

RICH = INVENTORY.replace(
    "    cards:\n", '    usb: { stick: { id: "10c4:ea60", port: 1-2 } }\n    cards:\n'
).replace(
    "gpus: [one],",
    "gpus: [one], usb: [stick], agent: true, numa: true,"
    " protection: false, tags: [gpu], startup: { order: 2, up: 30 },"
    " disks: [{ size: 8GiB, ssd: true, discard: true }], tpm: { version: v2.0 }, cpu: { flags: [+aes] },"
    " nics: [{ vlan: 7, mtu: 1500, firewall: true }],",
)


def walk(nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in nodes:
        yield node
        yield from walk(node.get("children") or [])


@pytest.fixture(scope="module")
def schema() -> list[tuple[str, re.Pattern[str], dict[str, Any]]]:
    with gzip.open(APIDATA, "rt") as file:
        nodes = json.load(file)
    found = []
    for node in walk(nodes):
        pattern = re.compile(
            re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(node["path"]).replace("\\_", "_"))
        )
        found += [(method, pattern, info) for method, info in (node.get("info") or {}).items()]
    return found


@pytest.fixture(scope="module")
def formats() -> dict[str, Any]:
    with gzip.open(FORMATS, "rt") as file:
        found: dict[str, Any] = json.load(file)["formats"]
    return found


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, dict[str, object]]]:
    """A VM with every kind of part: made, drifted, mended, power-cycled, stopped, removed."""
    world = World(tmp_path_factory.mktemp("requests"))
    world.write(RICH)
    world.host.usb = "device 1-2 10c4:ea60 00\nend\n"
    assert world.apply().exit_code == 0
    world.pve.vms[102].config.update(cores="1", hostpci1="mapping=provision-site-old,pcie=1")
    world.pve.mappings["provision-site-one"] = ["node=pve,path=0000:02:00,id=10de:0000"]
    world.pve.usb["provision-site-stick"] = ["node=pve,id=10c4:ea61"]
    world.apply()
    world.write(RICH.replace("power: running", "power: stopped").replace("disk: 4GiB", "disk: 5GiB"))
    world.apply()
    world.destroy()
    return world.pve.log


def problems(name: str, value: object, field: dict[str, Any], formats: dict[str, Any]) -> Iterator[str]:
    kind = field.get("type")
    values = value if isinstance(value, list) else [value]
    if isinstance(value, list) and kind != "array":
        yield f"{name}: a list instead of {kind}"
    for each in values:
        text = str(each)
        if kind == "boolean" and text not in {"0", "1"}:
            yield f"{name}: {text!r} is no boolean"
        if kind == "integer" and not re.fullmatch(r"-?\d+", text):
            yield f"{name}: {text!r} is no integer"
        if "enum" in field and text not in field["enum"]:
            yield f"{name}: {text!r} is none of {field['enum']}"
        if "maxLength" in field and len(text) > field["maxLength"]:
            yield f"{name}: too long"
        parts = field.get("format")
        parts = formats.get(parts) if isinstance(parts, str) else parts
        if isinstance(parts, dict):
            yield from part_problems(name, text, parts)


def part_problems(name: str, text: str, parts: dict[str, Any]) -> Iterator[str]:
    default = next((key for key, part in parts.items() if part.get("default_key")), None)
    for item in text.split(","):
        key, equals, value = item.partition("=")
        key, value = (key, value) if equals else (default or "", key)
        part = parts.get(key)
        if part is None:
            yield f"{name}: {key!r} is no part of it"
        elif part.get("type") == "boolean" and value not in {"0", "1", "on", "off"}:
            yield f"{name}.{key}: {value!r} is no boolean"
        elif "enum" in part and value not in part["enum"]:
            yield f"{name}.{key}: {value!r} is none of {part['enum']}"


def test_every_request_of_ours_is_one_that_proxmox_knows(
    requests: list[tuple[str, str, dict[str, object]]],
    schema: list[tuple[str, re.Pattern[str], dict[str, Any]]],
    formats: dict[str, Any],
) -> None:
    wrong: list[str] = []
    for method, path, data in requests:
        matches = [
            (info, found)
            for verb, pattern, info in schema
            if verb == method and (found := pattern.fullmatch(path))
        ]
        if not matches:
            wrong.append(f"{method} {path}: unknown")
            continue
        info, match = min(matches, key=lambda pair: len(pair[1].groupdict()))
        properties = (info.get("parameters") or {}).get("properties", {})
        given = {**match.groupdict(), **data}
        for name, value in given.items():
            field = properties.get(name) or properties.get(re.sub(r"\d+$", "[n]", name))
            if field is None:
                wrong.append(f"{method} {path}: no parameter {name}")
            else:
                wrong += [f"{method} {path}: {each}" for each in problems(name, value, field, formats)]
        missing = [
            name for name, field in properties.items() if not field.get("optional") and name not in given
        ]
        wrong += [f"{method} {path}: {name} is missing" for name in missing]
    assert wrong == []


def test_the_check_sees_a_wrong_request(
    schema: list[tuple[str, re.Pattern[str], dict[str, Any]]], formats: dict[str, Any]
) -> None:
    fields = next(
        info for verb, pattern, info in schema if verb == "POST" and pattern.fullmatch("/nodes/x/qemu")
    )
    properties = fields["parameters"]["properties"]
    assert list(problems("onboot", True, properties["onboot"], formats))
    assert list(problems("hostpci0", "mapping=x,pci=1", properties["hostpci[n]"], formats))
    assert list(problems("bios", "uefi", properties["bios"], formats))


def test_all_kinds_of_writes_were_seen(requests: list[tuple[str, str, dict[str, object]]]) -> None:
    shapes = {f"{method} {re.sub(r'[0-9]{3}', 'N', path)}" for method, path, _ in requests if method != "GET"}
    assert {
        "POST /nodes/pve/qemu",
        "PUT /nodes/pve/qemu/N/config",
        "PUT /nodes/pve/qemu/N/resize",
        "POST /nodes/pve/qemu/N/status/start",
        "POST /nodes/pve/qemu/N/status/shutdown",
        "DELETE /nodes/pve/qemu/N",
        "POST /nodes/pve/storage/local/download-url",
        "POST /cluster/mapping/pci",
        "PUT /cluster/mapping/pci/provision-site-one",
        "DELETE /cluster/mapping/pci/provision-site-one",
        "POST /cluster/mapping/usb",
        "PUT /cluster/mapping/usb/provision-site-stick",
        "DELETE /cluster/mapping/usb/provision-site-stick",
    } <= shapes
