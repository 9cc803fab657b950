"""USB devices are passed by mappings of their own, or raw as root; what is missing or in use is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.domains import load_inventory
from provision.proxmox.formats import USB, normal
from provision.proxmox.resources.vm_cards import is_raw, placed_usb
from provision.proxmox.resources.vm_parts import Plugged
from provision.proxmox.usb_facts import UsbPlugged, usb_devices
from provision.testing.model_host import ModelFile
from provision.testing.model_proxmox import ModelVm
from provision.values.diagnostics import Severity
from provision.values.errors import UsageError
from tests.unit.proxmox.preflight.test_rules import found
from tests.unit.proxmox.roles.world import INVENTORY, World

DEVICES = """\
device usb1 1d6b:0002 09
device 1-2 10c4:ea60 00
device 1-3 0403:6001 00
device 1-4 0403:6001 00
device 2-1 0781:5581 00
use 2-1 mounted disk sdb
device 2-2 0bda:5411 09
end
"""


def text(usb: str, taken: str) -> str:
    return INVENTORY.replace("    cards:\n", f"    usb: {{ {usb} }}\n    cards:\n").replace(
        "vmid: 101,", f"vmid: 101, usb: [{taken}],"
    )


ZIGBEE = text('zigbee: { id: "10C4:EA60" }', "zigbee")


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.host.usb = DEVICES
    world.host.files["/proc/cmdline"] = ModelFile()
    world.write(ZIGBEE)
    return world


def test_a_device_gets_a_mapping_and_its_entry(world: World) -> None:
    assert world.apply().exit_code == 0
    assert world.pve.usb == {"provision-site-zigbee": ["node=pve,id=10c4:ea60"]}
    assert world.pve.vms[101].config["usb0"] == "mapping=provision-site-zigbee"
    assert world.plan().empty


def test_a_running_vm_gets_a_device_without_a_power_cycle(world: World) -> None:
    world.write(INVENTORY)
    assert world.apply().exit_code == 0
    world.write(ZIGBEE)
    starts = [path for _, path, _ in world.pve.log if path.endswith("/status/start")]
    assert world.apply().exit_code == 0
    assert [path for _, path, _ in world.pve.log if path.endswith("/status/start")] == starts
    assert world.pve.vms[101].config["usb0"] == "mapping=provision-site-zigbee"
    assert world.plan().empty


def test_another_port_changes_the_mapping_and_what_is_not_declared_goes(world: World) -> None:
    assert world.apply().exit_code == 0
    world.write(text('zigbee: { id: "10c4:ea60", port: 1-2 }', "zigbee"))
    assert world.apply().exit_code == 0
    assert world.pve.usb == {"provision-site-zigbee": ["node=pve,id=10c4:ea60,path=1-2"]}
    world.pve.vms[101].config["usb1"] = "spice"
    world.write(text('zigbee: { id: "10c4:ea60", port: 1-2 }', ""))
    assert world.apply(prune=True).exit_code == 0
    assert world.pve.usb == {}
    config = world.pve.vms[101].config
    assert ("usb0" in config, config["usb1"]) == (False, "spice"), "what others have plugged in stays"
    assert world.plan().empty


def test_a_section_that_is_gone_leaves_no_mapping(world: World) -> None:
    assert world.apply().exit_code == 0
    world.write(INVENTORY)
    assert world.apply(prune=True).exit_code == 0
    assert world.pve.usb == {}


def test_destroy_removes_its_mapping(world: World) -> None:
    assert world.apply().exit_code == 0
    assert world.destroy().exit_code == 0
    assert world.pve.usb == {}


def test_a_raw_device_is_root_s(world: World) -> None:
    raw = text('zigbee: { id: "10c4:ea60", raw: true }', "zigbee")
    world.write(raw)
    with pytest.raises(UsageError, match="root_password"):
        load_inventory(world.folder / "site.yaml")
    (world.folder / "root").write_text("root-password\n")
    world.write(raw.replace("api: {", "api: { root_password: !secret { file: ./root },"))
    world.pve.has_root = True
    assert world.apply().exit_code == 0
    assert (world.pve.usb, world.pve.vms[101].config["usb0"]) == ({}, "host=10c4:ea60")
    assert world.plan().empty


CASES = [
    ('a: { id: "10c4:ea60" }', set()),
    ('a: { id: "0403:6001", port: 1-4 }', set()),
    ('a: { id: "0403:6001" }', {"USB_NOT_UNIQUE"}),
    ('a: { id: "dead:beef" }', {"USB_MISSING"}),
    ('a: { id: "10c4:ea60", port: 1-9 }', {"USB_MISSING"}),
    ('a: { id: "0781:5581" }', {"USB_IN_USE"}),
    ('a: { id: "0bda:5411" }', {"USB_IN_USE"}),  # a hub
]


@pytest.mark.parametrize(("usb", "expected"), CASES, ids=[f"{usb} {codes}" for usb, codes in CASES])
def test_a_device_that_cannot_be_passed_is_refused(world: World, usb: str, expected: set[str]) -> None:
    world.write(text(usb, "a"))
    assert {problem.code for problem in world.plan().refusals} == expected


@pytest.mark.parametrize(
    ("entry", "running", "expected"),
    [
        ("host=10c4:ea60", True, {"USB_IN_USE"}),
        ("1-2,usb3=1", True, {"USB_IN_USE"}),
        ("mapping=theirs", True, {"USB_IN_USE"}),
        ("host=10c4:ea60", False, set()),
        ("host=1-3", True, set()),
        ("spice", True, set()),
        ("mapping=gone", True, set()),
    ],
)
def test_a_device_of_another_running_vm_is_named(
    world: World, entry: str, running: bool, expected: set[str]
) -> None:
    world.pve.vms[900] = ModelVm(900, {"name": "theirs", "usb0": entry}, running=running)
    world.pve.usb["theirs"] = ["node=other,id=dead:beef", "node=pve,id=10c4:ea60,path=1-2"]
    world.vm_files = f"/etc/pve/nodes/pve/qemu-server/900.conf:usb0: {entry}\n".encode()
    evidence = {"usb": DEVICES}
    shell = world.host_shell

    def answer(query: object) -> object:
        command = getattr(query, "command", "")
        if "/sys/bus/usb" in command:
            return type(shell(query))(0, evidence["usb"].encode(), b"")  # type: ignore[arg-type] # a Shell
        return shell(query)  # type: ignore[arg-type] # a Shell

    world.host_shell = answer  # type: ignore[assignment, method-assign] # one more answer
    problems = found(world, ZIGBEE)
    errors = {each.code for each in problems if each.severity is Severity.ERROR}
    assert errors == expected


def test_a_device_that_was_pulled_out_is_a_warning_once_the_vm_has_it(world: World) -> None:
    assert world.apply().exit_code == 0
    world.host.usb = "end\n"
    plan = world.plan()
    assert plan.refusals == ()
    assert [warning.code for warning in plan.warnings] == ["USB_MISSING"]


def test_devices_that_were_not_read_are_unknown() -> None:
    assert usb_devices(DEVICES.removesuffix("end\n")) is None
    assert usb_devices("end\n") == ()
    assert usb_devices("device 1-2 A:B 00\ndevice\nuse\nuse 9-9 x\nend\n") == (UsbPlugged("1-2", "a:b"),)


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ({}, {"usb0": "mapping=p-a", "usb1": "host=1-2"}),
        ({"usb0": "spice"}, {"usb0": "spice", "usb1": "mapping=p-a", "usb2": "host=1-2"}),
        ({"usb3": "usb3=1,mapping=p-a"}, {"usb3": "usb3=1,mapping=p-a", "usb0": "host=1-2"}),
        ({"usb0": "1-2,usb3=1", "usb1": "mapping=p-old"}, {"usb0": "1-2,usb3=1", "usb1": "mapping=p-a"}),
    ],
)
def test_entries_keep_their_place_and_spelling(present: dict[str, str], expected: dict[str, str]) -> None:
    values = {f"usb{number}": present.get(f"usb{number}", "") for number in range(14)}
    assert placed_usb([Plugged("p-a"), Plugged(host="1-2")], values, "p-") == expected


@pytest.mark.parametrize(
    ("value", "raw"),
    [("spice", False), ("host=SPICE", False), ("mapping=x", False), ("1-2", True), ("host=a:b", True)],
)
def test_only_a_real_device_without_a_mapping_is_raw(value: str, raw: bool) -> None:
    assert is_raw("usb3", value) is raw
    assert normal(value, USB)["usb3"] == "0"


def test_a_device_is_taken_once_and_by_a_known_name(world: World) -> None:
    for taken, words in (("zigbee, zigbee", "the USB device zigbee"), ("none", "USB device of pve")):
        world.write(text('zigbee: { id: "10c4:ea60" }', taken))
        with pytest.raises(UsageError, match=words):
            load_inventory(world.folder / "site.yaml")
