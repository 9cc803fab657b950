"""What an inventory declares that is not supported, or that nobody has run, yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from provision.api.domains import domains
from provision.contracts.support import Unsupported, Untested
from provision.inventory import Inventory
from provision.values.diagnostics import Diagnostic
from provision.values.references import load_object


def unsupported(inventory: Inventory) -> tuple[Unsupported, ...]:
    """Return what the inventory declares in vain, in the order of the chain; one role and matter once."""
    merged: dict[tuple[str, str], Unsupported] = {}
    for domain in domains():
        for item in load_object(domain.unsupported)(inventory) if domain.unsupported else ():
            former = merged.setdefault((item.role, item.what), item)
            if not set(item.subjects) <= set(former.subjects):
                merged[item.role, item.what] = replace(former, subjects=(*former.subjects, *item.subjects))
    return tuple(merged.values())


def all_untested() -> tuple[Untested, ...]:
    """Return all that is supported and that nobody has run yet, in the order of the chain."""
    items: list[Untested] = []
    for domain in domains():
        items += domain.untested
        items += [
            Untested(f"the DHCP back end {name}", ("network", "dhcp", "backend"), _names_backend(name))
            for name, backend in domain.backends.items()
            if not backend.tested
        ]
    return tuple(items)


def _names_backend(name: str) -> Callable[[Inventory], bool]:
    return lambda inventory: inventory.dhcp is not None and inventory.dhcp.backend == name


def untested(inventory: Inventory) -> list[Diagnostic]:
    """Return a note for each declared thing that nobody has run yet."""
    return [item.note(inventory) for item in all_untested() if item.is_declared(inventory)]
