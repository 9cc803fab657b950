"""What is accepted and built, and what nobody has run yet: said in validate and in the docs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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


def _backend(*names: str) -> Callable[[Inventory], bool]:
    def declared(inventory: Inventory) -> bool:
        return inventory.dhcp is not None and inventory.dhcp.backend in names

    return declared


def _ubuntu(inventory: Inventory) -> bool:
    return any(name.startswith("ubuntu") for name in inventory.images)


def _fractions(inventory: Inventory) -> bool:
    return inventory.sharing is not None and inventory.sharing.mode == "kai_fractions"


UNPROVEN = (
    Unproven("Ubuntu guests", ("images",), _ubuntu),
    Unproven(
        "DHCP back ends with a web API (opnsense, opnsense_kea, pfsense, unifi)",
        ("network", "dhcp", "backend"),
        _backend("opnsense", "opnsense_kea", "pfsense", "unifi"),
    ),
    Unproven("DHCP back ends openwrt and kea", ("network", "dhcp", "backend"), _backend("openwrt", "kea")),
    Unproven("GPU fractions with KAI", ("sharing", "mode"), _fractions),
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
