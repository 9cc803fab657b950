"""The hypervisor: its cards are kept from host drivers, and nothing else was touched."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from testinfra.host import Host

from provision.contracts.check import NotDeclared, Site, Trivial
from provision.hosts.commands import LOADED_MODULES
from provision.hosts.managed import Managed
from provision.hosts.systemd_units import failed_units
from provision.inventory import Inventory, Subject
from provision.proxmox import names

OK = 200
LISTS = ("modprobe.blacklist", "module_blacklist", "intel_iommu", "amd_iommu", "iommu", "pci", "vfio_pci.ids")
"""Kernel arguments whose values are comma lists."""
VFIO = "vfio-pci"
NO_DRIVER = "none"
ARGUMENTS = ("/etc/default/grub.d/50-provision.cfg", "/etc/kernel/provision-arguments")
"""Where the next boot's arguments of ours are noted, by boot loader."""
OUR_LIST = f"/etc/modprobe.d/provision-{names.BLACKLIST}.conf"
NO_LOAD = r"blacklist |install \S+ (\S*/)?(false|true|:)( |$)"
"""A rule of modprobe.d by which a module is not loaded when a device asks for it."""
BOOT_LINES = r"""if [ -s /etc/kernel/proxmox-boot-uuids ]; then
  if proxmox-boot-tool status 2>/dev/null | grep -q 'configured with: uefi'; then
    sed 's:^:/etc/kernel/cmdline|:' /etc/kernel/cmdline; fi
else
  f=/boot/grub/grub.cfg
  if [ -e "$f" ]; then sed -n "/^[[:blank:]]*linux.*root=/{s:^[[:blank:]]*:$f|:;p;q;}" "$f"; fi
  for f in /boot/loader/entries/*.conf /boot/efi/loader/entries/*.conf; do
    if [ -e "$f" ]; then sed -n "s:^options[[:blank:]]*:$f|:p" "$f"; fi; done
fi || true"""
"""Prints FILE|LINE of what boot loaders read; proxmox-boot-tool makes them of /etc/kernel/cmdline."""
SOURCES = r"""if [ -e /etc/default/grub ] && ! proxmox-boot-tool status 2>/dev/null | grep -q 'with: uefi'
then (
  for file in /etc/default/grub /etc/default/grub.d/*.cfg; do
    [ ! -e "$file" ] || . "$file" >/dev/null 2>&1 </dev/null
  done
  echo "$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"
) fi || true"""
"""Prints the arguments of GRUB's next menu, by sourcing what grub-mkconfig(8) of Debian sources."""
OVERRIDDEN = '[ "$(cat "$f/driver_override" 2>/dev/null)" = vfio-pci ]'
"""Whether a function, whose folder of sysfs is $f, is given to vfio-pci by its address."""
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


def _words(line: str) -> set[str]:
    """Return kernel arguments as the kernel compares them, each member of a known comma list by itself.

    In keys and names of modules `-` and `_` are one. Quotes only protect blanks.
    """
    words: set[str] = set()
    ours = f" {line} ".partition(" -- ")[0].strip()  # the rest is for init
    for word in shlex.split(re.sub(r"['\\]", "", ours + '"' * (ours.count('"') % 2))):
        key, equals, value = word.partition("=")
        key = key.replace("-", "_")
        if key in ("modprobe.blacklist", "module_blacklist"):
            value = value.replace("-", "_")
        members = value.split(",") if key in LISTS else (value,)
        words.update(f"{key}{equals}{member}" for member in members)
    return words


@pytest.fixture
def passed(site: Site, hypervisor: str) -> Callable[[str], bool]:
    """Whether a function, by full address, is one that a VM gets: all of a card, or those declared."""
    cards = {card.address: card for card in site.inventory.hypervisors[hypervisor].cards.values()}

    def is_passed(function: str) -> bool:
        slot, _, number = function.rpartition(".")
        return slot in cards and (not cards[slot].functions or int(number, 16) in cards[slot].functions)

    return is_passed


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
    declared = inventory.hypervisors[hypervisor]
    return [
        name
        for name, node in inventory.nodes.items()
        if node.manage
        and node.hypervisor == hypervisor
        and any(
            declared.cards[card].address == slot for alias in node.cards for card in declared.cards_of(alias)
        )
    ]


def _passed_with(inventory: Inventory, hypervisor: str, slot: str) -> set[str]:
    """Return the slots of the cards that VMs with the card in one slot have by name: of a pool it is one."""
    cards = inventory.hypervisors[hypervisor].cards
    users = (inventory.nodes[name] for name in _users(inventory, hypervisor, slot))
    return {cards[alias].address for node in users for alias in node.cards if alias in cards}


def test_cards_have_no_host_driver(host: Host, slots: tuple[str, ...], passed: Callable[[str], bool]) -> None:
    """Every display function of a declared card is with vfio-pci or without a driver.

    Its other functions (sound, USB) are left to drivers that the host needs, too, until its VM starts.
    """
    for slot in slots:
        drivers = _drivers(host, slot)
        assert drivers, f"no PCI function at {slot}"
        wrong = {
            function: name
            for function, (cls, name) in drivers.items()
            if passed(function) and cls.startswith(DISPLAYS) and name not in (VFIO, NO_DRIVER)
        }
        assert not wrong, f"host drivers hold functions of {slot}: {wrong}"


def test_cards_of_running_vms_are_with_vfio(
    site: Site, hypervisor: str, host: Host, slots: tuple[str, ...]
) -> None:
    """vfio-pci holds every passed function of a card whose VM runs; of a pool, of a card for each VM."""
    declared = site.inventory.hypervisors[hypervisor]
    nodes = [node for node in names.nodes_of(site.inventory, hypervisor) if node.manage]
    on = Counter(alias for node in nodes if not site.is_away(f"{node.name}/ssh") for alias in node.cards)
    if not on or not slots:
        pytest.skip("unknown: no VM with a card runs")
    for alias, running in on.items():
        drivers: dict[str, dict[str, str]] = {}
        for card in map(declared.cards.__getitem__, declared.cards_of(alias)):
            functions = _drivers(host, card.address).items()
            drivers[card.address] = {
                name: driver for name, (_, driver) in functions if card.passes(name.rpartition(".")[2])
            }
        ready = [slot for slot, bound in drivers.items() if set(bound.values()) == {VFIO}]
        assert len(ready) >= running, f"{alias}: {drivers}"


def test_modules_of_cards_are_not_loaded(host: Host, slots: tuple[str, ...]) -> None:
    """No kernel module that would drive a declared display function is loaded."""
    candidates = {module for slot in slots for module in _candidates(host, slot)}
    loaded = {row.split()[0] for row in _lines(host, LOADED_MODULES)}
    assert not candidates & loaded, f"loaded on the host: {sorted(candidates & loaded)}"
    if not candidates:
        raise Trivial("no driver of this host knows the cards")


def _candidates(host: Host, slot: str, *, by_address: bool = False) -> set[str]:
    """Return the modules that would drive the display functions of a card, and no device of the host.

    A function whose driver_override says vfio-pci is driven by no other.

    Args:
        host: the hypervisor.
        slot: address of the card.
        by_address: only of the functions that are given to vfio-pci by their address, instead of the others.
    """
    rows = _lines(
        host,
        'for f in /sys/bus/pci/devices/%s.*; do case "$(cat "$f/class")" in 0x03*) '
        f'{OVERRIDDEN} {"&&" if by_address else "||"} modprobe -qR "$(cat "$f/modalias")" || true;; '
        "esac; done",
        slot,
    )
    return {module.replace("-", "_") for module in rows} - names.SHARED_DRIVERS


def _arguments(site: Site, hypervisor: str, host: Host) -> list[str]:
    """Return the declared arguments, and the blacklist of the cards' drivers as arguments.

    Raises:
        NotDeclared: there is nothing that needs any.
        Trivial: no argument is needed.
    """
    declared = site.inventory.hypervisors[hypervisor]
    if not (declared.cards or declared.kernel_arguments or declared.blacklist_extra):
        raise NotDeclared("neither cards nor arguments are declared")
    rows = _lines(host, "cat %s %s 2>/dev/null || true", *ARGUMENTS)
    lists = re.findall(r"modprobe[.]blacklist=([\w,-]+)", "\n".join(rows))
    kept_off = sorted({module for modules in lists for module in modules.split(",")})
    console = any(card.drives_console for card in declared.cards.values())
    arguments = [*declared.kernel_arguments, *(["nomodeset"] if console else [])]
    arguments += [f"modprobe.blacklist={module}" for module in kept_off]
    if not arguments:
        raise Trivial("no argument is needed")
    return arguments


def test_kernel_command_line_is_active(site: Site, hypervisor: str, host: Host) -> None:
    """The running kernel was booted with the declared arguments and the blacklist of the cards."""
    arguments = _arguments(site, hypervisor, host)
    active = _words(str(host.check_output("cat /proc/cmdline")))
    absent = sorted(_words(" ".join(arguments)) - active)
    assert not absent, f"not in /proc/cmdline: {', '.join(absent)}"


def test_kernel_command_line_at_next_boot(site: Site, hypervisor: str, host: Host) -> None:
    """The boot loader's configuration, and its sources, have the declared arguments and blacklist."""
    arguments = _arguments(site, hypervisor, host)
    rows = [row.partition("|") for row in _lines(host, BOOT_LINES)]
    if not rows:
        pytest.skip("unknown: no configuration of a boot loader is readable")
    lines: dict[str, str] = {}
    for file, _, line in rows:  # an entry may have several lines of options; GRUB's quotes are other ones
        lines[file] = f"{lines.get(file, '')} {line}".replace("'", '"')
    wanted = _words(" ".join(arguments))
    absent = {file: sorted(wanted - _words(line)) for file, line in lines.items()}
    problems = [f"{file} lacks {', '.join(missing)}" for file, missing in absent.items() if missing]
    assert len(problems) < len(lines), "; ".join(problems)
    for line in _lines(host, SOURCES)[-1:]:
        lost = sorted(wanted - _words(line))
        assert not lost, f"the next update of GRUB's menu loses {', '.join(lost)}"


def test_nothing_else_of_the_group_is_touched(
    site: Site, hypervisor: str, host: Host, slots: tuple[str, ...], passed: Callable[[str], bool]
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
            if not (function.rpartition(".")[0] in own and passed(function))
            and not cls.startswith(BRIDGES)
            and driver == VFIO
        ]
        assert not taken, f"taken from the host with {slot}: {taken}"


def _get(site: Site, hypervisor: str, path: str) -> list[dict[str, Any]]:
    reply = site.get(names.api(hypervisor), path)
    if reply.status != OK:
        pytest.skip(f"unknown: {reply.text}")
    rows: list[dict[str, Any]] = json.loads(reply.text)
    return rows


def test_mappings(site: Site, hypervisor: str, slots: tuple[str, ...]) -> None:
    """Every card or pool that a VM takes has a mapping of this host, in which Proxmox VE finds no fault."""
    declared = site.inventory.hypervisors[hypervisor]
    nodes = [node for node in names.nodes_of(site.inventory, hypervisor) if node.manage]
    known = (*declared.cards, *declared.card_pools)
    aliases = [alias for alias in known if any(alias in node.cards for node in nodes)]
    if not aliases or not slots:
        raise NotDeclared("no VM takes a card")
    rows = _get(site, hypervisor, f"/cluster/mapping/pci?check-node={declared.node_name}")
    mappings = {row["id"]: row for row in rows}
    problems: list[str] = []
    for alias in aliases:
        card = declared.cards[declared.cards_of(alias)[0]]
        for number, (name, paths) in enumerate(names.mappings(site.inventory, declared, alias).items()):
            ids = card.id if not number else None
            problems += _mapping_problems(mappings.get(name), alias, paths, ids, declared.node_name)
    assert not problems, "; ".join(problems)


def _mapping_problems(
    row: dict[str, Any] | None, alias: str, paths: tuple[str, ...], ids: str | None, node: str
) -> list[str]:
    """Return what is wrong with the mapping of a card, of one function of it, or of a pool."""
    if row is None:
        return [f"{alias} has no mapping"]
    entries = [dict(part.partition("=")[::2] for part in entry.split(",")) for entry in row.get("map", ())]
    own = [entry for entry in entries if entry.get("node") == node]
    problems = [f"{alias}: {check['message']}" for check in row.get("checks") or ()]
    mapped = sorted(entry.get("path", "") for entry in own)
    if mapped != sorted(paths):
        return [*problems, f"{alias} is mapped to {mapped}"]
    wrong = sorted({entry.get("id", "") for entry in own if ids and entry.get("id") != ids})
    return [*problems, *(f"{alias} is mapped as {each}" for each in wrong)]


def test_images(site: Site, hypervisor: str) -> None:
    """Every image that a VM starts from is on its storage."""
    declared, inventory = site.inventory.hypervisors[hypervisor], site.inventory
    nodes = [node for node in names.nodes_of(inventory, hypervisor) if node.manage]
    images = {image for node in nodes for image in (node.image, node.iso) if image is not None}
    if not images:
        raise NotDeclared("no images")
    rows = _get(site, hypervisor, f"/nodes/{declared.node_name}/storage/{declared.storage.images}/content")
    present = {row["volid"] for row in rows}
    volumes = {names.image_volume(inventory, declared, image) for image in images}
    assert volumes <= present, f"missing: {', '.join(sorted(volumes - present))}"


def test_no_snippet_lies_there(site: Site, hypervisor: str, host: Host) -> None:
    """No snippet with a first host key is left on the hypervisor."""
    nodes = [node for node in names.nodes_of(site.inventory, hypervisor) if node.manage]
    if not nodes:
        raise NotDeclared("no VMs")
    folders = _lines(host, "sed -n 's/^[ \t]*path[ \t]*//p' /etc/pve/storage.cfg")
    files = {names.snippet_file(site.inventory, node.name) for node in nodes}
    rows = [
        row for folder in folders for row in _lines(host, "ls %s 2>/dev/null || true", f"{folder}/snippets")
    ]
    left = files & set(rows)
    for node in nodes:
        if node.power_state == "stopped" and names.snippet_file(site.inventory, node.name) in left:
            declared = site.inventory.hypervisors[hypervisor]
            values = _get(site, hypervisor, f"/nodes/{declared.node_name}/qemu/{node.vmid}/pending")
            # One that was never started still needs it.
            if any(row["key"] == "description" and "first-key=" in str(row.get("value")) for row in values):
                left -= {names.snippet_file(site.inventory, node.name)}
    assert not left, f"left: {', '.join(sorted(left))}"


def test_blacklist_at_next_boot(host: Host, slots: tuple[str, ...]) -> None:
    """No module that would drive a declared display function may be loaded at the next boot.

    Of a card that is given by its address, our file lists no module: the host's own card needs it.
    """
    rows = _lines(host, "modprobe -c | grep -E '^(options|blacklist|install) ' || true")
    listed = {row.split()[1].replace("-", "_") for row in rows if re.match(NO_LOAD, row)}
    ours = {row.split()[-1].replace("-", "_") for row in _lines(host, "cat %s 2>/dev/null || true", OUR_LIST)}
    needed = {module for slot in slots for module in _candidates(host, slot, by_address=True)} & ours
    assert not needed, f"{OUR_LIST} keeps off {', '.join(sorted(needed))}, which a card of the host needs"
    candidates = {module for slot in slots for module in _candidates(host, slot)}
    if not candidates:
        raise Trivial("no driver of this host knows the cards")
    assert candidates <= listed, f"not blacklisted: {', '.join(sorted(candidates - listed))}"


def test_repositories(site: Site, hypervisor: str, host: Host) -> None:
    """Apt reads the declared repository of Proxmox VE, and without a subscription none that needs one."""
    declared = site.inventory.hypervisors[hypervisor].repositories
    if declared == "unmanaged":
        raise NotDeclared("unmanaged")
    rows = _lines(host, "apt-get update --print-uris")
    component = f"pve-{declared.replace('_', '-')}"
    assert any(f"/{component}/" in row for row in rows), f"no {component}"
    foreign = sorted({row.split("'")[1] for row in rows if "//enterprise.proxmox.com/" in row})
    assert declared == "enterprise" or not foreign, f"needs a subscription: {', '.join(foreign)}"


def test_system_is_running(site: Site, hypervisor: str, host: Host, note: Callable[[str], None]) -> None:
    """No unit of the hypervisor that is declared has failed; others are named."""
    own, others = failed_units(host, Managed(site.inventory, Subject("hypervisor", hypervisor)).units())
    assert not own, "; ".join(own)
    if others:
        note(f"not of this inventory, and failed: {', '.join(others)}")
