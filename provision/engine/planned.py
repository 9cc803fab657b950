"""A plan with what the run needs to carry it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from provision.contracts.snapshot import Snapshot
from provision.engine.consent import Consents
from provision.engine.expander import Expander
from provision.engine.model import Plan, StepId
from provision.engine.step_state import StepState
from provision.engine.steps import Desired
from provision.values.diagnostics import Diagnostic

Checked = tuple[str, str, frozenset[object]]


def checked_key(snapshot: Snapshot) -> Checked:
    """Return what tells apart the answers of a system that rules about whole systems look at."""
    return snapshot.system, snapshot.boot_id, snapshot.unknown


@dataclass(slots=True)
class Planned:
    """A plan with what the run needs to keep it.

    `home` is as in `Environment`; `seconds` is how long it took to ask and plan; `checked` are the answers of
    systems that preflight has looked at, by name, boot and what was unknown.
    """

    plan: Plan
    states: dict[StepId, StepState]
    desired: Desired
    consents: Consents
    expander: Expander
    home: Mapping[str, Diagnostic] = field(default_factory=dict)
    seconds: float = 0.0
    checked: frozenset[Checked] = frozenset()
