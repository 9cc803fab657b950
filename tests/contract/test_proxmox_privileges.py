"""The table of privileges against the permissions that Proxmox VE's own API declares."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provision.contracts.remedy import Request
from provision.proxmox import privileges
from provision.proxmox.privileges import Call, Need, needs_of
from provision.proxmox.queries import Rights
from tests.unit.proxmox.roles.world import INVENTORY, World

APIDATA = Path(__file__).resolve().parents[3] / "shared" / "pve-api" / "apidata.json.gz"

pytestmark = pytest.mark.skipif(not APIDATA.exists(), reason="../shared/pve-api is absent")


def walk(nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in nodes:
        yield node
        yield from walk(node.get("children") or [])


@pytest.fixture(scope="module")
def permissions() -> dict[tuple[str, str], dict[str, Any]]:
    with gzip.open(APIDATA, "rt") as file:
        nodes = json.load(file)
    return {
        (method, node["path"]): info.get("permissions") or {}
        for node in walk(nodes)
        for method, info in (node.get("info") or {}).items()
    }


def granted(rights: Rights, check: list[Any]) -> bool:
    """Evaluate an expression of the schema."""
    if check[0] in {"and", "or"}:
        return (all if check[0] == "and" else any)(granted(rights, part) for part in check[1:])
    _, path, names, *options = check
    some = "any" in options
    return (any if some else all)(rights.may(path, name) for name in names)


def rights_of(needs: tuple[Need, ...], choice: int) -> Rights:
    paths: dict[str, dict[str, int]] = {}
    for alternatives in needs:
        for path, privilege in alternatives[min(choice, len(alternatives) - 1)]:
            paths.setdefault(path, {})[privilege] = 1
    return Rights(paths)


@pytest.mark.parametrize("call", privileges.CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_the_table_asks_for_what_the_api_checks(
    call: Call, permissions: dict[tuple[str, str], dict[str, Any]]
) -> None:
    declared = permissions[call.method, call.path]
    if "check" not in declared:  # the code itself checks: its description names what
        named = set(re.findall(r"\b(?:VM|Datastore|Mapping)\.[A-Z]\w+", declared.get("description", "")))
        asked = {privilege for need in call.needs for grants in need for _, privilege in grants}
        assert not asked or not named or asked & named
        return
    if call.has_keys and not call.needs:
        assert set(declared["check"][2]) >= {f"VM.Config.{part}" for part in privileges._BY_KEY.values()}
        return
    for choice in range(max(len(need) for need in call.needs)):
        assert granted(rights_of(call.needs, choice), declared["check"])
    for left_out in range(len(call.needs)):
        rest = call.needs[:left_out] + call.needs[left_out + 1 :]
        assert not granted(rights_of(rest, 0), declared["check"])


def test_the_table_knows_every_request_of_a_whole_life(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(
        INVENTORY.replace("gpus: [one],", "gpus: [one], tpm: { version: v2.0 }, startup: { order: 2 },")
    )
    assert world.apply().exit_code == 0
    world.destroy()
    for method, path, data in world.pve.log:
        needs_of(Request(method, path, data))  # LookupError otherwise
    assert {method for method, _, _ in world.pve.log} == {"GET", "POST", "PUT", "DELETE"}


@pytest.mark.parametrize(
    ("data", "config", "asked"),
    [
        ({"startup": "order=1"}, {}, {("/", "Sys.Modify"), ("/vms/7", "VM.Config.Options")}),
        ({"boot": "order=scsi0"}, {}, {("/vms/7", "VM.Config.Disk")}),
        ({"smbios1": "uuid=x"}, {}, {("/vms/7", "VM.Config.HWType")}),
        ({"ide2": "s:cloudinit"}, {}, {("/vms/7", "VM.Config.CDROM")}),
        ({"delete": "ide2"}, {"ide2": "s:iso/x.iso,media=cdrom"}, {("/vms/7", "VM.Config.CDROM")}),
        ({"scsi1": "s:4"}, {}, {("/vms/7", "VM.Config.Disk"), ("/storage/s", "Datastore.AllocateSpace")}),
        (
            {"net0": "virtio=BC:24:11:00:00:01,bridge=b,tag=7"},
            {},
            {("/vms/7", "VM.Config.Network"), ("/sdn/zones/localnetwork/b/7", "SDN.Use")},
        ),
        (
            {"delete": "hostpci0"},
            {"hostpci0": "mapping=old,pcie=1"},
            {("/vms/7", "VM.Config.HWType"), ("/mapping/pci/old", "Mapping.Use")},
        ),
        ({"tags": "a", "name": "b", "digest": "c"}, {}, {("/vms/7", "VM.Config.Options")}),
    ],
)
def test_keys_of_a_vm_take_their_own_privileges(
    data: dict[str, object], config: dict[str, str], asked: set[tuple[str, str]]
) -> None:
    needs = needs_of(Request("PUT", "/nodes/pve/qemu/7/config", data), config)
    assert {grant for need in needs for grant in need[0]} == asked
