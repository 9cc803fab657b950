"""Steps that verify: the site at the end, and each checkpoint before and after a subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from provision.engine.environment import CheckpointRequest
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
    checkpoint = state.step.checkpoint
    if run.verify is None or (checkpoint is not None and run.checkpoint is None):
        return StepResult(Outcome.UNCHANGED, "no checks")
    gate = state.step.gate
    if gate and run.question(gate) is not True:
        return StepResult(Outcome.WAITING, f"waits for a person: {gate}")
    if checkpoint is None or run.checkpoint is None:
        verification = run.verify(run.cancel)
        run.verification = verification.detail
        outcome = Outcome.UNCHANGED if verification.exit_code is ExitCode.DONE else Outcome.FAILED
        return StepResult(outcome, verification.summary, exit_code=verification.exit_code)
    pending = (step.subject for step in checkpoint.steps if _is_pending(run.planned.states[step]))
    subject = next(pending, "") if checkpoint.is_before else checkpoint.steps[0].subject
    request = CheckpointRequest(subject, checkpoint.is_before, checkpoint.way_back)
    verification = run.checkpoint(request, run.cancel)
    if verification.exit_code is ExitCode.DONE:
        return StepResult(Outcome.UNCHANGED, verification.summary)
    return StepResult(
        Outcome.FAILED,
        verification.summary,
        verification.diagnostics,
        stops=True,
        exit_code=verification.exit_code,
    )
