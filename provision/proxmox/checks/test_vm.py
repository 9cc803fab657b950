"""VMs as Proxmox VE holds them, read through the API."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from provision.contracts.check import NotDeclared, Site
from provision.inventory.models.node import Node
from provision.proxmox import names

OK = 200
MISSING = "does not exist"
"""Part of PVE's message for a number without a VM: `Configuration file '...' does not exist`."""


@dataclass(frozen=True)
class Vm:
    """A VM's configuration, all values as text, and the keys that wait for a power cycle."""

    config: Mapping[str, str]
    pending: frozenset[str]

    def parts(self, key: str, first: str) -> dict[str, str]:
        """Return the parts of a property string; `first` is the name of one without a name."""
        return _parts(self.config.get(key, ""), first)


@pytest.fixture
def declared(site: Site, vm: str) -> Node:
    """What the inventory says of it."""
    return site.inventory.nodes[vm]


@pytest.fixture
def actual(site: Site, declared: Node) -> Vm:
    """The VM as it is."""
    return _read(site, declared)


def _read(site: Site, declared: Node) -> Vm:
    hypervisor = site.inventory.hypervisors[declared.hypervisor or ""]
    path = f"/nodes/{hypervisor.node_name}/qemu/{declared.vmid}/pending"
    reply = site.get(names.api(hypervisor.name), path)
    if reply.status != OK and MISSING not in reply.text:
        pytest.skip(f"unknown: {reply.text}")
    assert reply.status == OK, f"there is no VM {declared.vmid} on {hypervisor.node_name}"
    rows = json.loads(reply.text)
    config = {row["key"]: str(row["value"]) for row in rows if row.get("value") is not None}
    pending = (row["key"] for row in rows if "pending" in row or row.get("delete"))
    return Vm(config, frozenset(pending))


def _parts(text: str, first: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name if equals else first: value if equals else name for name, equals, value in pairs}


def _marker(vm: Vm) -> dict[str, str]:
    """Return the fields of the line in the description that says whose the VM is."""
    lines = vm.config.get("description", "").splitlines()
    words = next((line.split() for line in lines if re.match(r"\s*provision:.*\binventory=", line)), [])
    return dict(word.partition("=")[::2] for word in words)


def _memory(vm: Vm) -> int:
    """Return MiB; PVE's default is 512."""
    return int(vm.parts("memory", "current").get("current", "512"))


def test_it_is_marked(site: Site, vm: str, actual: Vm) -> None:
    """The VM carries this inventory's marker and the tag `provision`."""
    marker = _marker(actual)
    assert marker, "no marker line in its description"
    assert (marker.get("inventory"), marker.get("node")) == (site.inventory.name, vm), f"marked for {marker}"
    assert "provision" in re.split("[;, ]", actual.config.get("tags", ""))


def test_machine(actual: Vm, declared: Node) -> None:
    """The machine type is the declared one."""
    if declared.machine_type is None:
        raise NotDeclared("unmanaged")
    value = actual.parts("machine", "type").get("type", "")
    assert ("q35" if "q35" in value else "i440fx") == declared.machine_type, f"machine: {value or 'unset'}"


def test_firmware(actual: Vm, declared: Node) -> None:
    """The firmware is the declared one; OVMF has its disk of variables without enrolled keys."""
    if declared.firmware is None:
        raise NotDeclared("unmanaged")
    assert actual.config.get("bios", "seabios") == declared.firmware
    if declared.efi_disk is not None and not declared.efi_disk.pre_enrolled_keys:
        disk = actual.config.get("efidisk0", "")
        assert disk, "no efidisk0"
        assert "pre-enrolled-keys=1" not in disk, disk


def test_balloon(actual: Vm, declared: Node) -> None:
    """Ballooning is as declared; off with a passed-through card."""
    if declared.balloon_memory is None:
        raise NotDeclared("unmanaged")
    balloon = actual.config.get("balloon")
    assert int(balloon or _memory(actual)) == declared.balloon_memory, balloon or "unset"


def test_start_at_boot(actual: Vm, declared: Node) -> None:
    """The VM starts with the hypervisor only if that is declared; never with a card."""
    if declared.starts_at_boot is None:
        raise NotDeclared("unmanaged")
    assert (actual.config.get("onboot", "0") == "1") is declared.starts_at_boot


def test_memory_and_cores(actual: Vm, declared: Node) -> None:
    """Memory and processors are the declared ones."""
    if declared.memory is not None:
        memory = _memory(actual)
        assert memory == declared.memory, f"memory: {memory}"
    if declared.cores is not None:
        assert int(actual.config.get("cores", "1")) == declared.cores, actual.config.get("cores", "unset")


def test_nothing_is_pending(actual: Vm) -> None:
    """No change waits for a power cycle."""
    assert not actual.pending, f"pending: {sorted(actual.pending)}"


def test_mac(site: Site, vm: str, actual: Vm) -> None:
    """The guest's network card has the MAC of the configuration."""
    net0 = actual.config.get("net0", "")
    mac = net0.split(",")[0].partition("=")[2].lower()
    assert mac, f"no MAC in net0: {net0}"
    host = site.host(f"{vm}/ssh")
    macs = host.check_output("cat /sys/class/net/*/address").lower().split()
    assert mac in macs, f"{mac} is not among {macs}"


def test_no_snippet_is_left(actual: Vm) -> None:
    """The configuration no longer names the snippet of the first boot."""
    assert "cicustom" not in actual.config, actual.config.get("cicustom")


def _cards(vm: Vm) -> Iterator[dict[str, str]]:
    return (vm.parts(key, "host") for key in vm.config if key.startswith("hostpci"))


def test_card_is_passed_through(site: Site, gpu_vm: str) -> None:
    """Every declared card is passed through by a mapping, as PCI Express."""
    declared = site.inventory.nodes[gpu_vm]
    cards = list(_cards(_read(site, declared)))
    mappings = sorted(names.mapping(site.inventory, alias) for alias in declared.gpus)
    assert sorted(card.get("mapping", "") for card in cards) == mappings, f"{cards}, declared {mappings}"
    assert all(card.get("pcie") == "1" for card in cards), cards
