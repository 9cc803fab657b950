"""A plan with what the run needs to carry it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from provision.engine.consent import Consents
from provision.engine.expand import Desired
from provision.engine.generated import GeneratedValues
from provision.engine.model import Plan, StepId
from provision.engine.step_state import StepState
from provision.engine.world import Options
from provision.values.diagnostics import Diagnostic


@dataclass(slots=True)
class Planned:
    """A plan with what the run needs to keep it.

    `home` is as in `World`; `seconds` is how long it took to ask and plan.
    """

    plan: Plan
    states: dict[StepId, StepState]
    desired: Desired
    consents: Consents
    generated: GeneratedValues
    options: Options
    destroying: bool = False
    home: Mapping[str, Diagnostic] = field(default_factory=dict)
    seconds: float = 0.0
