"""Which drivers of a hypervisor must be kept off the cards that its VMs get, and by what.

A driver counts as kept off if nothing would bind it at the next boot, whoever wrote the rule: a blacklist or
an `install` of modprobe.d, `vfio-pci` with the card's ids before it, a driver_override. A driver that has a
card now is not kept off, whatever files say. One that another card of the host needs is kept off by slot: the
host's card would lose its driver otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from provision.hosts.queries.kernel import module_name
from provision.hosts.queries.modprobe import ModprobeRule
from provision.hosts.resources.pci import VFIO, PciFunction, matches
from provision.inventory.models.hypervisor import Card


@dataclass(frozen=True, slots=True)
class HostDrivers:
    """What this host needs so that no driver of it takes a declared card.

    Args:
        modules: modules that our file of modprobe.d keeps off.
        by_slot: functions, by full address, that are given to vfio-pci by their address.
        bound: a driver of the host has one of the cards now.
    """

    modules: tuple[str, ...] = ()
    by_slot: tuple[str, ...] = ()
    bound: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """What we have written so far; it stays, so that a plan does not undo the last one.

    Args:
        modules: modules in our file of modprobe.d.
        by_slot: functions in our script of the initramfs.
    """

    modules: frozenset[str] = frozenset()
    by_slot: frozenset[str] = frozenset()


def passed_functions(card: Card, functions: Iterable[PciFunction]) -> tuple[PciFunction, ...]:
    """Return the functions of a card that a VM gets."""
    return tuple(
        function
        for function in functions
        if function.slot == card.address and card.passes(function.address.rpartition(".")[2])
    )


def bystanders(
    cards: Mapping[str, Card], functions: Sequence[PciFunction], modules: Sequence[str]
) -> tuple[str, ...]:
    """Return the functions of no declared card whose present driver is among those that are kept off."""
    given = {function.address for card in cards.values() for function in passed_functions(card, functions)}
    kept_off = set(map(module_name, modules))
    return tuple(
        described(function)
        for function in functions
        if function.address not in given and is_bound(function) and function.driver_module in kept_off
    )


def companions(card: Card, functions: Sequence[PciFunction]) -> tuple[str, ...]:
    """Return the functions that go to a VM with a card although they are not part of it, with their drivers.

    The sound and USB functions of a graphics card are of its maker. On processors with graphics, the slot
    has the host's own USB and encryption controllers, too.
    """
    passed = passed_functions(card, functions)
    makers = {function.vendor for function in passed if function.is_display}
    return tuple(
        described(function)
        for function in passed
        if is_bound(function)
        and not function.is_display
        and not (function.vendor in makers and function.cls.startswith(PARTS))
    )


PARTS = ("0403", "0c03", "0c80")
"""PCI classes of a graphics card's other functions: sound, USB, the USB-C port's controller."""


def described(function: PciFunction) -> str:
    """Return a function with its id and present driver, for people."""
    return f"{function.address} [{function.id}] {function.driver}"


def is_bound(function: PciFunction) -> bool:
    """Whether a driver of the host has a function."""
    return function.driver not in {"", VFIO}


def keeps_off(rules: Iterable[ModprobeRule], function: PciFunction, module: str) -> bool:
    """Whether a module would not bind a function at the next boot, by what is configured."""
    if function.override == VFIO:
        return True
    rules = tuple(rules)
    if any(rule.keeps_off and rule.module == module for rule in rules):
        return True
    early = any(module_name(VFIO) in rule.loads_first for rule in rules if rule.module == module)
    return early and any(matches(identity, function) for rule in rules for identity in rule.ids)


def host_drivers(
    cards: Mapping[str, Card],
    needed: Mapping[str, frozenset[str]],
    functions: Sequence[PciFunction],
    rules: Sequence[ModprobeRule],
    written: Written,
    extra: Sequence[str] = (),
) -> HostDrivers:
    """Return what this host needs.

    Args:
        cards: the declared cards.
        needed: modules that would drive each of them, by alias.
        functions: all PCI functions of the host.
        rules: of modprobe.d, without those of our own file.
        written: what we have written so far.
        extra: modules that the inventory names.
    """
    given = {function.address for card in cards.values() for function in passed_functions(card, functions)}
    in_use = {
        function.driver_module
        for function in functions
        if function.is_display and function.address not in given and is_bound(function)
    }
    modules = set(map(module_name, extra))
    by_slot: set[str] = set()
    bound = False
    for alias, card in cards.items():
        own = [function for function in passed_functions(card, functions) if function.is_display]
        bound |= any(map(is_bound, own))
        addresses = {function.address for function in own}
        # Given by address at this boot, and its equal has no driver for another reason, such as `nomodeset`.
        ids = {function.id for function in own if function.override == VFIO}
        has_twin = any(each.id in ids for each in functions if each.is_display and each.address not in given)
        if needed[alias] & in_use or addresses & written.by_slot or has_twin:
            by_slot |= addresses
            continue
        for module in needed[alias]:
            is_kept = all(not is_bound(each) and keeps_off(rules, each, module) for each in own)
            if not (own and is_kept) or module in written.modules:
                modules.add(module)
    return HostDrivers(tuple(sorted(modules)), tuple(sorted(by_slot)), bound)
