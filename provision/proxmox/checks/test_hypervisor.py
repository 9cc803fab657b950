"""The hypervisor: its cards are kept from host drivers, and nothing else was touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from testinfra.host import Host

from provision.contracts.check import NotDeclared, Site
from provision.hosts import managed
from provision.hosts.units import failed_units
from provision.inventory import Inventory, Subject
from provision.proxmox import names

VFIO = "vfio-pci"
NO_DRIVER = "none"
DISPLAYS = ("0x03", "0x12")
"""PCI classes of displays and accelerators: what the role keeps host drivers off."""
BRIDGES = "0x06"
"""PCI class of bridges: they stay with their driver when their group is passed."""


@pytest.fixture
def host(site: Site, hypervisor: str) -> Host:
    """The hypervisor by SSH."""
    return site.host(f"{hypervisor}/ssh")


@pytest.fixture
def slots(site: Site, hypervisor: str) -> tuple[str, ...]:
    """PCI addresses (without function) of the declared cards."""
    declared = site.inventory.hypervisors[hypervisor].cards
    if not declared:
        raise NotDeclared("no cards are declared")
    return tuple(card.address for card in declared.values())


def _lines(host: Host, command: str, *args: str) -> list[str]:
    return str(host.check_output(command, *args)).splitlines()


def _words(arguments: Iterable[str]) -> set[str]:
    """Return kernel arguments with one module in each blacklist; `-` and `_` are one in module names."""
    words: set[str] = set()
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name == "modprobe.blacklist":
            words.update(f"{name}={module.replace('-', '_')}" for module in value.split(","))
        else:
            words.add(argument)
    return words


def _drivers(host: Host, slot: str) -> dict[str, tuple[str, str]]:
    """Return the PCI class and the bound driver by function address."""
    rows = _lines(
        host,
        'for f in /sys/bus/pci/devices/%s.*; do [ -e "$f" ] || continue; '
        'd=none; [ -e "$f/driver" ] && d=$(readlink -f "$f/driver"); '
        'echo "${f##*/} $(cat "$f/class") ${d##*/}"; done',
        slot,
    )
    return {address: (cls, driver) for address, cls, driver in (row.split() for row in rows)}


def _users(inventory: Inventory, hypervisor: str, slot: str) -> list[str]:
    cards = inventory.hypervisors[hypervisor].cards
    return [
        name
        for name, node in inventory.nodes.items()
        if node.manage
        and node.hypervisor == hypervisor
        and any(cards[alias].address == slot for alias in node.gpus)
    ]


def _passed_with(inventory: Inventory, hypervisor: str, slot: str) -> set[str]:
    """Return the slots of all cards of the VMs that have the card in one slot."""
    cards = inventory.hypervisors[hypervisor].cards
    users = (inventory.nodes[name] for name in _users(inventory, hypervisor, slot))
    return {cards[alias].address for node in users for alias in node.gpus}


def test_cards_have_no_host_driver(host: Host, slots: tuple[str, ...]) -> None:
    """Every display function of a declared card is with vfio-pci or without a driver.

    Its other functions (sound, USB) are left to drivers that the host needs, too, until its VM starts.
    """
    for slot in slots:
        drivers = _drivers(host, slot)
        assert drivers, f"no PCI function at {slot}"
        wrong = {
            function: name
            for function, (cls, name) in drivers.items()
            if cls.startswith(DISPLAYS) and name not in (VFIO, NO_DRIVER)
        }
        assert not wrong, f"host drivers hold functions of {slot}: {wrong}"


def test_cards_of_running_vms_are_with_vfio(
    site: Site, hypervisor: str, host: Host, slots: tuple[str, ...]
) -> None:
    """vfio-pci holds every function of a card whose VM runs."""
    used = {slot: _users(site.inventory, hypervisor, slot) for slot in slots}
    running = [slot for slot, names in used.items() if not all(site.is_away(f"{name}/ssh") for name in names)]
    if not running:
        pytest.skip("unknown: no VM with a card runs")
    for slot in running:
        drivers = {function: name for function, (_, name) in _drivers(host, slot).items()}
        assert set(drivers.values()) == {VFIO}, f"{slot}: {drivers}"


def test_modules_of_cards_are_not_loaded(host: Host, slots: tuple[str, ...]) -> None:
    """No kernel module that would drive a declared display function is loaded."""
    for slot in slots:
        modules = set(
            _lines(
                host,
                'for f in /sys/bus/pci/devices/%s.*; do case "$(cat "$f/class")" in 0x03*) '
                'modprobe -qR "$(cat "$f/modalias")" || true;; esac; done',
                slot,
            )
        )
        loaded = {row.split()[0] for row in _lines(host, "cat /proc/modules")}
        candidates = {module.replace("-", "_") for module in modules} - names.SHARED_DRIVERS
        assert not candidates & loaded, f"loaded on the host: {sorted(candidates & loaded)}"


def test_kernel_command_line_is_active(site: Site, hypervisor: str, host: Host) -> None:
    """The running kernel was booted with the declared arguments and the blacklist of the cards."""
    declared = site.inventory.hypervisors[hypervisor]
    if not (declared.cards or declared.kernel_arguments or declared.blacklist_extra):
        raise NotDeclared("neither cards nor arguments are declared")
    ours = f"/etc/modprobe.d/provision-{names.BLACKLIST}.conf"
    rows = _lines(host, "cat %s 2>/dev/null || true", ours)
    kept_off = [row.split()[1] for row in rows if row.startswith("blacklist ")]
    arguments = [*declared.kernel_arguments, *(f"modprobe.blacklist={module}" for module in kept_off)]
    active = _words(str(host.check_output("cat /proc/cmdline")).split())
    absent = sorted(_words(arguments) - active)
    assert not absent, f"not in /proc/cmdline: {', '.join(absent)}"


def test_nothing_else_of_the_group_is_touched(
    site: Site, hypervisor: str, host: Host, slots: tuple[str, ...]
) -> None:
    """vfio-pci holds nothing of a card's IOMMU group but what is passed to the same VM."""
    for slot in slots:
        rows = _lines(
            host,
            'for f in /sys/bus/pci/devices/%s.*/iommu_group/devices/*; do [ -e "$f" ] || continue; '
            'd=none; [ -e "$f/driver" ] && d=$(readlink -f "$f/driver"); '
            'echo "${f##*/} $(cat "$f/class") ${d##*/}"; done | sort -u',
            slot,
        )
        assert rows, f"{slot} is in no IOMMU group"
        own = {slot, *_passed_with(site.inventory, hypervisor, slot)}
        taken = [
            function
            for function, cls, driver in (row.split() for row in rows)
            if function.rpartition(".")[0] not in own and not cls.startswith(BRIDGES) and driver == VFIO
        ]
        assert not taken, f"taken from the host with {slot}: {taken}"


def test_system_is_running(site: Site, hypervisor: str, host: Host, note: Callable[[str], None]) -> None:
    """No unit of the hypervisor that is declared has failed; others are named."""
    own, others = failed_units(host, managed.units(site.inventory, Subject("hypervisor", hypervisor)))
    assert not own, "; ".join(own)
    if others:
        note(f"not of this inventory, and failed: {', '.join(others)}")
