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
TRUE = ("1", "on", "yes", "true")
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


def _has_booted(vm: Vm, declared: Node) -> None:
    """Skip where a VM that is declared off still waits for its first boot, which needs key and snippet."""
    if declared.power_state == "stopped" and _marker(vm).get("first-key") and "cicustom" in vm.config:
        pytest.skip("unknown: it is off, as declared, and was never started")


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
    """The machine type is the declared one, with its version if one is declared."""
    if declared.machine_type is None:
        raise NotDeclared("unmanaged")
    value = actual.parts("machine", "type").get("type", "")
    assert ("q35" if "q35" in value else "i440fx") == declared.machine_type, f"machine: {value or 'unset'}"
    if declared.machine_version is not None:
        assert value == declared.machine_version, f"machine: {value}"


def test_serial_console(actual: Vm, declared: Node) -> None:
    """The VM has a serial port for its console, or none, as declared."""
    if declared.serial_console is None:
        raise NotDeclared("unmanaged")
    port = actual.config.get("serial0")
    assert port == ("socket" if declared.serial_console else None), f"serial0: {port or 'unset'}"


def test_pool(site: Site, declared: Node) -> None:
    """The VM is in its pool."""
    if declared.pool is None:
        raise NotDeclared("no pool")
    hypervisor = site.inventory.hypervisors[declared.hypervisor or ""]
    reply = site.get(names.api(hypervisor.name), "/cluster/resources?type=vm")
    if reply.status != OK:
        pytest.skip(f"unknown: {reply.text}")
    pools = [row.get("pool") for row in json.loads(reply.text) if row["vmid"] == declared.vmid]
    assert pools == [declared.pool], f"it is in {(pools or ['nothing'])[0] or 'no pool'}"


def test_firmware(actual: Vm, declared: Node) -> None:
    """The firmware is the declared one; OVMF has its disk of variables without enrolled keys."""
    if declared.firmware is None:
        raise NotDeclared("unmanaged")
    assert actual.config.get("bios", "seabios") == declared.firmware
    if declared.efi_disk is not None and not declared.efi_disk.pre_enrolled_keys:
        disk = actual.config.get("efidisk0", "")
        assert disk, "no efidisk0"
        assert "pre-enrolled-keys=1" not in disk, disk


def test_usb_devices(site: Site, actual: Vm, declared: Node) -> None:
    """Every declared USB device is passed by its mapping, or as root by its port or id."""
    hypervisor = site.inventory.hypervisors[declared.hypervisor or ""]
    wanted = {
        alias: device.port or device.id if device.raw else names.mapping(site.inventory, alias)
        for alias, device in hypervisor.usb.items()
        if alias in declared.usb
    }
    if not wanted:
        raise NotDeclared("no USB devices")
    entries = [actual.parts(key, "host") for key in actual.config if re.fullmatch(r"usb\d+", key)]
    present = {entry.get("mapping") or entry.get("host", "") for entry in entries}
    missing = [f"{alias} ({device})" for alias, device in wanted.items() if device not in present]
    assert not missing, f"not passed: {', '.join(missing)}"


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
    """Memory, processors and sockets are the declared ones."""
    numbers = {"memory": declared.memory, "cores": declared.cores, "sockets": declared.sockets}
    managed = {key: number for key, number in numbers.items() if number is not None}
    if not managed:
        raise NotDeclared("unmanaged")
    present = {key: int(actual.config.get(key, "1")) for key in ("cores", "sockets")}
    present["memory"] = _memory(actual)
    wrong = [f"{key}: {present[key]}" for key, number in managed.items() if present[key] != number]
    assert not wrong, ", ".join(wrong)


def test_cpu(actual: Vm, declared: Node) -> None:
    """The CPU has the declared type and flags."""
    if not declared.cpu_type and not declared.cpu_flags:
        raise NotDeclared("unmanaged")
    parts = actual.parts("cpu", "cputype")
    if declared.cpu_type:
        assert parts.get("cputype", "kvm64") == declared.cpu_type, f"cpu: {actual.config.get('cpu', 'unset')}"
    flags = set(parts.get("flags", "").split(";")) - {""}
    if declared.cpu_flags:
        assert flags == set(declared.cpu_flags), f"flags: {';'.join(sorted(flags)) or 'none'}"


def test_switches(actual: Vm, declared: Node) -> None:
    """NUMA, protection and the guest agent are on or off as declared."""
    switches = {"numa": declared.numa, "protection": declared.protection, "agent": declared.agent}
    managed = {key: switch for key, switch in switches.items() if switch is not None}
    if not managed:
        raise NotDeclared("unmanaged")
    present = {key: actual.parts(key, "enabled").get("enabled", "0") in TRUE for key in managed}
    wrong = [f"{key} is {'on' if present[key] else 'off'}" for key in managed if present[key] != managed[key]]
    assert not wrong, ", ".join(wrong)


def test_startup(actual: Vm, declared: Node) -> None:
    """Order and delays at the hypervisor's boot are the declared ones."""
    if declared.startup is None:
        raise NotDeclared("unmanaged")
    startup = declared.startup
    numbers = {"order": startup.order, "up": startup.up, "down": startup.down}
    parts = actual.parts("startup", "order")
    wrong = [
        f"{key}: {parts.get(key, 'unset')}"
        for key, number in numbers.items()
        if number is not None and parts.get(key) != f"{number:g}"
    ]
    assert not wrong, ", ".join(wrong)


def test_name(actual: Vm, declared: Node) -> None:
    """The VM has the node's name, or its `vm_name`."""
    if declared.managed_vm_name is None:
        raise NotDeclared("unmanaged")
    name = actual.config.get("name", "")
    assert name == declared.managed_vm_name, f"it is called {name or 'nothing'}"


def test_tags(actual: Vm, declared: Node) -> None:
    """The VM has every declared tag, and none that the inventory declared once and does not any more."""
    noted = set(_marker(actual).get("tags", "").split(",")) - {""}
    if not declared.tags and not noted:
        raise NotDeclared("no tags")
    tags, wanted = (
        set(re.split("[;, ]", actual.config.get("tags", ""))),
        {tag.lower() for tag in declared.tags},
    )
    absent, stale = wanted - tags, (noted & tags) - wanted
    assert not absent, f"missing: {', '.join(sorted(absent))}"
    assert not stale, f"no longer declared: {', '.join(sorted(stale))}"


def test_disks(actual: Vm, declared: Node) -> None:
    """Every declared disk is there with its size, and its declared options."""
    disks: list[tuple[int, dict[str, str]]] = []
    if declared.disk is not None or declared.image is not None:
        disks.append((declared.disk or 0, {}))
    for disk in declared.disks:
        managed = {} if disk.ssd is None else {"ssd": str(int(disk.ssd))}
        managed |= {} if disk.discard is None else {"discard": "on" if disk.discard else "ignore"}
        disks.append((disk.size, managed))
    if not disks:
        raise NotDeclared("no disks")
    problems: list[str] = []
    fixed = [None] * (len(disks) - len(declared.disks)) + [disk.slot for disk in declared.disks]
    free = iter(_disk_slots(actual, fixed.count(None), frozenset(slot for slot in fixed if slot)))
    slots = [slot or next(free) for slot in fixed]
    for slot, (mebibytes, options) in zip(slots, disks, strict=True):
        parts = actual.parts(slot, "file")
        size = _mebibytes(parts.get("size", ""))
        if not parts or (mebibytes and size != mebibytes):
            problems.append(f"{slot}: {size} of {mebibytes} MiB" if parts else f"there is no {slot}")
        problems += [
            f"{slot}: {key}={parts.get(key, 'unset')}"
            for key, value in options.items()
            if parts.get(key, {"ssd": "0", "discard": "ignore"}[key]) != value
        ]
    assert not problems, ", ".join(problems)


def _disk_slots(actual: Vm, count: int, fixed: frozenset[str]) -> list[str]:
    """Return scsi0, scsi1 and so on; if it boots from another disk, that one, then its others.

    Those that disks declare (`fixed`) are left out.
    """
    made = [slot for index in range(count + len(fixed)) if (slot := f"scsi{index}") not in fixed][:count]
    present: list[str] = []
    for bus in ("ide", "scsi", "virtio", "sata"):
        keys = (key for key in actual.config if re.fullmatch(rf"{bus}[0-9]+", key) and key not in fixed)
        present += sorted(keys, key=lambda key: int(re.sub(r"\D", "", key)))
    is_disk = {
        key: "media=cdrom" not in actual.config[key] and not actual.config[key].startswith(("none", "cdrom"))
        for key in present
    }
    present = [key for key in present if is_disk[key] and "cloudinit" not in actual.config[key]]
    order = re.split("[=;,]", actual.config.get("boot", ""))
    boot = next((key for key in (*order, actual.config.get("bootdisk")) if key in present), "")
    if not present or (boot or present[0]) == "scsi0":
        return made
    there = [*([boot] if boot else []), *(key for key in present if key != boot)]
    return (there + [key for key in made if key not in there] + ["no further disk"] * count)[:count]


def _mebibytes(size: str) -> int:
    """Return MiB of a size as PVE writes it (`60G`, `528K`, bytes without a letter)."""
    units = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}
    number, unit = (size[:-1], units[size[-1]]) if size[-1:] in units else (size, 1 / 1024 / 1024)
    return int(float(number or 0) * unit)


def test_network_devices(actual: Vm, declared: Node, site: Site) -> None:
    """Every network device has its model, bridge, and what else is declared of it."""
    if not declared.nics:
        raise NotDeclared("no network devices")
    bridge = site.inventory.hypervisors[declared.hypervisor or ""].bridge
    problems: list[str] = []
    for index, nic in enumerate(declared.nics):
        parts = actual.parts(f"net{index}", "model")
        model = parts.get("model") or next(iter(parts), "")
        wanted = {
            "bridge": nic.bridge or bridge,
            "tag": nic.vlan,
            "mtu": nic.mtu,
            "firewall": None if nic.firewall is None else int(nic.firewall),
        }
        present = {"firewall": "0", **parts, "model": model}
        mac = (parts.get("macaddr") or parts.get(model, "")).upper()
        problems += [
            f"net{index}: {key}={present.get(key, 'unset')}"
            for key, value in {"model": nic.model, **wanted}.items()
            if value is not None and present.get(key) != str(value)
        ]
        if nic.mac is not None and mac != nic.mac.upper():
            problems.append(f"net{index}: {mac or 'no MAC'}")
    assert not problems, ", ".join(problems)


def test_tpm(actual: Vm, declared: Node) -> None:
    """The TPM has the declared version."""
    if declared.tpm is None:
        raise NotDeclared("unmanaged")
    parts = actual.parts("tpmstate0", "file")
    assert parts, "no tpmstate0"
    assert parts.get("version", "v1.2") == declared.tpm.version, f"version {parts.get('version', 'v1.2')}"


def test_power(site: Site, declared: Node) -> None:
    """The VM runs, or is stopped, as declared."""
    if declared.power_state == "unmanaged":
        raise NotDeclared("its owner switches it")
    hypervisor = site.inventory.hypervisors[declared.hypervisor or ""]
    # `/cluster/resources` would be up to ten seconds old
    reply = site.get(names.api(hypervisor.name), f"/nodes/{hypervisor.node_name}/qemu")
    if reply.status != OK:
        pytest.skip(f"unknown: {reply.text}")
    status = next((row["status"] for row in json.loads(reply.text) if row["vmid"] == declared.vmid), "gone")
    assert status == declared.power_state, f"it is {status}"


def test_first_host_key_is_replaced(actual: Vm, declared: Node) -> None:
    """The host key that a snippet carried to the first boot is no longer in use."""
    _has_booted(actual, declared)
    marker = _marker(actual)
    assert marker.get("host-key"), "the marker names no host key"
    assert not marker.get("first-key"), "the marker still names the first key"


def test_nothing_is_pending(actual: Vm) -> None:
    """No change waits for a power cycle."""
    # a repaired marker in `smbios1` counts once it is written, and is worth no power cycle
    pending = actual.pending - {"smbios1"}
    assert not pending, f"pending: {sorted(pending)}"


def test_mac(site: Site, vm: str, actual: Vm) -> None:
    """The guest's network card has the MAC of the configuration."""
    net0 = actual.config.get("net0", "")
    mac = net0.split(",")[0].partition("=")[2].lower()
    assert mac, f"no MAC in net0: {net0}"
    host = site.host(f"{vm}/ssh")
    macs = host.check_output("cat /sys/class/net/*/address").lower().split()
    assert mac in macs, f"{mac} is not among {macs}"


def test_no_snippet_is_left(actual: Vm, declared: Node) -> None:
    """The configuration no longer names the snippet of the first boot."""
    _has_booted(actual, declared)
    assert "cicustom" not in actual.config, actual.config.get("cicustom")


def _cards(vm: Vm) -> Iterator[dict[str, str]]:
    return (vm.parts(key, "host") for key in vm.config if key.startswith("hostpci"))


def test_card_is_passed_through(site: Site, gpu_vm: str) -> None:
    """Every declared card is passed through by its mapping, or as root by its address, as PCI Express."""
    declared = site.inventory.nodes[gpu_vm]
    cards = list(_cards(_read(site, declared)))
    hypervisor = site.inventory.hypervisors[declared.hypervisor or ""]
    mappings = sorted(
        mapping for alias in declared.cards for mapping in names.mappings(site.inventory, hypervisor, alias)
    )
    cards_by_name = (hypervisor.cards[alias] for alias in declared.cards if alias in hypervisor.cards)
    raw = sorted(names.path(card) for card in cards_by_name if card.raw)
    present = sorted(card["mapping"] for card in cards if "mapping" in card)
    assert present == mappings, f"{cards}, declared {mappings}"
    hosts = sorted(card.get("host", "") for card in cards if "mapping" not in card)
    assert hosts == raw, f"{cards}, declared {raw}"
    assert all(card.get("pcie") == "1" for card in cards), cards
