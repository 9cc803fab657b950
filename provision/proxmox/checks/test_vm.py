"""VMs as Proxmox VE holds them, read through the API."""

from __future__ import annotations

import pytest

from provision.contracts.check import NotDeclared, Site
from provision.contracts.query import Unknown
from provision.inventory.models.node import Node
from provision.proxmox import formats, names
from provision.proxmox.queries import VmConfig, VmList, VmState


@pytest.fixture
def declared(site: Site, vm: str) -> Node:
    """What the inventory says of it."""
    return site.inventory.nodes[vm]


@pytest.fixture
def seen(site: Site, declared: Node) -> VmState:
    """The VM's configuration and state."""
    return _state(site, declared)


def _state(site: Site, declared: Node) -> VmState:
    vmid = declared.vmid or 0
    answer = site.ask(f"{declared.hypervisor}/api", VmList(), VmConfig(vmid))[VmConfig(vmid)]
    if isinstance(answer, Unknown):
        pytest.skip(f"unknown: {answer.reason}")
    assert isinstance(answer, VmState), f"there is no VM {vmid} on this node"
    return answer


def _memory(state: VmState) -> str:
    return formats.normal(state.config.get("memory", ""), formats.MEMORY)["current"]


def _machine(value: str) -> str:
    name = value.split(",", maxsplit=1)[0].removeprefix("type=")
    return "q35" if "q35" in name else "i440fx"


def test_it_is_marked(site: Site, vm: str, seen: VmState) -> None:
    """The VM carries this inventory's marker and the tag `provision`."""
    assert seen.marker is not None, "no marker line in its description"
    assert seen.marker_of(site.inventory.name, vm) is not None, f"marked for {seen.marker}"
    assert "provision" in seen.config.get("tags", "").replace(",", ";").split(";")


def test_machine(seen: VmState, declared: Node) -> None:
    """The machine type is the declared one."""
    if declared.machine_type is None:
        raise NotDeclared("unmanaged")
    value = seen.config.get("machine", "")
    assert _machine(value) == declared.machine_type, f"machine: {value or 'unset'}"


def test_firmware(seen: VmState, declared: Node) -> None:
    """The firmware is the declared one; OVMF has its disk of variables without enrolled keys."""
    if declared.firmware is None:
        raise NotDeclared("unmanaged")
    assert seen.config.get("bios", "seabios") == declared.firmware
    if declared.efi_disk is not None and not declared.efi_disk.pre_enrolled_keys:
        disk = seen.config.get("efidisk0", "")
        assert disk, "no efidisk0"
        assert "pre-enrolled-keys=1" not in disk, disk


def test_balloon(seen: VmState, declared: Node) -> None:
    """Ballooning is as declared; off with a passed-through card."""
    if declared.balloon_memory is None:
        raise NotDeclared("unmanaged")
    balloon = seen.config.get("balloon")
    assert int(balloon or _memory(seen)) == declared.balloon_memory, balloon or "unset"


def test_start_at_boot(seen: VmState, declared: Node) -> None:
    """The VM starts with the hypervisor only if that is declared; never with a card."""
    if declared.starts_at_boot is None:
        raise NotDeclared("unmanaged")
    assert (seen.config.get("onboot", "0") == "1") is declared.starts_at_boot


def test_memory_and_cores(seen: VmState, declared: Node) -> None:
    """Memory and processors are the declared ones."""
    if declared.memory is not None:
        memory = _memory(seen)
        assert int(memory) == declared.memory, f"memory: {memory}"
    if declared.cores is not None:
        assert int(seen.config.get("cores", "1")) == declared.cores, seen.config.get("cores", "unset")


def test_nothing_is_pending(seen: VmState) -> None:
    """No change waits for a power cycle."""
    assert not seen.pending, f"pending: {sorted(seen.pending)}"


def test_mac(site: Site, vm: str, seen: VmState) -> None:
    """The guest's network card has the MAC of the configuration."""
    net0 = seen.config.get("net0", "")
    mac = net0.split(",")[0].partition("=")[2].lower()
    assert mac, f"no MAC in net0: {net0}"
    host = site.host(f"{vm}/ssh")
    macs = host.check_output("cat /sys/class/net/*/address").lower().split()
    assert mac in macs, f"{mac} is not among {macs}"


def test_no_snippet_is_left(seen: VmState) -> None:
    """The configuration no longer names the snippet of the first boot."""
    assert "cicustom" not in seen.config, seen.config.get("cicustom")


def test_card_is_passed_through(site: Site, gpu_vm: str) -> None:
    """Every declared card is passed through by a mapping, as PCI Express."""
    declared = site.inventory.nodes[gpu_vm]
    state = _state(site, declared)
    values = [value for key, value in state.config.items() if key.startswith("hostpci")]
    passed = [formats.normal(value, formats.HOSTPCI) for value in values]
    wanted = sorted(names.mapping(site.inventory, alias) for alias in declared.gpus)
    assert sorted(each.get("mapping", "") for each in passed) == wanted, f"{values}, wanted {wanted}"
    assert all(each.get("pcie") == "1" for each in passed), values
