"""Rules about passed-through cards: groups, identity, who else has them."""

from __future__ import annotations

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule, UnknownYet
from provision.hosts.resources.pci import PciFunction
from provision.inventory.models.hypervisor import Hypervisor
from provision.proxmox.host_drivers import passed_functions
from provision.proxmox.preflight.site import host_facts, managed_vms
from provision.proxmox.roles.pci_mapping import used
from provision.values.diagnostics import Diagnostic, Severity


def group_shared(evidence: Evidence) -> list[Finding]:
    """Refuse a card whose IOMMU group holds something else: PVE would take that from the host, too."""
    findings: list[Finding] = []
    for hypervisor, nodes in managed_vms(evidence):
        functions = host_facts(evidence, hypervisor).functions
        if isinstance(functions, Unknown):
            if used(evidence.inventory, hypervisor.name):
                findings.append(UnknownYet(f"IOMMU groups of {hypervisor.name}: {functions.reason}"))
            continue
        for node in nodes:
            aliases = [card for alias in node.cards for card in hypervisor.cards_of(alias)]
            passed = {alias: passed_functions(hypervisor.cards[alias], functions) for alias in aliases}
            by_name = {each.address for alias in aliases if alias in node.cards for each in passed[alias]}
            for alias in aliases:
                taken = by_name | {each.address for each in passed[alias]}  # of a pool it has only one
                groups = {function.group for function in passed[alias] if function.group}
                strangers = [
                    each
                    for each in functions
                    if each.group in groups and each.address not in taken and not each.is_bridge
                ]
                if strangers:
                    findings.append(_shared(evidence, hypervisor, alias, strangers))
    return findings


def _shared(
    evidence: Evidence, hypervisor: Hypervisor, alias: str, strangers: list[PciFunction]
) -> Diagnostic:
    rows = [
        f"{each.address} [{each.id}] class {each.cls}, driver {each.driver or 'none'}" for each in strangers
    ]
    return Diagnostic(
        "IOMMU_GROUP_SHARED",
        f"card {alias} of {hypervisor.name} shares its IOMMU group {strangers[0].group} with other devices",
        hypervisor.name,
        evidence=tuple(rows),
        source=evidence.inventory.source(("hypervisors", hypervisor.name, "cards", alias)),
        untouched="Nothing was changed.",
        remedy="A group is passed as a whole, and the host would lose the rest. Switch on ACS in the firmware"
        " setup, or put the card into a slot of the processor. If the rest is cards, too, give all of them to"
        " one VM.",
    )


def address_moved(evidence: Evidence) -> list[Finding]:
    """Refuse a card whose address shows another device than declared."""
    findings: list[Finding] = []
    for hypervisor, _ in managed_vms(evidence):
        functions = host_facts(evidence, hypervisor).functions
        if isinstance(functions, Unknown):
            continue
        for alias in used(evidence.inventory, hypervisor.name):
            card = hypervisor.cards[alias]
            passed = passed_functions(card, functions)
            first = next(iter(passed), None)
            if first is None and not functions:
                continue
            absent = {*card.functions} - {int(function.address[-1], 16) for function in passed}
            if first is not None and absent:
                findings.append(_without_functions(evidence, hypervisor, alias, sorted(absent)))
                continue
            if first is not None and (card.id is None or first.id == card.id):
                continue
            like = [each.slot for each in functions if each.id == card.id]
            what = f"shows {first.id}" if first is not None else "is empty"
            findings.append(
                Diagnostic(
                    "GPU_ADDRESS_MOVED",
                    f"{card.address} of {hypervisor.name} {what}; card {alias} is {card.id or 'expected'}",
                    hypervisor.name,
                    evidence=tuple(f"{card.id} is at {each}" for each in like),
                    source=evidence.inventory.source(
                        ("hypervisors", hypervisor.name, "cards", alias, "address")
                    ),
                    untouched="Nothing was changed.",
                    remedy=f"Write `address: {like[0]}`."
                    if like
                    else "List the cards on the host: `lspci -nn`",
                )
            )
    return findings


def boot_display(evidence: Evidence) -> list[Finding]:
    """Warn of a card that the firmware's console is on, and that is not declared so."""
    findings: list[Finding] = []
    for hypervisor, _ in managed_vms(evidence):
        functions = host_facts(evidence, hypervisor).functions
        if isinstance(functions, Unknown):
            continue
        for alias in used(evidence.inventory, hypervisor.name):
            card = hypervisor.cards[alias]
            console = [each.address for each in passed_functions(card, functions) if each.boot_vga]
            if console and not card.drives_console:
                findings.append(
                    Diagnostic(
                        "GPU_IS_BOOT_VGA",
                        f"card {alias} is the display that {hypervisor.name} boots with",
                        hypervisor.name,
                        Severity.WARNING,
                        evidence=(f"/sys/bus/pci/devices/{console[0]}/boot_vga: 1",),
                        source=evidence.inventory.source(("hypervisors", hypervisor.name, "cards", alias)),
                        remedy="Its VM takes the screen. Write `drives_console: true`: then it may not start"
                        " at boot, and taking the screen needs your consent.",
                    )
                )
    return findings


def _without_functions(
    evidence: Evidence, hypervisor: Hypervisor, alias: str, absent: list[int]
) -> Diagnostic:
    card = hypervisor.cards[alias]
    numbers = ", ".join(f"{card.address}.{number}" for number in absent)
    return Diagnostic(
        "GPU_ADDRESS_MOVED",
        f"{hypervisor.name} has no PCI function {numbers} of card {alias}",
        hypervisor.name,
        source=evidence.inventory.source(("hypervisors", hypervisor.name, "cards", alias, "functions")),
        untouched="Nothing was changed.",
        remedy=f"Write the functions that it has; list them on the host: `lspci -nns {card.address}`",
    )


RULES = (
    Rule(
        ("IOMMU_GROUP_SHARED",),
        "the IOMMU group of a passed card holds devices that are not passed to the same VM",
        "switch on ACS in the firmware setup, or move the card to a slot of the processor",
        group_shared,
    ),
    Rule(
        ("GPU_ADDRESS_MOVED",),
        "the declared PCI address is empty or shows another id than declared",
        "declare the card's present address",
        address_moved,
    ),
    Rule(
        ("GPU_IS_BOOT_VGA",),
        "a passed card drives the host's display at boot, and the inventory does not say so",
        "declare `drives_console: true` of the card",
        boot_display,
        severity=Severity.WARNING,
    ),
)
