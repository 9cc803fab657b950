"""How a site is verified: the shipped checks, whom they excuse, and what their report means for a run."""

from __future__ import annotations

from collections.abc import Callable, Collection

from provision.api.check_session import Answers
from provision.api.domains import check_folders
from provision.engine.environment import Environment, Options, Verification
from provision.engine.session import AwayError, Session
from provision.inventory import Inventory
from provision.verify.model import CheckOutcome, CheckResult, Silence, VerifyReport


def verified(environment: Environment, targets: Collection[str]) -> frozenset[str]:
    """Return the systems that are verified: of targets (all if none), but of nothing that is not managed."""
    return frozenset(
        name
        for name, spec in environment.systems.items()
        if environment.inventory.manages(spec.subject) and (not targets or spec.subject in targets)
    )


def shipped_checks(
    inventory: Inventory,
    answers: Answers,
    excused: frozenset[str],
    options: Options,
    on_result: Callable[[CheckResult], None],
    names: Collection[str] = (),
) -> VerifyReport:
    """Run the checks of all domains, or of those with these names."""
    from provision.verify.plugin import Trials  # noqa: PLC0415 - imports pytest
    from provision.verify.runner import run_checks  # noqa: PLC0415 - the same

    trials = Trials(answers, answers.run) if options.pods and inventory.verify.pods else None
    return run_checks(
        inventory,
        answers,
        check_folders(names),
        excused=excused,
        targets=options.targets,
        on_result=on_result,
        trials=trials,
        is_whole=not names,
    )


def excused(session: Session) -> frozenset[str]:
    """Return the subjects that are away without fault."""
    return frozenset(
        system.spec.subject
        for system in session.systems.values()
        if isinstance(system.error, AwayError) and system.error.away.excused
    )


def silent(session: Session, inventory: Inventory) -> tuple[Silence, ...]:
    """Return why managed systems gave no answers at all; one that is away as others say is none of them."""
    errors = (system.error for system in session.systems.values() if inventory.manages(system.spec.subject))
    return tuple(
        dict.fromkeys(
            Silence(error.diagnostics[0], error.exit_code)
            for error in errors
            if error is not None and not isinstance(error, AwayError)
        )
    )


def verification(report: VerifyReport, *, strict: bool) -> Verification:
    """Return what a report means for the run whose last step it is."""
    counts = {outcome: report.count(outcome) for outcome in CheckOutcome}
    summary = ", ".join(f"{number} {outcome}" for outcome, number in counts.items() if number) or "no checks"
    return Verification(report.exit_code(strict=strict), summary, report)
