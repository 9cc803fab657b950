"""Turns a step into desired states, from the answers at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from provision.contracts.resource import Resource
from provision.contracts.role import Context, Generated
from provision.engine.defect import defect
from provision.engine.model import Step, StepPlan
from provision.engine.session import AwayError, Session
from provision.engine.step_state import StepState
from provision.engine.world import World
from provision.values.errors import ProvisionError


class Expander:
    """Calls the roles of one plan or run.

    Args:
        world: the site.
        session: the answers.
        generated: values of this run.
        destroying: whether roles are asked for what must go.
    """

    def __init__(self, world: World, session: Session, generated: Generated, *, destroying: bool) -> None:
        self.world = world
        self.session = session
        self.generated = generated
        self.destroying = destroying

    def context(self, state: StepState) -> Context:
        """Return all that the step's role may read."""
        snapshots = {
            name: snapshot
            for name in state.questions
            if (snapshot := self.session.snapshot(name)) is not None
        }
        return Context(self.world.inventory, state.step.subject, snapshots, self.generated)

    def resources(self, state: StepState) -> tuple[Resource, ...]:
        """Return the desired states of a step (what must go, when destroying).

        Raises:
            ProvisionError: the role lacks an answer, with its reason.
        """
        role = state.role
        call = None if role is None else role.retired if self.destroying else role.resources
        return self._call(state, call, "retired" if self.destroying else "resources")

    def orphans(self, state: StepState) -> tuple[Resource, ...]:
        """Return what an orphan owner still holds for a role and the inventory no longer declares."""
        call = None if state.role is None else state.role.orphans
        return self._call(state, call, "orphans")

    def _call(
        self, state: StepState, call: Callable[[Context], Sequence[Resource]] | None, name: str
    ) -> tuple[Resource, ...]:
        if call is None:
            return ()
        try:
            return tuple(call(self.context(state)))
        except ProvisionError:
            raise
        except Exception as error:
            what = f"the role {state.step.id.role} failed in {name}()"
            untouched = "nothing of this step was touched"
            diagnostic = defect("ROLE_DEFECT", what, state.step.subject.name, error, untouched)
            raise ProvisionError(diagnostic) from error


def unreached_plan(step: Step, error: ProvisionError, *, moved: bool) -> StepPlan:
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
