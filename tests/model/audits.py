"""Audits of a run on models: answers that it holds and that are no longer true, and reads without an edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.contracts.snapshot import Snapshot
from provision.dhcp.dnsmasq_files import LEASE, Row
from provision.engine.graph import Ancestry
from provision.engine.model import StepId
from provision.engine.planned import Planned
from provision.engine.session import Session
from provision.engine.step_state import StepState
from provision.values.events import Event, StepEnded

Fresh = Callable[[str, frozenset[Any]], Snapshot]
"""Asks the model of a system anew, past the session."""


def role_queries(state: StepState) -> Iterator[tuple[str, Any]]:
    """Yield what a step's role reads and its own resources do not ask."""
    for system, queries in state.questions.items():
        own = {
            query
            for resource in state.resources
            if resource.key.system == system
            for query in resource.queries()
        }
        for query in queries:
            if query not in own:
                yield system, query


@dataclass
class AnswersAudit:
    """After every step: what later roles read is held as it is, or they were planned as late.

    Steps must run one at a time.

    Args:
        session: of the run.
        planned: the plan, once it is made.
        fresh: asks a model.
    """

    session: Session
    planned: Callable[[], Planned]
    fresh: Fresh
    findings: list[str] = field(default_factory=list)
    _last: dict[str, Mapping[Any, object]] = field(default_factory=dict)
    _boots: dict[str, str] = field(default_factory=dict)

    def emit(self, event: Event) -> None:
        """Look at all answers when a step has ended."""
        states = self.planned().states if isinstance(event, StepEnded) else {}
        ended = StepId(event.role, event.subject) if isinstance(event, StepEnded) else None
        if ended is None or ended not in states:
            return
        waiting = [state for state in states.values() if state.result is None]
        altered = self._altered(states)
        ancestry = Ancestry(state.step for state in states.values())
        for state in waiting:
            for system, query in role_queries(state):
                snapshot = self.session.snapshot(system)
                if snapshot is None or query not in snapshot:
                    continue
                if _lasting(snapshot[query]) != _lasting(self._last[system][query]):
                    self.findings.append(f"{ended}: the answer of {system} to {query} is not true")
                before = ancestry.nearest(state.step.id, {ended}) is not None
                if before and not state.plan.late and (system, query) in altered:
                    self.findings.append(f"{ended} alters {query} of {system}; {state.step.id} was not late")

    def _altered(self, states: Mapping[StepId, StepState]) -> set[tuple[str, Any]]:
        """Ask all models, and return the answers that are others than after the last step."""
        queries: dict[str, set[Any]] = {}
        for state in states.values():
            for system, asked in state.questions.items():
                queries.setdefault(system, set()).update(asked)
        altered = set()
        for system, wanted in queries.items():
            if self.session.snapshot(system) is None:
                self._last.pop(system, None)
                continue
            fresh = self.fresh(system, frozenset(wanted))
            answers = fresh.answers
            # What only a boot altered makes late who needs the new boot; all others are planned again.
            booted = self._boots.get(system, fresh.boot_id) != fresh.boot_id
            self._boots[system] = fresh.boot_id
            former = self._last.get(system) or {
                query: answer
                for state in states.values()
                for query, answer in state.basis.get(system, Snapshot(system)).answers.items()
            }
            altered |= {
                (system, query)
                for query, answer in answers.items()
                if query in former and _lasting(former[query]) != _lasting(answer) and not booted
            }
            self._last[system] = answers
        return altered


def _lasting(answer: object) -> object:
    """Return an answer without leases: a router gives them at any time, and who waits for one asks again."""
    if isinstance(answer, tuple):
        return tuple(row for row in answer if not (isinstance(row, Row) and row.sort == LEASE))
    return answer


def reads_without_edge(planned: Planned, session: Session) -> list[str]:
    """Return steps that read the system of another subject with no edge to its steps that write there."""
    states = list(planned.states.values())
    ancestry = Ancestry(state.step for state in states)
    writers: dict[str, set[StepId]] = {}
    for state in states:
        for resource in state.resources:
            if session.subject_of(resource.key.system) == state.step.subject.name:
                writers.setdefault(resource.key.system, set()).add(state.step.id)
    findings = []
    for state in states:
        for system in dict.fromkeys(system for system, _ in role_queries(state)):
            if session.subject_of(system) == state.step.subject.name:
                continue
            for writer in writers.get(system, ()):
                step = state.step.id
                if not (ancestry.nearest(step, {writer}) or ancestry.nearest(writer, {step})):
                    findings.append(f"{step} reads {system}, which {writer} writes, without an edge")
    return findings
