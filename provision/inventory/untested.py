"""What is served, and what nobody has run yet: said in validate and in the docs.

What no role serves is told by `unserved.py` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from provision.inventory.dhcp_backends import DHCP_BACKENDS
from provision.inventory.models.inventory import Inventory
from provision.values.diagnostics import Diagnostic, Severity


@dataclass(frozen=True, slots=True)
class Unproven:
    """One thing that nobody has run.

    Args:
        words: what it is.
        path: where it is declared.
        declared: whether an inventory declares it.
    """

    words: str
    path: tuple[str, ...]
    declared: Callable[[Inventory], bool]


def _backend(name: str) -> Callable[[Inventory], bool]:
    return lambda inventory: inventory.dhcp is not None and inventory.dhcp.backend == name


def _ubuntu(inventory: Inventory) -> bool:
    return any(name.startswith("ubuntu") for name in inventory.images)


UNPROVEN = (
    Unproven("Ubuntu guests", ("images",), _ubuntu),
    *(
        Unproven(f"the DHCP back end {name}", ("network", "dhcp", "backend"), _backend(name))
        for name, each in DHCP_BACKENDS.items()
        if each.served and not each.proven
    ),
)
"""In the order of the docs."""


def unproven(inventory: Inventory) -> list[Diagnostic]:
    """Return a note for each declared thing that nobody has run yet."""
    return [
        Diagnostic(
            "UNPROVEN",
            f"unproven, nobody has run this yet: {each.words}",
            severity=Severity.NOTE,
            source=inventory.source(each.path),
        )
        for each in UNPROVEN
        if each.declared(inventory)
    ]
