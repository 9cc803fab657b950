"""A run that acts: from an accepted plan to its report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from provision.api.baseline import Baseline, pass_checkpoint
from provision.api.check_session import Answers
from provision.api.checks import verification
from provision.api.events import check_event, guarded
from provision.api.masking import run_masked
from provision.api.past_runs import usually
from provision.api.run_identity import who
from provision.api.verification import recorder, write_check
from provision.engine.environment import Options, Verification
from provision.engine.journal import Journal
from provision.engine.model import Checkpoint, RunReport
from provision.engine.planned import Planned
from provision.engine.run import Ask, Run
from provision.engine.run_plan import run_plan
from provision.values.cancel import Cancel
from provision.values.events import Emitter
from provision.verify.model import CheckResult

if TYPE_CHECKING:
    from provision.api.site import Site


def perform(
    site: Site,
    run_id: str,
    verb: str,
    planned: Planned,
    options: Options,
    emit: Emitter,
    cancel: Cancel,
    ask: Ask,
    started: float,
) -> RunReport:
    """Do what was planned, write it down, and verify it where the playbook says so."""
    mask = site.redactor.text
    journal = Journal(
        site.journal_path, mask, started=started, file=str(Path(site.inventory.file).absolute())
    )
    emit_guarded = guarded(emit, mask)
    answers = Answers(site.session, cancel, recorder(journal, run_id), run_id)
    baseline = Baseline(site.folder / "baseline.json", site.inventory.file)

    def tell(result: CheckResult) -> None:
        write_check(journal, run_id, result)
        emit_guarded(check_event(run_id, result))

    def verify(checkpoint: Checkpoint | None, cancel: Cancel) -> Verification:
        if checkpoint is not None:
            return pass_checkpoint(site, options, baseline, checkpoint, cancel)
        if any(state.acted_on for state in planned.states.values()):
            answers.forget_replies()
        report = site.run_checks(answers, options, tell)
        baseline.retire(report)
        return verification(report, strict=site.is_strict(options))

    run = Run(
        id=run_id,
        environment=site.environment,
        session=site.session,
        planned=planned,
        emit=emit_guarded,
        cancel=cancel,
        journal=journal,
        ask=lambda question: ask(mask(question)),
        verify=verify,
        remembered=site.queries.recall(verify=verb == "apply"),
        typical_seconds=usually(site.journal_path, site.inventory.name),
    )
    try:
        journal.begin(run_id, planned.plan.inventory, verb, who())
        report = run_masked(run_plan(run, verb), mask)
    finally:
        journal.close()
    if verb == "apply":
        site.remember(options, answers.asked)
    return report
