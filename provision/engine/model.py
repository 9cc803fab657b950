"""Steps and plans as data: what the engine decided, for renderers and for the saved plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from provision.contracts.change import Change, Key
from provision.contracts.effect import Effect
from provision.contracts.remedy import ByHand
from provision.contracts.resource import AnswerId
from provision.inventory import Subject
from provision.values.consent import Consent
from provision.values.diagnostics import Diagnostic
from provision.values.outcomes import Outcome


@dataclass(frozen=True, slots=True, order=True)
class StepId:
    """One role for one subject, or `verify` for all."""

    role: str
    subject: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.role}"


@dataclass(frozen=True, slots=True, eq=False)
class Barrier:
    """Steps that must all have ended before others begin.

    Steps that wait for the same steps share one barrier, so n steps behind n cost 2 n edges and not n * n.

    Args:
        steps: the steps that must have ended.
        needed: how many of them must have ended well; with fewer, the steps behind the barrier are blocked.
            0: only the order counts.
    """

    steps: tuple[StepId, ...]
    needed: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verification before or after steps that act on one subject after the other.

    Args:
        steps: those that it guards: all of them before the first one, one of them after it.
        is_before: whether it comes before them.
        way_back: what a person reads where it is not passed, or empty.
        subject: who is changed next, or was changed just now; known once it is reached.
    """

    steps: tuple[StepId, ...]
    is_before: bool = False
    way_back: str = ""
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """A unit of scheduling and reporting.

    Args:
        id: role and subject.
        subject: the inventory item.
        after: steps that must have ended, whatever their outcome.
        needs: steps whose failure blocks this one.
        barriers: further steps to wait for, shared with other steps.
        gate: a question to a person, or empty.
        group: name of a group whose steps stop when one of them fails (`stop_on_failure`), or empty.
        stopping: outcomes of this step that stop the rest of its group.
        separate: its desired states unite with those of no other step, and leave a key to who wants it.
        checkpoint: what a verification guards; None for the one of the whole site, and for roles.
    """

    id: StepId
    subject: Subject
    after: frozenset[StepId] = frozenset()
    needs: frozenset[StepId] = frozenset()
    barriers: tuple[Barrier, ...] = ()
    gate: str = ""
    group: str = ""
    stopping: frozenset[Outcome] = frozenset()
    separate: bool = False
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One resource that differs.

    Args:
        key: which resource.
        changes: field-level differences.
        effects: what must happen after the fix.
        risks: consents that the fix itself needs.
        by_hand: what a person must do, if the engine cannot.
        pending: True when only effects of an earlier run are owed.
        creates: the subject that the fix makes, or makes again; empty for nearly all.
        affects: answers that it alters for other steps.
    """

    key: Key
    changes: tuple[Change, ...]
    effects: tuple[Effect, ...] = ()
    risks: tuple[Effect, ...] = ()
    by_hand: ByHand | None = None
    pending: bool = False
    creates: str = ""
    affects: frozenset[AnswerId] = field(default=frozenset(), repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step would do now.

    Args:
        step: the step.
        changes: resources that differ; of a late step, what it brings to systems that do not exist yet.
        unchanged: how many resources are as desired.
        late: after which step it can be planned (`after SUBJECT: ROLE`), or empty.
        unreached: why its system does not answer, or empty.
        excused: unreached without fault (off by hand).
        problem: why expanding it failed, if it did.
    """

    step: Step
    changes: tuple[PlannedChange, ...] = ()
    unchanged: int = 0
    late: str = ""
    unreached: str = ""
    excused: bool = False
    problem: Diagnostic | None = None


@dataclass(frozen=True, slots=True)
class ConsentNeed:
    """An effect of the plan, whom it hits, and what the policy says."""

    system: str
    effect: Effect
    consent: Consent


@dataclass(frozen=True, slots=True)
class Plan:
    """The promise.

    Args:
        inventory: its name.
        steps: in the order in which they would begin.
        risks: all effects with their consent, highest risk first.
        refusals: preflight errors; any of them refuses the run (exit 4).
        warnings: preflight warnings and rules whose answer is not known yet.
        orphans: managed things that left the inventory.
    """

    inventory: str
    steps: tuple[StepPlan, ...]
    risks: tuple[ConsentNeed, ...] = ()
    refusals: tuple[Diagnostic, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    orphans: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Nothing to change, nothing late, nothing unreached."""
        return all(not (step.changes or step.late or step.unreached or step.problem) for step in self.steps)


@dataclass(frozen=True, slots=True)
class StepReport:
    """How one step ended."""

    id: StepId
    outcome: Outcome
    seconds: float = 0.0
    changed: tuple[PlannedChange, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RunReport:
    """How a run ended; `exit_code` follows from it by precedence.

    Args:
        run: id of the run.
        inventory: its name.
        steps: every step.
        consents_missing: effects that wait for consent.
        trips: executions or requests by system.
        interrupted: whether the user ended it.
        seconds: wall time.
        verification: report of the playbook's verification (provision.verify.model.VerifyReport), or None.
    """

    run: str
    inventory: str
    steps: tuple[StepReport, ...]
    consents_missing: tuple[ConsentNeed, ...] = ()
    trips: dict[str, int] = field(default_factory=dict)
    interrupted: bool = False
    seconds: float = 0.0
    exit_code: int = 0
    verification: object = None
