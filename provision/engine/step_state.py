"""One record a step: what it is, what it wants, what it has done, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.contracts.change import Key
from provision.contracts.driver import Result
from provision.contracts.effect import Effect
from provision.contracts.remedy import Impossible
from provision.contracts.resource import AnswerId, Resource
from provision.contracts.role import Role
from provision.contracts.snapshot import Snapshot
from provision.engine.difference import Difference
from provision.engine.model import PlannedChange, Step, StepId, StepPlan
from provision.engine.next_steps import with_next_step
from provision.engine.questions import Questions
from provision.values.diagnostics import Diagnostic
from provision.values.outcomes import ExitCode, Outcome


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step ended, as the scheduler needs it.

    Args:
        outcome: its outcome.
        reason: in words.
        diagnostics: problems.
        changed: what was done.
        holds_none_back: steps that need this one may begin though it waits.
        deferred: subjects that have to reboot before the outcome is final.
        excused: unreached without fault.
        exit_code: what it adds to the run's exit code, if its outcome says too little.
    """

    outcome: Outcome
    reason: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    changed: tuple[PlannedChange, ...] = ()
    holds_none_back: bool = False
    deferred: frozenset[str] = frozenset()
    excused: bool = False
    exit_code: ExitCode | None = None

    @property
    def ended_well(self) -> bool:
        """Whether all is as desired."""
        return self.outcome in {Outcome.UNCHANGED, Outcome.CHANGED}

    @property
    def stops(self) -> bool:
        """Whether steps that need this one cannot go on."""
        return not (self.ended_well or self.holds_none_back)


def failed(
    diagnostic: Diagnostic, changed: tuple[PlannedChange, ...] = (), exit_code: ExitCode | None = None
) -> StepResult:
    """Return the result of a step that failed; its diagnostic says what to do next."""
    problems = (with_next_step(diagnostic),)
    return StepResult(Outcome.FAILED, diagnostic.summary, problems, changed, exit_code=exit_code)


def inherited_result(step: StepId, result: StepResult) -> StepResult:
    """Return the result of a step that cannot go on because of another one."""
    if result.outcome is Outcome.UNREACHED:
        return StepResult(Outcome.UNREACHED, result.reason, excused=result.excused)
    if result.outcome is Outcome.WAITING:
        return StepResult(Outcome.WAITING, f"waits for {step}")
    cause = result.reason if result.outcome is Outcome.BLOCKED else f"{step} failed"
    return StepResult(Outcome.BLOCKED, cause)


@dataclass(slots=True, eq=False)
class StepState:
    """One step on its way from plan to outcome. The planner fills it, then a worker, then the scheduler.

    Args:
        step: what it is.
        role: its role; None for verify and for the removal of orphans.
        questions: what its role asks, by system.
        optional: systems among them that its role can do without.
        resources: desired states, once expanded.
        plan: what it would do.
        basis: the answers that it was expanded and compared from, by system.
        differences: resources that were acted on, or are waited for.
        failed: resources among them whose action failed: they are no change that was made.
        repaid: effects of earlier runs that it has carried out.
        acted_on: systems that it acted on.
        withheld: effects without consent, and the subjects that they affect.
        deferred: reboots that come later, by system and effect, and the subjects that they affect.
        indeterminate: results that must be looked up.
        by_hand: what a person must do.
        confirmed: what a person said is done.
        voided: subjects of which older answers no longer hold.
        waits: why it stopped before its end, or empty.
        problem: why it failed, if it did.
        cut: a part of it was not begun: the run was told to end, or the connection was cut.
        unprepared: effects, by system, that were left undone: other systems must be prepared for them.
        prepared: effects, by system, for which other systems are prepared.
        result: how it ended; not final while `awaited_reboots` is not empty.
        seconds: how long it ran.
        awaited_reboots: subjects whose reboot its final result waits for.
        interrupted: it was running when the run had to leave.
        position: its place in the order of the plan.
        is_announced: its beginning was reported.
    """

    step: Step
    role: Role | None
    questions: Mapping[str, tuple[Any, ...]]
    resources: tuple[Resource, ...] = ()
    optional: frozenset[str] = frozenset()
    plan: StepPlan = field(init=False)
    basis: Mapping[str, Snapshot] = field(default_factory=dict)

    differences: dict[Key, Difference] = field(default_factory=dict)
    failed: set[Key] = field(default_factory=set)
    repaid: list[PlannedChange] = field(default_factory=list)
    acted_on: dict[str, None] = field(default_factory=dict)
    withheld: dict[Effect, str] = field(default_factory=dict)
    deferred: dict[tuple[str, Effect], str] = field(default_factory=dict)
    indeterminate: dict[Key, Result] = field(default_factory=dict)
    by_hand: dict[Key, Difference] = field(default_factory=dict)
    confirmed: dict[Key, Difference] = field(default_factory=dict)
    voided: dict[str, None] = field(default_factory=dict)
    waits: str = ""
    problem: Diagnostic | None = None
    cut: bool = False
    unprepared: tuple[tuple[str, Effect], ...] = ()
    prepared: set[tuple[str, Effect]] = field(default_factory=set)

    result: StepResult | None = None
    seconds: float = 0.0
    awaited_reboots: set[str] = field(default_factory=set)
    interrupted: bool = False
    position: int = 0
    is_announced: bool = False
    _systems: tuple[tuple[Resource, ...], frozenset[str]] | None = None

    def __post_init__(self) -> None:
        self.plan = StepPlan(self.step)

    @property
    def needs_new_boot(self) -> bool:
        """Whether the answers that it reads are only true after pending reboots."""
        return self.role is not None and self.role.needs_new_boot

    @property
    def systems(self) -> frozenset[str]:
        """All systems that it reads or acts on."""
        if self._systems is None or self._systems[0] is not self.resources:
            systems = frozenset(resource.key.system for resource in self.resources)
            self._systems = self.resources, systems.union(self.questions)
        return self._systems[1]

    @property
    def required(self) -> tuple[str, ...]:
        """The systems that its role asks and cannot do without."""
        return tuple(system for system in self.questions if system not in self.optional)

    def queries(self) -> Questions:
        """Return all questions of its role and its resources."""
        return Questions(self.questions).add_resources(self.resources)

    @property
    def affects(self) -> frozenset[AnswerId]:
        """Answers that what it has done alters for other steps."""
        differences = (*self.differences.values(), *self.confirmed.values())
        return frozenset().union(*(difference.affects for difference in differences))

    @property
    def reboots(self) -> frozenset[str]:
        """Subjects that have to reboot before the outcome is final."""
        return frozenset(self.deferred.values())

    @property
    def changed(self) -> tuple[PlannedChange, ...]:
        """What was done, as data."""
        acted = [
            difference
            for key, difference in self.differences.items()
            if key not in self.failed and not isinstance(difference.remedy, Impossible)
        ]
        return (*acted, *self.confirmed.values(), *self.repaid)
