"""A verification as a run of its own: asked, checked, written down."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from provision.api.check_session import Answers
from provision.api.checks import silent, verified
from provision.api.events import check_event, guarded
from provision.api.refusals import check_verify
from provision.api.run_identity import new_run_id, who
from provision.engine.environment import Options
from provision.engine.journal import Journal
from provision.engine.model import StepId
from provision.engine.observe import observe
from provision.inventory.playbook import VERIFY
from provision.values.cancel import Cancel, Interrupted
from provision.values.errors import ProvisionError
from provision.values.events import Emitter, Problem, RunEnded, RunStarted
from provision.values.outcomes import ExitCode
from provision.verify.model import CheckOutcome, CheckResult, VerifyReport

if TYPE_CHECKING:
    from provision.api.site import Site


def verify_site(site: Site, options: Options, emit: Emitter, cancel: Cancel) -> VerifyReport:
    """Run all checks on fresh answers, and keep them in the journal; see `Site.verify`."""
    cancel = cancel.looking()
    run, emit = new_run_id(), guarded(emit, site.redactor.text)
    began = time.monotonic()
    site.steps(options)  # refuses targets that do not exist
    check_verify(site.environment, options)
    journal = Journal(site.journal_path, site.redactor.text)
    with suppress(ProvisionError):  # nothing acts: that it cannot be written is a warning at the end
        journal.begin(run, site.inventory.name, "verify", who())
    emit(RunStarted(run=run, inventory=site.inventory.name, verb="verify", journal=str(site.journal_path)))
    try:
        report = _run_checks(site, run, options, emit, cancel, journal)
    except (Interrupted, ProvisionError) as error:
        code = error.exit_code if isinstance(error, ProvisionError) else ExitCode.INTERRUPTED
        interrupted = isinstance(error, Interrupted)
        journal.end(run, time.monotonic() - began, int(code), {}, interrupted=interrupted)
        raise
    else:
        code = report.exit_code(strict=site.is_strict(options))
        seconds = time.monotonic() - began
        journal.end(run, seconds, int(code), site.session.trips(), interrupted=False)
        failure = journal.failure()
        if failure is not None:
            emit(Problem(run=run, diagnostic=failure.as_json()))
        counts = {str(outcome): report.count(outcome) for outcome in CheckOutcome}
        emit(RunEnded(run=run, outcomes=counts, exit_code=int(code), seconds=seconds))
        return report
    finally:
        journal.close()


def _run_checks(
    site: Site, run: str, options: Options, emit: Emitter, cancel: Cancel, journal: Journal
) -> VerifyReport:
    """Ask the systems, run the checks, and record what they found."""
    answers = Answers(site.session, cancel, recorder(journal, run), run)
    remembered = site.queries.recall(verify=True)
    known = site.session.snapshots()
    names = [name for name in verified(site.environment, options.targets) if name not in known]
    observe(site.session, dict.fromkeys(names, ()), remembered, cancel)

    def record_check(result: CheckResult) -> None:
        write_check(journal, run, result)
        emit(check_event(run, result))

    mask = site.redactor.text
    silences = tuple(silence.masked(mask) for silence in silent(site.session, site.inventory))
    report = replace(site.run_checks(answers, options, record_check), silent=silences)
    if cancel.leaving:
        raise Interrupted
    for silence in report.silent:
        journal.problem(run, StepId(VERIFY, silence.diagnostic.subject), silence.diagnostic)
        emit(Problem(run=run, diagnostic=silence.diagnostic.as_json()))
    site.remember(options, answers.asked)
    return report


def write_check(journal: Journal, run: str, result: CheckResult) -> None:
    """Write down how a check ended that has just ended."""
    journal.check(
        run,
        name=result.name,
        subject=result.subject,
        outcome=str(result.outcome),
        message=result.message,
        excused=int(result.excused),
        started=time.time() - result.seconds,
        seconds=result.seconds,
    )


def recorder(journal: Journal, run: str) -> Callable[[str, str], None]:
    """Return what writes down a request of a check before it is sent, if it changes something.

    A journal that cannot be written keeps no check from cleaning up; its failure is shown at the end.
    """

    def record(system: str, what: str) -> None:
        with suppress(ProvisionError):
            journal.intent(run, StepId(VERIFY, system.partition("/")[0]), system, (what,))

    return record
