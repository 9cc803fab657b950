"""The hypervisor's host: drivers kept off the cards that its VMs get, and the kernel command line.

Which modules: those that the aliases of every installed kernel name for the card, their companions without an
alias, and `blacklist_extra`. Drivers that hosts need for other devices are kept off only where the inventory
names them: PVE takes the functions from these when a VM starts. No card is bound to vfio-pci early; PVE does
it at the VM's start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.contracts.query import Unknown
from provision.contracts.resource import Resource
from provision.contracts.role import Context, Role
from provision.hosts import names
from provision.hosts.change_effects import reboot_of
from provision.hosts.facts import HostFacts
from provision.hosts.queries.kernel import CMDLINE, BootLoader, module_name
from provision.hosts.resources.kernel import LOADERS, KernelArguments, ModprobeBlacklist
from provision.hosts.resources.pci import CardUnbound, IommuState, ModuleCandidates, PciFunctions
from provision.inventory import Inventory, Subject
from provision.inventory.kernel_line import missing_arguments, parse, united_arguments
from provision.inventory.models.hypervisor import Card, Hypervisor
from provision.proxmox.host_facts import HypervisorFacts
from provision.proxmox.names import BLACKLIST, SHARED_DRIVERS
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


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the hypervisor has cards, arguments or a blacklist, and may be changed."""
    host = inventory.hypervisors.get(subject.name) if subject.kind == "hypervisor" else None
    if host is None or not host.manage:
        return False
    return bool(host.cards or host.kernel_arguments or host.blacklist_extra)


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask for the boot loader and, where there are cards, for these, their drivers and the IOMMU."""
    host = inventory.hypervisors[subject.name]
    cards = tuple(ModuleCandidates(card.address) for card in host.cards.values())
    about_cards = (CMDLINE, IommuState(), PciFunctions(), *cards) if cards else ()
    return {names.ssh(host.name): (BootLoader(), *about_cards)}


def resources(context: Context) -> tuple[Resource, ...]:
    """Return blacklist, kernel arguments, and the proof that no host driver has a card."""
    inventory, subject = context.inventory, context.subject
    host = inventory.hypervisors[subject.name]
    system = names.ssh(host.name)
    facts = HypervisorFacts(context.seen(system))
    modules = _modules(context, host, facts)
    wanted = _arguments(host, modules, facts)
    reboot = reboot_of(inventory, subject)
    source = inventory.source(("hypervisors", host.name, "cards"))
    found: list[Resource] = [ModprobeBlacklist(system, BLACKLIST, modules, reboot, source=source)]
    if wanted or facts.loader in LOADERS:  # without arguments, what we added before must go
        found.append(KernelArguments(system, wanted, facts.loader, reboot, source=source))
    for alias, card in host.cards.items():
        where = inventory.source(("hypervisors", host.name, "cards", alias))
        found.append(CardUnbound(system, card.address, wanted, reboot, source=where))
    return tuple(found)


def retired(context: Context) -> tuple[Resource, ...]:
    """Return our files as absent when all must go; the drivers come back with the next boot, not before."""
    return orphans(context)


def orphan_owners(inventory: Inventory) -> Mapping[Subject, Mapping[str, tuple[Any, ...]]]:
    """Ask the hosts that declare nothing of this role (any more) for our files."""
    found: dict[Subject, Mapping[str, tuple[Any, ...]]] = {}
    for host in inventory.hypervisors.values():
        subject = Subject("hypervisor", host.name)
        if host.manage and not declared(inventory, subject):
            files = (each for loader in LOADERS for each in _gone(inventory, subject, loader))
            asked = dict.fromkeys((BootLoader(), *(each for file in files for each in file.queries())))
            found[subject] = {names.ssh(host.name): tuple(asked)}
    return found


def orphans(context: Context) -> tuple[Resource, ...]:
    """Return our files on a host that declares nothing of this role any more, as absent."""
    facts = HostFacts(context.seen(names.ssh(context.subject.name)))
    return _gone(context.inventory, context.subject, facts.loader)


def _gone(inventory: Inventory, subject: Subject, loader: str) -> tuple[Resource, ...]:
    system = names.ssh(subject.name)
    blacklist = ModprobeBlacklist(system, BLACKLIST, ())
    if loader not in LOADERS:
        return (blacklist,)
    return (blacklist, KernelArguments(system, (), loader, reboot_of(inventory, subject), absent=True))


def _modules(context: Context, host: Hypervisor, facts: HypervisorFacts) -> tuple[str, ...]:
    derived: set[str] = set()
    for alias, card in host.cards.items():
        derived |= modules_of_card(context, facts, alias, card)
    # What somebody wrote down is meant: only what follows from a card by itself is held back.
    return tuple(sorted((derived - SHARED_DRIVERS) | set(map(module_name, host.blacklist_extra))))


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
    found = {name for cls, name in candidates if cls.startswith(_CARD_CLASSES)}
    known = () if isinstance(functions, Unknown) else functions
    for vendor in {each.vendor for each in known if each.slot == card.address and each.is_display}:
        found.update(COMPANIONS.get(vendor, ()))
    for name in tuple(found):
        found.update(FOLLOWERS.get(name, ()))
    return found


def _arguments(host: Hypervisor, modules: tuple[str, ...], facts: HypervisorFacts) -> tuple[str, ...]:
    found: list[str] = []
    if any(card.drives_console for card in host.cards.values()):
        found.append("nomodeset")
    if modules:
        found.append(f"modprobe.blacklist={','.join(modules)}")
    if host.cards and _needs_intel_iommu(facts):
        found.append(INTEL_IOMMU)
    line = united_arguments(" ".join(found), host.kernel_arguments)
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
