"""Merged reboots: one boot for all that a subject's steps owe, then these steps are read back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from provision.contracts.driver import Result, Verdict
from provision.contracts.effect import Effect
from provision.contracts.resource import changes_of
from provision.engine.model import StepId
from provision.engine.readback import not_as_desired, read_back, unreached
from provision.engine.run import Run
from provision.engine.step_state import StepResult, StepState, failed
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError, Transient, UsageError
from provision.values.outcomes import Outcome

REBOOT = "reboot"
PROOF_SECONDS = 300.0
"""How long after a boot a subject's other systems may take until they answer."""
PROOF_PAUSE = 2.0


def _chosen(run: Run, subject: str) -> tuple[str, Effect]:
    """Return the reboot that satisfies all that are owed: one by the subject's own system first."""
    owed = run.owed[subject]
    return min(
        owed, key=lambda each: (run.session.subject_of(each[0]) != subject, -each[1].cls.rank, each[0])
    )


def reboot(run: Run, subject: str) -> Diagnostic | None:
    """Reboot a subject, void what was known of it, and return what went wrong, if anything did.

    Its other systems that have a proof answer before it, and after it.
    """
    system, effect = _chosen(run, subject)
    step = StepId(REBOOT, subject)
    began = time.monotonic()
    run.step_started(step)
    problem: Diagnostic | None = None
    handle = run.session.systems[system]
    proven = [
        name
        for name in run.session.of_subject(subject)
        if name != system and run.session.systems[name].spec.proof is not None
    ]
    try:
        proven = [name for name in proven if _answers_before(run, step, name)]
        run.journal.intent(run.id, step, system, [str(effect)])
        run.session.move_away(subject, run.cancel)
        with handle.lock.held(run.cancel):
            driver = run.session.driver(system, run.cancel)
            driver.reboot(effect, lambda line: run.progress(step, line), run.cancel)
    except ProvisionError as error:
        problem = error.diagnostics[0]
    finally:
        run.session.void(subject, run.cancel, keep=system)
    for name in () if problem else proven:
        problem = problem or _prove_after(run, step, name)
    seconds = time.monotonic() - began
    run.effect_ended(system, effect, Result(Verdict.FAILED if problem else Verdict.DONE, seconds))
    outcome = Outcome.FAILED if problem else Outcome.CHANGED
    run.step_ended(step, outcome, seconds, problem.summary if problem else "")
    return problem


def _ask_proof(run: Run, name: str) -> None:
    """Ask a system what proves that it answers.

    Raises:
        ProvisionError: it does not, or is another one.
    """
    run.session.ask(name, [run.session.systems[name].spec.proof], run.cancel, fresh=True)


def _answers_before(run: Run, step: StepId, name: str) -> bool:
    """Return whether a system can be asked at all.

    Raises:
        Permanent: it gives no answer, so nobody would know what the reboot did to it.
    """
    try:
        _ask_proof(run, name)
    except UsageError as error:  # credentials that nobody declared: other steps do without it, too
        run.progress(step, f"{name} cannot be checked: {error.diagnostics[0].summary}")
        return False
    except ProvisionError as error:
        raise Permanent(
            replace(
                error.diagnostics[0],
                untouched=f"{step.subject} was not rebooted: {name} must answer before, so that it can be"
                " proven afterwards.",
            )
        ) from None
    return True


def _prove_after(run: Run, step: StepId, name: str) -> Diagnostic | None:
    """Wait until a system answers again; return what is wrong if it does not."""
    run.progress(step, f"waiting for {name}")
    deadline = time.monotonic() + PROOF_SECONDS
    while True:
        try:
            _ask_proof(run, name)
        except Transient as error:
            if time.monotonic() < deadline:
                run.cancel.wait(PROOF_PAUSE)
                continue
            return replace(
                error.diagnostics[0],
                code="REBOOT_UNPROVEN",
                summary=f"{step.subject} is back after the reboot, and {name} does not answer",
                evidence=(error.diagnostics[0].summary, *error.diagnostics[0].evidence),
                remedy="Look at its services on the host: `systemctl --failed`, `journalctl -b -p err`."
                " Then run the command again.",
            )
        except ProvisionError as error:
            return error.diagnostics[0]
        return None


def after_reboot(run: Run, states: Sequence[StepState]) -> dict[StepId, StepResult]:
    """Read back the steps that waited for a reboot, once a system, and return their results."""
    silent: dict[str, ProvisionError] = {}
    for system in sorted({name for state in states for name in state.acted_on}):
        theirs = [state for state in states if system in state.acted_on]
        try:
            read_back(run, theirs, [system])
        except ProvisionError as error:
            silent[system] = error
    results: dict[StepId, StepResult] = {}
    for state in states:
        errors = [silent[system] for system in sorted(state.acted_on) if system in silent]
        if errors:
            results[state.step.id] = replace(unreached(errors[0]), changed=state.changed)
        else:
            results[state.step.id] = _final_result(run, state)
    return results


def _final_result(run: Run, state: StepState) -> StepResult:
    former = state.result
    if former is None:
        raise ValueError(f"{state.step.id} has not ended")
    changed = {change.key for change in former.changed}
    for resource in state.resources:
        if resource.key not in changed or former.outcome is Outcome.WAITING:
            continue
        snapshot = run.session.ask_known(resource.key.system, resource.queries(), run.cancel)
        changes = changes_of(resource, snapshot) if snapshot is not None else ()
        if changes:
            summary = f"{resource.key} is not as desired after the reboot"
            diagnostic = not_as_desired(summary, state.step.subject.name, {resource.key: changes})
            return failed(replace(diagnostic, source=resource.source), former.changed)
    return replace(former, deferred=frozenset())
