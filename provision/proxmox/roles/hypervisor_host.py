"""The hypervisor's host: drivers kept off the cards that its VMs get, and the kernel command line.

Which modules: those that the aliases of every installed kernel name for the card, their companions without an
alias, and `blacklist_extra`; not those that somebody else's rules keep off already. Drivers that hosts need
for other devices are kept off only where the inventory names them: PVE takes the functions from these when a
VM starts. No card is bound to vfio-pci early; PVE does it at the VM's start. Where another display card of
the host uses the same driver, the card is given to vfio-pci by its address, and the other one keeps it. So is
a network card that a VM takes; that needs no reboot, as PVE takes it from its driver when the VM starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.resource import Resource
from provision.contracts.role import Context, Role
from provision.hosts import names
from provision.hosts.change_effects import reboot_of
from provision.hosts.facts import HostFacts
from provision.hosts.queries.file import FileText
from provision.hosts.queries.kernel import CMDLINE, BootLoader, module_name
from provision.hosts.queries.modprobe import ModprobeRules
from provision.hosts.resources.as_before import as_before
from provision.hosts.resources.base import HEADER
from provision.hosts.resources.file import File, LineOff
from provision.hosts.resources.kernel import (
    INITRAMFS,
    KERNEL_CMDLINE,
    LOADERS,
    KernelArguments,
    ModprobeBlacklist,
)
from provision.hosts.resources.left_files import CopiesGone
from provision.hosts.resources.pci import VFIO, CardUnbound, IommuState, ModuleCandidates, PciFunctions
from provision.inventory import Inventory, Subject
from provision.inventory.kernel_line import folded, missing_arguments, parse, united_arguments, values_of
from provision.inventory.models.hypervisor import Card, Hypervisor
from provision.proxmox.guide_lines import GUIDE_LINES, guide_lines
from provision.proxmox.host_drivers import HostDrivers, Written, bystanders, host_drivers, passed_functions
from provision.proxmox.host_facts import HypervisorFacts
from provision.proxmox.names import BLACKLIST, SHARED_DRIVERS, taken_nics
from provision.proxmox.nic_facts import HOST_NICS
from provision.proxmox.repositories import repositories
from provision.proxmox.vm_effects import DEVICE_LOSS
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent

COMPANIONS: Mapping[str, tuple[str, ...]] = {"10de": ("nouveau", "nova", "nova_core", "nova_drm")}
"""Modules that drive a vendor's cards without naming them by a PCI alias, or only in newer kernels."""

FOLLOWERS: Mapping[str, tuple[str, ...]] = {"nvidia": ("nvidia_drm", "nvidia_modeset", "nvidia_uvm")}
"""Modules that sit on top of another one."""

_CARD_CLASSES = ("03", "12", "0c80")
"""PCI classes whose drivers belong to the card alone: display, accelerator, the USB-C port's controller."""

INTEL_IOMMU = "intel_iommu=on"
"""Proxmox VE's kernels from 6.8 on do this by themselves, Debian's and older ones do not."""


BY_SLOT = FileText("/etc/initramfs-tools/scripts/init-top/provision-cards")
"""Our script of the initramfs (initramfs-tools(7)): it runs before udev loads drivers."""


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the hypervisor has cards, arguments, a blacklist or repositories, and may be changed."""
    host = inventory.hypervisors.get(subject.name) if subject.kind == "hypervisor" else None
    if host is None or not host.manage:
        return False
    manages_repositories = host.repositories != "unmanaged"
    return bool(host.cards or host.kernel_arguments or host.blacklist_extra or manages_repositories)


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask for the boot loader and, where there are cards, for these, their drivers and the IOMMU."""
    host = inventory.hypervisors[subject.name]
    cards: tuple[Any, ...] = tuple(ModuleCandidates(card.address) for card in host.cards.values())
    cards += (HOST_NICS,) if taken_nics(inventory, host) else ()
    about_cards = (CMDLINE, IommuState(), PciFunctions(), ModprobeRules(), BY_SLOT, *cards) if cards else ()
    guides = (GUIDE_LINES,) if removes_lines(host) else ()
    return {names.ssh(host.name): (BootLoader(), *about_cards, *guides)}


def removes_lines(host: Hypervisor) -> bool:
    """Whether lines of passthrough guides are made comments."""
    return host.manage and bool(host.cards) and host.guide_lines == "comment_out"


def resources(context: Context) -> tuple[Resource, ...]:
    """Return blacklist, kernel arguments, and the proof that no host driver has a card."""
    inventory, subject = context.inventory, context.subject
    host = inventory.hypervisors[subject.name]
    system = names.ssh(host.name)
    facts = HypervisorFacts(context.seen(system))
    drivers = _drivers(context, host, facts)
    arguments = _arguments(host, drivers, facts)
    reboot = reboot_of(inventory, subject)
    source = inventory.source(("hypervisors", host.name, "cards"))
    lost = (
        ()
        if isinstance(facts.functions, Unknown)
        else bystanders(host.cards, facts.functions, drivers.modules)
    )
    risks = tuple(Effect(DEVICE_LOSS, function) for function in lost)
    desired: list[Resource] = [
        ModprobeBlacklist(system, BLACKLIST, drivers.modules, reboot, source=source, risks=risks),
    ]
    if drivers.by_slot or not isinstance(facts.text(BY_SLOT), Unknown):
        desired.append(by_slot_script(system, drivers.by_slot))
    if arguments or facts.loader in LOADERS:  # without arguments, what we added before must go
        desired.append(KernelArguments(system, arguments, facts.loader, reboot, source=source, risks=risks))
    for alias, card in host.cards.items():
        if _has_no_display(card, facts):
            continue
        where = inventory.source(("hypervisors", host.name, "cards", alias))
        by_slot = any(address.startswith(f"{card.address}.") for address in drivers.by_slot)
        desired.append(
            CardUnbound(system, card.address, arguments, reboot, card.functions, by_slot, source=where)
        )
    if removes_lines(host):
        where = inventory.source(("hypervisors", host.name, "guide_lines"))
        lines = dict.fromkeys(
            (line.file, line.line) for line in guide_lines(facts, host) if line.is_removable
        )
        desired += [LineOff(system, *line, source=where, effects=(INITRAMFS,)) for line in lines]
    return (*desired, *repositories(inventory, host))


def retired(context: Context) -> tuple[Resource, ...]:
    """Return our files as absent when all must go, with the copies that were kept for a person.

    The drivers come back with the next boot, not before.
    """
    system = names.ssh(context.subject.name)
    copies = CopiesGone(system, f"{KERNEL_CMDLINE}.provision-")
    return (*orphans(context), copies, *as_before(system))


def orphan_owners(inventory: Inventory) -> Mapping[Subject, Mapping[str, tuple[Any, ...]]]:
    """Ask the hosts that declare nothing of this role (any more) for our files."""
    owners: dict[Subject, Mapping[str, tuple[Any, ...]]] = {}
    for host in inventory.hypervisors.values():
        subject = Subject("hypervisor", host.name)
        if host.manage and not declared(inventory, subject):
            files = (each for loader in LOADERS for each in _gone(inventory, subject, loader))
            asked = dict.fromkeys((BootLoader(), *(each for file in files for each in file.queries())))
            owners[subject] = {names.ssh(host.name): tuple(asked)}
    return owners


def orphans(context: Context) -> tuple[Resource, ...]:
    """Return our files on a host that declares nothing of this role any more, as absent."""
    facts = HostFacts(context.seen(names.ssh(context.subject.name)))
    return _gone(context.inventory, context.subject, facts.loader)


def _gone(inventory: Inventory, subject: Subject, loader: str) -> tuple[Resource, ...]:
    system = names.ssh(subject.name)
    files = (ModprobeBlacklist(system, BLACKLIST, ()), by_slot_script(system, ()))
    if loader not in LOADERS:
        return files
    return (*files, KernelArguments(system, (), loader, reboot_of(inventory, subject), absent=True))


def by_slot_script(system: str, functions: Sequence[str]) -> File:
    """Return the script of the initramfs that gives functions to vfio-pci before any driver is loaded.

    An identical card of the host keeps its driver: `driver_override` counts for one address, `ids=` for all
    cards of a kind. A rule of udev would come too late where the other card loads the driver first.
    """
    content = (
        f"#!/bin/sh\n{HEADER}"
        "# The host keeps the drivers of these cards for other cards.\n"
        'case "${1:-}" in prereqs) exit 0;; esac\n'
        f"for f in {' '.join(functions)}; do\n"
        "  o=/sys/bus/pci/devices/$f/driver_override\n"
        f'  if [ -e "$o" ]; then echo {VFIO} >"$o"; fi\n'
        "done\n"
    )
    return File(
        system,
        BY_SLOT.path,
        content.encode() if functions else None,
        mode="0755" if functions else "",
        absent=not functions,
        effects=(INITRAMFS,),
    )


def _has_no_display(card: Card, facts: HypervisorFacts) -> bool:
    """Whether a card is there and is no display: PVE takes it from its driver when its VM starts."""
    functions = () if isinstance(facts.functions, Unknown) else passed_functions(card, facts.functions)
    return bool(functions) and not any(function.is_display for function in functions)


def _nic_functions(inventory: Inventory, host: Hypervisor, facts: HypervisorFacts) -> frozenset[str]:
    """Return the network functions that VMs get and that are there at boot: virtual ones are made later."""
    nics = facts.nics
    virtual = {} if isinstance(nics, Unknown) else nics.physical
    functions = () if isinstance(facts.functions, Unknown) else facts.functions
    return frozenset(
        function.address
        for alias in taken_nics(inventory, host)
        for function in passed_functions(host.cards[alias], functions)
        if function.is_network and function.address not in virtual
    )


def _drivers(context: Context, host: Hypervisor, facts: HypervisorFacts) -> HostDrivers:
    """Return what this host's drivers need; what cannot be read keeps nothing off by itself."""
    needed = {
        alias: frozenset(modules_of_card(context, facts, alias, card) - SHARED_DRIVERS)
        for alias, card in host.cards.items()
    }
    functions = facts.functions
    rules = facts.known(ModprobeRules(), tuple, ())
    own = f"/etc/modprobe.d/provision-{BLACKLIST}.conf"
    script = facts.text(BY_SLOT)
    listed = re.search(r"^for f in (.*); do$", "" if isinstance(script, Unknown) else script, re.MULTILINE)
    drivers = host_drivers(
        host.cards,
        needed,
        () if isinstance(functions, Unknown) else functions,
        tuple(rule for rule in rules if rule.file != own),
        Written(
            frozenset(rule.module for rule in rules if rule.file == own),
            frozenset(listed[1].split() if listed is not None else ()),
        ),
        # What somebody wrote down is meant: only what follows from a card by itself is held back.
        host.blacklist_extra,
    )
    nics = _nic_functions(context.inventory, host, facts)
    return replace(drivers, by_slot=tuple(sorted({*drivers.by_slot, *nics})))


def modules_of_card(context: Context, facts: HypervisorFacts, alias: str, card: Card) -> set[str]:
    """Return the modules that must be kept off one card.

    Raises:
        Permanent: `CARD_UNREADABLE`: the host has no such card, or could not tell its modules.
    """
    candidates, functions = facts.modules(card.address), facts.functions
    if isinstance(candidates, Unknown):
        raise Permanent(
            Diagnostic(
                "CARD_UNREADABLE",
                f"the drivers of card {alias} ({card.address}) are unknown: {candidates.reason}",
                subject=context.subject.name,
                source=context.inventory.source(
                    ("hypervisors", context.subject.name, "cards", alias, "address")
                ),
                untouched="nothing of the host was changed",
                remedy="correct the address of the card; list the cards on the host: `lspci -nn`",
            )
        )
    modules = {name for cls, name in candidates if cls.startswith(_CARD_CLASSES)}
    known = () if isinstance(functions, Unknown) else functions
    for vendor in {each.vendor for each in known if each.slot == card.address and each.is_display}:
        modules.update(COMPANIONS.get(vendor, ()))
    for name in tuple(modules):
        modules.update(FOLLOWERS.get(name, ()))
    return modules


def _arguments(host: Hypervisor, drivers: HostDrivers, facts: HypervisorFacts) -> tuple[str, ...]:
    arguments: list[str] = []
    if any(card.drives_console for card in host.cards.values()):
        arguments.append("nomodeset")
    # Nothing has a card: the file of modprobe.d is enough, and no argument is worth a reboot of its own.
    active = {folded(member) for member in values_of(facts.kernel_line, "modprobe.blacklist")}
    extra = set(map(module_name, host.blacklist_extra))
    modules = [each for each in drivers.modules if drivers.bound or each in active or each in extra]
    if modules:
        arguments.append(f"modprobe.blacklist={','.join(modules)}")
    if host.cards and _needs_intel_iommu(facts):
        arguments.append(INTEL_IOMMU)
    line = united_arguments(" ".join(arguments), host.kernel_arguments)
    return tuple(argument.text for argument in parse(line))


def _needs_intel_iommu(facts: HypervisorFacts) -> bool:
    """Whether the kernel must be told to use VT-d: it does not by itself, or was told already.

    Without the firmware's table for it, no argument helps.
    """
    iommu = facts.iommu
    if isinstance(iommu, Unknown) or iommu.table != "DMAR":
        return False
    return not iommu.active or not missing_arguments(facts.kernel_line, (INTEL_IOMMU,))


ROLE = Role(
    name="hypervisor_host",
    declared=declared,
    questions=questions,
    resources=resources,
    retired=retired,
    orphan_owners=orphan_owners,
    orphans=orphans,
)
