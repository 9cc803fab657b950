"""Plans and results of checks as events without secrets, and the exit code of a plan."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict

from provision.api.masking import Mask, event_masked
from provision.engine.journal import shown
from provision.engine.model import Plan, PlannedChange, StepId
from provision.values.events import ChangePlanned, CheckDone, Emitter, Event, PlanMade, Problem, StepOpen
from provision.values.outcomes import ExitCode, worst
from provision.verify.model import CheckResult


def plan_events(run: str, plan: Plan) -> Iterator[Event]:
    """Yield a plan as events: its problems, each change, each step that is not known yet, and the totals.

    Args:
        run: id of the planning.
        plan: what the engine decided.
    """
    problems = [planned.problem for planned in plan.steps if planned.problem is not None]
    for diagnostic in (*plan.refusals, *problems, *plan.warnings):
        yield Problem(run=run, diagnostic=diagnostic.as_json())
    for step in plan.steps:
        name = step.step.id
        for change in step.changes:
            yield _change(run, name, change)
        if step.late or step.unreached:
            yield StepOpen(
                run=run,
                subject=name.subject,
                role=name.role,
                state="late" if step.late else "unreached",
                reason=step.late or step.unreached,
                excused=step.excused,
            )
    yield PlanMade(
        run=run,
        empty=plan.empty,
        refused=bool(plan.refusals),
        changes=sum(len(planned.changes) for planned in plan.steps),
        unchanged=sum(planned.unchanged for planned in plan.steps),
        late=sum(bool(planned.late) for planned in plan.steps),
        unreached=sum(bool(planned.unreached) for planned in plan.steps),
        consents=tuple((risk.system, str(risk.effect), str(risk.consent)) for risk in plan.risks),
        orphans=plan.orphans,
    )


def _change(run: str, step: StepId, planned: PlannedChange) -> ChangePlanned:
    return ChangePlanned(
        run=run,
        subject=step.subject,
        role=step.role,
        key=str(planned.key),
        changes=tuple(map(shown, planned.changes)),
        effects=tuple(map(str, planned.effects)),
        risks=tuple(map(str, planned.risks)),
        by_hand=planned.by_hand.lines if planned.by_hand is not None else (),
        owed=planned.pending,
    )


def plan_code(plan: Plan, *, detailed: bool = False) -> ExitCode:
    """Return what `plan` ends with.

    Args:
        plan: what the engine decided.
        detailed: whether changes lead to exit code 2.
    """
    codes = [ExitCode.DONE]
    if plan.refusals:
        codes.append(ExitCode.REFUSED)
    if any(step.problem is not None or (step.unreached and not step.excused) for step in plan.steps):
        codes.append(ExitCode.ERROR)
    if detailed and any(step.changes or step.late for step in plan.steps):
        codes.append(ExitCode.CHANGES)
    return worst(codes)


def check_event(run: str, result: CheckResult) -> CheckDone:
    """Return the event of a check that has ended."""
    return CheckDone(
        run=run,
        name=result.name,
        subject=result.subject,
        outcome=str(result.outcome),
        message=result.message,
        excused=result.excused,
        seconds=result.seconds,
        total=result.total,
        figures=tuple(asdict(figure) for figure in result.figures),
    )


def is_worth_asking(plan: Plan) -> bool:
    """Whether a plan would do anything, or may."""
    return any(step.changes or step.late or step.problem for step in plan.steps)


def guarded(emit: Emitter, mask: Mask) -> Emitter:
    """Return an emitter that threads may share, and that masks secrets."""
    lock = threading.Lock()

    def emit_masked(event: Event) -> None:
        with lock:
            emit(event_masked(event, mask))

    return emit_masked
