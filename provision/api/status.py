"""What is up and what drifts: a plan, for the person who wants one line a subject."""

from __future__ import annotations

from dataclasses import replace

from provision.api.events import plan_code
from provision.api.site import Site
from provision.engine.environment import Options
from provision.engine.model import Plan
from provision.report.subject_status import SubjectStatus, subject_states
from provision.values.cancel import Cancel
from provision.values.events import Emitter
from provision.values.outcomes import ExitCode


def status(
    site: Site, options: Options, emit: Emitter, cancel: Cancel
) -> tuple[Plan, tuple[SubjectStatus, ...]]:
    """Plan, and say of each subject whether it answers and what differs; secrets are masked.

    Args:
        site: whose subjects.
        options: targets and steps.
        emit: receives the plan as events.
        cancel: ends it early.

    Raises:
        UsageError, Interrupted: as `Site.plan`.
    """
    plan = site.plan(options, emit, cancel, detailed=True)
    planned = dict.fromkeys(
        step.step.id.subject for step in plan.steps if step.step.id.role in site.environment.roles
    )
    declared = dict.fromkeys(spec.subject for spec in site.environment.systems.values() if spec.subject)
    names = planned if options.targets else declared | planned
    mask = site.redactor.text
    rows = subject_states(plan, site.session, names)
    return plan, tuple(replace(row, reason=mask(row.reason)) for row in rows)


def status_code(plan: Plan) -> ExitCode:
    """Return the exit code of `status`: that of a drift check; what left the inventory is drift, too."""
    code = plan_code(plan, detailed=True)
    return ExitCode.CHANGES if plan.orphans and code is ExitCode.DONE else code
