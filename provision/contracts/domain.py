"""What a domain brings into the house: its one entry in the composition root.

What is slow to import is named as `module:attribute`, as entry points are, and loaded when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from provision.contracts.effect import EffectClass
from provision.inventory import Inventory


def _always(_inventory: Inventory) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Domain:
    """One link of the chain.

    Args:
        name: of its folder.
        effects: the effect classes that it declares.
        roles: its role modules by role name.
        planned_roles: names of roles that are known and not supported yet.
        destroy_keeps: roles whose work `destroy` leaves on machines that stay, unless it is told `--host`.
        checks: packages of its checks, which are pytest files.
        rules: its preflight rules, a tuple of `Rule`; empty for none.
        evidence: what its rules look at beyond the questions of roles: a function from an inventory to
            questions by system; empty for none.
        concerns: whether an inventory declares anything of it; where not, nothing of it is imported.
    """

    name: str
    effects: tuple[EffectClass, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    planned_roles: tuple[str, ...] = ()
    destroy_keeps: frozenset[str] = frozenset()
    checks: tuple[str, ...] = ()
    rules: str = ""
    evidence: str = ""
    concerns: Callable[[Inventory], bool] = _always


def load_object(reference: str) -> Any:
    """Return what `module:attribute` (or `module`) names.

    Raises:
        ImportError, AttributeError: there is no such thing.
    """
    module, _, attribute = reference.partition(":")
    loaded = import_module(module)
    return getattr(loaded, attribute) if attribute else loaded
