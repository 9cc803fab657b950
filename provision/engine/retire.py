"""Removes what a role did not choose, before what it did choose comes: a switch never has both.

A retire step is inserted where something is to be removed. What exists now goes first, in the order in which
`destroy` removes: ahead of the steps of its subject and of the subjects below it. What is behind a system
that only this run starts goes right before the first step of its subject that reads that system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from provision.contracts.role import Role
from provision.engine.environment import Environment, Options
from provision.engine.model import Barrier, Step, StepId
from provision.engine.session import Session
from provision.engine.step_state import StepState
from provision.inventory import Subject

SUFFIX = ":retire"


def retire_states(environment: Environment, options: Options) -> list[StepState]:
    """Return a step for each subject that may have what a role did not choose, as `destroy` orders them."""
    states: list[StepState] = []
    for entry in reversed(environment.playbook.entries):
        role = environment.roles.get(entry.role)
        if (
            role is None
            or role.unchosen is None
            or role.unchosen_on is None
            or not options.includes(entry.role)
        ):
            continue
        retiring = Role(role.name + SUFFIX, role.declared, role.questions, role.unchosen)
        for subject, questions in role.unchosen_on(environment.inventory).items():
            if options.includes(subject=subject.name):
                step = Step(StepId(retiring.name, subject.name), subject, separate=True)
                optional = frozenset(role.unchosen_optional(environment.inventory, subject))
                states.append(StepState(step, retiring, questions, optional=optional))
    return states


def insert(
    retiring: Sequence[StepState], states: Sequence[StepState], environment: Environment, session: Session
) -> None:
    """Give retire steps, and the steps that come after them, their edges.

    Only the step of the role itself, and steps that name `ROLE:retire` among their needs, need it.
    """
    chains: dict[str, list[StepState]] = {}
    for state in states:
        chains.setdefault(state.step.subject.name, []).append(state)
    existing: tuple[StepId, ...] = ()
    for state in retiring:
        chain = chains.get(state.step.subject.name, [])
        reading = [index for index, later in enumerate(chain) if later.systems & state.systems]
        first = reading[0] if reading else len(chain)
        if all(session.snapshot(system) is not None for system in state.required):
            state.step = replace(state.step, after=frozenset(existing))
            existing = (*existing, state.step.id)
            barrier = Barrier((state.step.id,))
            for subject in _subjects_below(environment, state.step.subject, chains):
                for lower in chains[subject]:
                    lower.step = replace(lower.step, barriers=(*lower.step.barriers, barrier))
        elif first:
            state.step = replace(state.step, after=frozenset({chain[first - 1].step.id}))
        elif chain:
            # The system is brought by what the first step waits for: so does its removal.
            head = chain[0].step
            state.step = replace(state.step, after=head.after, needs=head.needs, barriers=head.barriers)
        else:
            below = _subjects_below(environment, state.step.subject, chains)
            last = (chains[subject][-1].step.id for subject in sorted(below))
            state.step = replace(state.step, after=frozenset(last))
        for later in chain[first:]:
            if _needs(later, state.step.id.role):
                later.step = replace(later.step, needs=later.step.needs | {state.step.id})
            else:
                later.step = replace(later.step, after=later.step.after | {state.step.id})


def _subjects_below(
    environment: Environment, subject: Subject, chains: Mapping[str, Sequence[StepState]]
) -> set[str]:
    """Return the subjects with steps that come before those of a subject, and what comes before these."""
    below: set[str] = set()
    subjects = [subject]
    while subjects:
        for parent in environment.parents(subjects.pop()):
            if parent.name in chains and parent.name not in below:
                below.add(parent.name)
                subjects.append(chains[parent.name][0].step.subject)
    return below


def _needs(state: StepState, retire: str) -> bool:
    role = state.role
    return role is not None and (state.step.id.role + SUFFIX == retire or retire in role.needs)
