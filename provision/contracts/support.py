"""What an inventory may declare and nobody serves, or has run, yet."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from provision.inventory import Inventory
from provision.inventory.tree import KeyPath
from provision.values.diagnostics import Diagnostic, Severity

CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Something declared that waits for a role.

    Args:
        role: the role that would serve it.
        what: as a user reads it.
        path: where it was declared first.
        subjects: whom it is about; the whole site if empty.
        steps: steps of the playbook that it bears on; all of them if empty.
    """

    role: str
    what: str
    path: KeyPath
    subjects: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()

    def concerns(self, targets: Collection[str], steps: Collection[str]) -> bool:
        """Whether a run for these targets and steps meets it; empty ones stand for all."""
        is_target = not targets or not self.subjects or bool(set(self.subjects) & set(targets))
        return is_target and (not steps or not self.steps or bool(set(self.steps) & set(steps)))

    def problem(self, inventory: Inventory) -> Diagnostic:
        """Return it as a user reads it, with its line of the inventory."""
        whom = f" ({', '.join(self.subjects)})" if self.subjects else ""
        always = not self.subjects and not self.steps
        return Diagnostic(
            "FEATURE_UNSUPPORTED",
            f"{self.what}{whom} is not supported yet (role {self.role})",
            self.subjects[0] if len(self.subjects) == 1 else "",
            source=inventory.source(self.path),
            remedy="Remove it from the inventory."
            if always
            else "Leave it out with --target or --step, or remove it from the inventory.",
        )


@dataclass(frozen=True, slots=True)
class Untested:
    """Something that is supported and that nobody has run yet.

    Args:
        what: as a user reads it.
        path: where it is declared.
        is_declared: whether an inventory declares it.
    """

    what: str
    path: KeyPath
    is_declared: Callable[[Inventory], bool]

    def note(self, inventory: Inventory) -> Diagnostic:
        """Return it as a user reads it, with its line of the inventory."""
        return Diagnostic(
            "UNTESTED",
            f"nobody has run this yet: {self.what}",
            severity=Severity.NOTE,
            source=inventory.source(self.path),
        )
