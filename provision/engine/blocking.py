"""Whether a step may begin at all, by how the steps that it needs have ended."""

from __future__ import annotations

from collections.abc import Mapping

from provision.engine.model import Barrier, StepId
from provision.engine.step_state import StepResult, StepState, inherited_result
from provision.values.outcomes import Outcome

_HOPE = {Outcome.WAITING: 0, Outcome.UNREACHED: 1}
"""How likely a step that did not end well does so in a later run; all others are last."""


class Blocking:
    """What keeps the steps of a run from beginning.

    Args:
        states: all steps.
        provisional: those whose results are not final; it changes as the run goes on.
    """

    def __init__(self, states: Mapping[StepId, StepState], provisional: Mapping[StepId, StepState]) -> None:
        self._states = states
        self._provisional = provisional
        self._barriers: dict[Barrier, StepResult | None] = {}  # verdicts that are final
        self.stopped: dict[str, StepState] = {}
        """The step that stopped a group, by group."""

    def result_of(self, state: StepState) -> StepResult | None:
        """Return the result of a step that cannot begin because of others, or None."""
        for step in sorted(state.step.needs):
            needed = self._states.get(step)
            if needed is not None and needed.result is not None and needed.result.stops:
                return inherited_result(step, needed.result)
        stopping = self.stopped.get(state.step.group)
        if stopping is not None and stopping.result is not None:
            return inherited_result(stopping.step.id, stopping.result)
        results = (self._unmet(barrier) for barrier in state.step.barriers)
        return next((result for result in results if result is not None), None)

    def _unmet(self, barrier: Barrier) -> StepResult | None:
        """Return the result of a step behind a barrier of which too few steps ended well, or None."""
        if not barrier.needed:
            return None
        if barrier in self._barriers:
            return self._barriers[barrier]
        members = (self._states[step] for step in barrier.steps if step in self._states)
        results = {state.step.id: state.result for state in members if state.result is not None}
        stopped = {step: result for step, result in results.items() if result.stops}
        missing = min(barrier.needed, len(results)) - (len(results) - len(stopped))
        unmet: StepResult | None = None
        if missing > 0:
            # As many as are missing may still end well later: the least hopeful one of these decides.
            hopeful = sorted(stopped, key=lambda step: (_HOPE.get(stopped[step].outcome, 2), step))
            cause = hopeful[missing - 1]
            unmet = inherited_result(cause, stopped[cause])
        if self._provisional.keys().isdisjoint(results):
            self._barriers[barrier] = unmet
        return unmet
