"""Steps that verify: the site at the end, and each checkpoint before and after a subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from provision.engine.model import StepId
from provision.engine.run import Run
from provision.engine.step_state import StepResult, StepState
from provision.values.outcomes import ExitCode, Outcome

_NOT_VERIFIED = {
    Outcome.FAILED: "failed",
    Outcome.BLOCKED: "blocked",
    Outcome.UNREACHED: "unreached",
    Outcome.WAITING: "waiting",
}
"""Outcomes of steps after which the site is not verified; the first one that occurs is reported."""


def result_without_checks(states: Mapping[StepId, StepState], state: StepState) -> StepResult | None:
    """Return the result of a verification that needs no look at the site, or None.

    At the end failed checks would only repeat what steps said before; a checkpoint is passed where nothing is
    about to change, or nothing has.
    """
    if state.step.checkpoint is not None:
        idle = StepResult(Outcome.UNCHANGED, "nothing to compare")
        return None if _is_worth_a_look(states, state) else idle
    results = [other.result for other in states.values() if other.result is not None]
    count = Counter(result.outcome for result in results if not result.excused)
    for outcome, verb in _NOT_VERIFIED.items():
        if count[outcome]:
            what = f"{count[outcome]} step{'s' * (count[outcome] > 1)} {verb}"
            final = Outcome.WAITING if outcome is Outcome.WAITING else Outcome.BLOCKED
            return StepResult(final, f"not verified: {what}; run provision verify for the present state")
    return None


def _is_worth_a_look(states: Mapping[StepId, StepState], state: StepState) -> bool:
    checkpoint = state.step.checkpoint
    if checkpoint is None:
        return True
    members = [states[step] for step in checkpoint.steps if step in states]
    if checkpoint.is_before:
        return any(_is_pending(member) for member in members)
    return any(member.result is not None and member.result.changed for member in members)


def _is_pending(member: StepState) -> bool:
    plan = member.plan
    return bool(plan.changes or plan.late) and not plan.unreached


def verify(run: Run, state: StepState) -> StepResult:
    """Run the checks of the site, or those of a checkpoint against what was proven before."""
    if run.verify is None:
        return StepResult(Outcome.UNCHANGED, "no checks")
    gate, checkpoint = state.step.gate, state.step.checkpoint
    if gate and run.question(gate) is not True:
        return StepResult(Outcome.WAITING, f"waits for a person: {gate}")
    if checkpoint is not None:
        pending = (step.subject for step in checkpoint.steps if _is_pending(run.planned.states[step]))
        subject = next(pending, "") if checkpoint.is_before else checkpoint.steps[0].subject
        checkpoint = replace(checkpoint, subject=subject)
    verification = run.verify(checkpoint, run.cancel)
    if checkpoint is None:
        run.verification = verification.detail
    code = verification.exit_code
    outcome = Outcome.UNCHANGED if code is ExitCode.DONE else Outcome.FAILED
    return StepResult(outcome, verification.summary, verification.diagnostics, exit_code=code)
