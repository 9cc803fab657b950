"""What one plan or run is about, and how its steps become desired states, from the answers at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from provision.contracts.resource import Resource
from provision.contracts.role import Context
from provision.engine.defect import defect
from provision.engine.environment import Environment, Options
from provision.engine.generated import GeneratedValues
from provision.engine.session import Session
from provision.engine.step_state import StepState
from provision.values.errors import ProvisionError


class Expander:
    """Calls the roles of one plan or run.

    Args:
        environment: the site.
        session: the answers.
        options: what the call is about.
        generated: values of this run.
        destroying: whether roles are asked for what must go.
    """

    def __init__(
        self,
        environment: Environment,
        session: Session,
        options: Options,
        generated: GeneratedValues,
        *,
        destroying: bool,
    ) -> None:
        self.environment = environment
        self.session = session
        self.options = options
        self.generated = generated
        self.destroying = destroying

    def context(self, state: StepState, without: frozenset[str] = frozenset()) -> Context:
        """Return all that the step's role may read, the answers of some systems left out."""
        snapshots = self.session.basis(name for name in state.questions if name not in without)
        inventory, subject = self.environment.inventory, state.step.subject
        return Context(inventory, subject, snapshots, self.generated, preview=bool(without))

    def resources(self, state: StepState, without: frozenset[str] = frozenset()) -> tuple[Resource, ...]:
        """Return the desired states of a step (what must go, when destroying).

        Args:
            state: the step.
            without: systems whose answers its role does not get.

        Raises:
            NotYet: a system has no answer that the role needs.
            ProvisionError: the role lacks an answer, with its reason.
        """
        role = state.role
        call = None if role is None else role.retired if self.destroying else role.resources
        name = "retired" if self.destroying else "resources"
        return self.call(state, call, name, without)

    def orphans(self, state: StepState) -> tuple[Resource, ...]:
        """Return what an orphan owner still holds for a role and the inventory no longer declares."""
        call = None if state.role is None else state.role.orphans
        return self.call(state, call, "orphans")

    def call(
        self,
        state: StepState,
        call: Callable[[Context], Sequence[Resource]] | None,
        name: str,
        without: frozenset[str] = frozenset(),
    ) -> tuple[Resource, ...]:
        """Return the resources that a function wants for a step.

        Raises:
            ProvisionError: it lacks an answer, or is defective.
        """
        if call is None:
            return ()
        try:
            return tuple(call(self.context(state, without)))
        except ProvisionError:
            raise
        except Exception as error:
            what = f"the role {state.step.id.role} failed in {name}()"
            untouched = "nothing of this step was touched"
            diagnostic = defect("ROLE_DEFECT", what, state.step.subject.name, error, untouched)
            raise ProvisionError(diagnostic) from error
