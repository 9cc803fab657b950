"""Runs a plan, from the first event to the exit code."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from provision.engine.model import RunReport
from provision.engine.run import Run
from provision.engine.scheduler import Scheduler
from provision.engine.step_state import StepResult
from provision.values.events import Problem, RunEnded, RunStarted
from provision.values.outcomes import ExitCode, Outcome, worst


def _exit_code(results: Iterable[StepResult], *, interrupted: bool) -> ExitCode:
    """Return what the outcomes of all steps lead to, by precedence."""
    codes = [ExitCode.INTERRUPTED] if interrupted else []
    for result in results:
        if result.exit_code is not None:
            codes.append(result.exit_code)
        elif result.outcome in {Outcome.FAILED, Outcome.BLOCKED}:
            codes.append(ExitCode.ERROR)
        elif result.outcome is Outcome.WAITING:
            codes.append(ExitCode.WAITING)
        elif result.outcome in {Outcome.UNREACHED, Outcome.LATE} and not result.excused:
            codes.append(ExitCode.ERROR)
    return worst(codes)


def run_plan(run: Run, verb: str) -> RunReport:
    """Run the plan, whose begin is in the journal, and return how it ended.

    Raises:
        BaseException: what a worker raised that is no error of a system; the journal has no end then.
    """
    began = time.monotonic() - run.planned.seconds  # without the time in which a person read the plan
    plan = run.planned.plan
    run.emit(
        RunStarted(
            run=run.id,
            inventory=plan.inventory,
            verb=verb,
            subjects=tuple(dict.fromkeys(step.subject for step in run.planned.states)),
            journal=str(run.journal.path),
            steps=len(run.planned.states),
        )
    )
    for warning in plan.warnings:
        run.emit(Problem(run=run.id, diagnostic=warning.as_json()))
    scheduler = Scheduler(run)
    try:
        interrupted = scheduler.go()
    finally:
        run.session.release()
    seconds = time.monotonic() - began
    results = [state.result for state in run.planned.states.values() if state.result is not None]
    code = _exit_code(results, interrupted=interrupted)
    outcomes = Counter(str(result.outcome) for result in results)
    trips = run.session.trips()
    run.journal.end(run.id, seconds, int(code), trips, interrupted=interrupted)
    failure = run.journal.failure()
    if failure is not None:
        run.emit(Problem(run=run.id, diagnostic=failure.as_json()))
    run.emit(RunEnded(run=run.id, outcomes=dict(outcomes), exit_code=int(code), seconds=seconds))
    return RunReport(
        run.id,
        plan.inventory,
        scheduler.reports(),
        tuple(run.missing),
        trips,
        interrupted,
        seconds,
        int(code),
        run.verification,
    )
