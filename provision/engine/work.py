"""One step on its way from plan to outcome: what it wants, how that differs, and what that means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provision.contracts.change import Change, Key, Settles
from provision.contracts.effect import Effect
from provision.contracts.remedy import ByHand, Impossible, Remedy
from provision.contracts.resource import Resource
from provision.contracts.role import Context, Generated
from provision.contracts.snapshot import Snapshot
from provision.engine.consent import Consents
from provision.engine.defect import defect
from provision.engine.expand import Desired
from provision.engine.model import Plan, PlannedChange, Step, StepId, StepPlan
from provision.engine.session import AwayError, Session
from provision.engine.world import Options, World
from provision.values.diagnostics import Diagnostic
from provision.values.errors import ProvisionError


def owed(seen: Snapshot, *, destroying: bool) -> tuple[Effect, ...]:
    """Return the effects that earlier runs left; what a boot has satisfied, the driver has left out already.

    Removing things needs no reboot that an apply left owing: nobody who destroys has asked for it.
    """
    effects = (each.effect for each in seen.pending)
    return tuple(dict.fromkeys(each for each in effects if not (destroying and each.cls.reboots)))


def debt(system: str, effect: Effect) -> PlannedChange:
    """Return an effect that an earlier run left on a system as a change of its own."""
    return PlannedChange(Key(system, "pending", str(effect)), (), (effect,), pending=True)


def comes_by_itself(changes: Sequence[Change]) -> bool:
    """Tell whether changes come true by themselves, within their deadlines."""
    return bool(changes) and all(each.settles is Settles.WITHIN for each in changes)


@dataclass(frozen=True, slots=True)
class Difference:
    """A resource that differs, and its remedy."""

    resource: Resource
    changes: tuple[Change, ...]
    remedy: Remedy

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What must happen after it."""
        return () if isinstance(self.remedy, ByHand | Impossible) else self.remedy.effects

    @property
    def risks(self) -> tuple[Effect, ...]:
        """What must be allowed before it."""
        return () if isinstance(self.remedy, ByHand | Impossible) else self.remedy.risks

    @property
    def births(self) -> str:
        """The subject that it brings into being, as its remedy declares; never told by names alike."""
        return "" if isinstance(self.remedy, ByHand | Impossible) else self.remedy.births

    def planned(self) -> PlannedChange:
        """Return it as data."""
        by_hand = self.remedy if isinstance(self.remedy, ByHand) else None
        return PlannedChange(
            self.resource.key, self.changes, self.effects, self.risks, by_hand, births=self.births
        )


def difference(resource: Resource, seen: Snapshot) -> Difference | None:
    """Return how a resource differs from what is seen, or None."""
    changes = resource.changes(seen)
    return Difference(resource, changes, resource.fix(seen)) if changes else None


@dataclass(slots=True)
class Work:
    """One step on its way from plan to outcome.

    Args:
        step: what it is.
        role: its module; None for verify and for the removal of orphans.
        questions: facts that it needs, by system.
        resources: desired states, once expanded.
        plan: what it would do.
        epochs: at which epochs of its systems it was expanded.
        acts: how often something had been done on them then.
    """

    step: Step
    role: Any
    questions: Mapping[str, tuple[Any, ...]]
    resources: tuple[Resource, ...] = ()
    plan: StepPlan = field(init=False)
    epochs: dict[str, int] = field(default_factory=dict)
    acts: int = 0

    def __post_init__(self) -> None:
        self.plan = StepPlan(self.step)

    @property
    def new_boot(self) -> bool:
        """Whether its facts are only true after pending reboots."""
        return bool(getattr(self.role, "NEW_BOOT", False))

    @property
    def systems(self) -> frozenset[str]:
        """All systems that it looks at or acts on."""
        return frozenset(self.questions).union(each.key.system for each in self.resources)


@dataclass(slots=True)
class Planned:
    """A plan with what the run needs to keep it.

    `home` is as in `World`; `seconds` is how long it took to ask and plan.
    """

    plan: Plan
    works: dict[StepId, Work]
    desired: Desired
    consents: Consents
    generated: Generated
    options: Options
    destroying: bool = False
    home: Mapping[str, Diagnostic] = field(default_factory=dict)
    seconds: float = 0.0


class Expander:
    """Turns a step into desired states, from the answers at hand."""

    def __init__(self, world: World, session: Session, generated: Generated, *, destroying: bool) -> None:
        self.world = world
        self.session = session
        self.generated = generated
        self.destroying = destroying

    def context(self, work: Work) -> Context:
        """Return all that the step's role may look at."""
        found = {name: self.session.snapshot(name) for name in work.questions}
        snapshots = {name: snapshot for name, snapshot in found.items() if snapshot is not None}
        return Context(self.world.inventory, work.step.subject, snapshots, self.generated)

    def resources(self, work: Work) -> tuple[Resource, ...]:
        """Return the desired states of a step (those that must go, when destroying).

        Raises:
            ProvisionError: the role cannot tell, with its reason.
        """
        return self._called(work, "retired" if self.destroying else "resources")

    def orphans(self, work: Work) -> tuple[Resource, ...]:
        """Return what a keeper has of a role and nobody declares any more."""
        return self._called(work, "orphans")

    def _called(self, work: Work, member: str) -> tuple[Resource, ...]:
        try:
            found: tuple[Resource, ...] = tuple(getattr(work.role, member)(self.context(work)))
        except ProvisionError:
            raise
        except Exception as error:
            what = f"the role {work.step.id.role} failed in {member}()"
            untouched = "nothing of this step was touched"
            told = defect("ROLE_DEFECT", what, work.step.subject.name, error, untouched)
            raise ProvisionError(told) from error
        return found


def away(step: Step, error: ProvisionError, *, moved: bool) -> StepPlan:
    """Return the plan of a step whose system gives no answers.

    Args:
        step: the step.
        error: why.
        moved: whether an earlier step of this run may change that.
    """
    if isinstance(error, AwayError):
        if error.away.late and moved:
            return StepPlan(step, late=error.away.reason)
        return StepPlan(step, unreached=error.away.reason, excused=error.away.excused)
    return StepPlan(step, unreached=error.diagnostics[0].summary)
