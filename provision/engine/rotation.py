"""Steps around a rotation: the new value is kept on its homes until every role that reads it has it.

So a run that is killed anywhere goes on: the next one finds the new value, and what still has the former one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from provision.contracts.generated import GeneratedValue
from provision.contracts.resource import Resource
from provision.engine.expander import Expander
from provision.engine.model import Barrier, Step, StepId, StepPlan
from provision.engine.orphans import step_with
from provision.engine.step_state import StepState
from provision.inventory import Inventory, Subject

BEGIN, FINISH = "begin_rotation", "finish_rotation"


def declared_values(states: Iterable[StepState], inventory: Inventory) -> dict[str, GeneratedValue]:
    """Return the generated values that the roles of some steps read, by name."""
    roles = {state.role.name: state.role for state in states if state.role is not None}
    values = (role.generates(inventory) for role in roles.values() if role.generates is not None)
    return {value.name: value for several in values for value in several}


def rotation_steps(
    expander: Expander, states: Sequence[StepState], ask: Callable[[Iterable[Resource]], None]
) -> tuple[list[StepState], list[StepState]]:
    """Return the steps that keep new values, and those that remove them once all readers ended well.

    Args:
        expander: a run that leaves out steps finishes no rotation.
        states: all other steps; readers of a value wait until it is kept.
        ask: asks what resources look at.
    """
    generated, session, options = expander.generated, expander.session, expander.options
    begins: list[StepState] = []
    finishes: list[StepState] = []
    for value in generated.rotating():
        readers = [
            state
            for state in states
            if value.name in declared_values([state], expander.environment.inventory)
        ]
        subject = Subject("cluster", value.name)
        late = ""
        holders = generated.holders(value)
        if not holders:
            holders = [system for system, _ in value.upcoming if session.snapshot(system) is not None]
            resources = [value.keep(system, generated.value(value.name)) for system in holders]
            ask(resources)
            begin = step_with(Step(StepId(BEGIN, value.name), subject), resources, session)
            begins.append(begin)
            late = f"after {begin.step.id}"
            for reader in readers:
                reader.step = replace(reader.step, needs=reader.step.needs | {begin.step.id})
        if options.targets or options.steps:
            continue
        waits = Barrier(tuple(reader.step.id for reader in readers), len(readers))
        resources = [value.keep(system, None) for system in holders]
        ask(resources)
        finish = step_with(Step(StepId(FINISH, value.name), subject, barriers=(waits,)), resources, session)
        if late:
            finish.plan = StepPlan(finish.step, late=late)
        finishes.append(finish)
    return begins, finishes
