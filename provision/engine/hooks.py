"""Effects reach other systems: these are prepared before an effect, and looked after once it is over.

No hook runs under the lock of another system: an effect that needs one is left undone, its worker is freed,
and it is begun again when the hook has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from provision.contracts.effect import Effect
from provision.contracts.hook import Hook, Readiness
from provision.contracts.resource import Resource
from provision.contracts.role import Context
from provision.engine.act import execute
from provision.engine.consent import hook_targets
from provision.engine.model import Step, StepId
from provision.engine.questions import Questions
from provision.engine.run import Run
from provision.engine.session import AwayError
from provision.engine.step_state import StepResult, StepState, failed, inherited_result
from provision.inventory import Subject
from provision.inventory.playbook import VERIFY
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.errors import ProvisionError
from provision.values.outcomes import Outcome

_DECIDE = StepId("hooks", "all")
Effects = tuple[tuple[str, Effect], ...]
"""Effects by system."""
_Resume = Callable[[StepResult | None], None]
_Ended = tuple[StepState, StepResult]


def is_hook(role: str) -> bool:
    """Whether what is reported as a role is a hook, which is no step of the plan."""
    return role.endswith((":before", ":undo", ":after"))


@dataclass(slots=True, eq=False)
class _Request:
    """An effect for which other systems must be prepared.

    Args:
        owner: the step, or the reboot.
        position: of the step in the plan: the first one is served first.
        effects: what is about to happen.
        targets: whom it takes away from which system, by name.
        resume: called with None, or with the result of an effect that is withheld.
        reason: why it waits.
        is_decided: it waits only until `before` has ended.
        is_granted: it may happen.
    """

    owner: StepId
    position: int
    effects: Effects
    targets: Mapping[Hook, Mapping[str, Subject]]
    resume: _Resume
    reason: str = ""
    is_decided: bool = False
    is_granted: bool = False


@dataclass(slots=True, eq=False)
class _Slot:
    """A subject that is away from a system, or will be, until `after` has been brought about.

    Args:
        hook: of the system.
        subject: who is away.
        is_cut_off: the system cannot be reached without the subject, so it cannot be prepared either.
        holders: effects that are not over.
        is_prepared: `before` has ended.
        is_counted: it takes a part of the limit. One whose own steps wait for another effect gives it back.
        is_over: `after` was begun, or a step of the subject failed: then it stays as it is.
    """

    hook: Hook
    subject: Subject
    is_cut_off: bool = False
    holders: set[StepId] = field(default_factory=set)
    is_prepared: bool = False
    is_counted: bool = True
    is_over: bool = False


_Slots = dict[tuple[Hook, str], _Slot]
_Decision = list[_Slot] | StepResult | str
"""The subjects that may go away, the result of an effect that is withheld, or why it waits."""


class Hooks:
    """The hooks of one run; called on the scheduler's thread.

    Args:
        run: the run.
        start: starts a worker, as the scheduler does.
        report: takes in how a hook ended.
    """

    def __init__(
        self, run: Run, start: Callable[..., None], report: Callable[[StepState, StepResult], None]
    ) -> None:
        self._run = run
        self._start = start
        self._report = report
        self._slots: _Slots = {}
        self._requests: dict[StepId, _Request] = {}
        self._is_deciding = False
        self._has_moved = False  # a decision may be another one by now

    def prepare(self, owner: StepId, position: int, effects: Effects, resume: _Resume) -> bool:
        """Return whether some effects may happen now; otherwise `resume` is called later.

        Args:
            owner: the step, or the reboot.
            position: of the step in the plan.
            effects: what is about to happen.
            resume: gets None once it may happen, or the result of what is withheld.
        """
        request = self._requests.get(owner)
        if request is not None and not (request.is_granted and set(effects) - set(request.effects)):
            return request.is_granted
        targets = hook_targets(self._run.environment, self._run.planned.consents, effects)
        if targets:
            self._requests[owner] = _Request(owner, position, effects, targets, resume)
            self._decide()
        return not targets

    def is_waiting(self, owner: StepId) -> bool:
        """Whether a step or a reboot waits for what `prepare` was asked."""
        return owner in self._requests and not self._requests[owner].is_granted

    def release(self, owner: StepId) -> None:
        """Note that a step or a reboot is over, and look after subjects whose steps have all ended."""
        self._requests.pop(owner, None)
        self._has_moved = True
        for slot in self._slots.values():
            slot.holders.discard(owner)
            states = self._run.of_subject(slot.subject.name)
            is_away = slot.holders or slot.subject.name in self._run.owed or not slot.is_prepared
            if is_away or slot.is_over or any(state.result is None for state in states):
                continue
            slot.is_over = True
            # What a failed step left behind is kept from use; the next run goes on there.
            if not any(state.result.stops for state in states if state.result is not None):
                self._look_after(slot)

    def resume_waiting(self) -> bool:
        """When nothing runs: decide again, with less if need be, or withhold all that waits.

        Returns:
            Whether anything happens.
        """
        waiting = self._undecided()
        stuck = [slot for slot in self._slots.values() if slot.is_counted and not slot.is_over]
        if waiting and (self._has_moved or stuck):
            for slot in () if self._has_moved else stuck:
                slot.is_counted = False
            self._decide()
        else:
            for request in waiting:
                self._resume(request, StepResult(Outcome.WAITING, request.reason))
        return bool(waiting)

    def _undecided(self) -> list[_Request]:
        requests = (request for request in self._requests.values() if not request.is_decided)
        return sorted(requests, key=lambda request: request.position)

    def _resume(self, request: _Request, withheld: StepResult | None) -> None:
        request.is_decided = request.is_granted = True
        request.resume(withheld)  # one that is withheld is released there

    # ------------------------------------------------------------ before

    def _decide(self) -> None:
        """Decide on all that waits, in one go: on a thread of its own, for answers are asked."""
        self._has_moved = True
        requests = self._undecided()
        if self._is_deciding or not requests or self._run.cancel.draining:
            return
        self._is_deciding, self._has_moved = True, False
        self._start(
            _DECIDE,
            self._systems(hook for request in requests for hook in request.targets),
            partial(_Decider(self._run, dict(self._slots)).decide, requests),
            self._take_decisions,
            lambda problem: [(request, failed(problem)) for request in requests],
        )

    def _systems(self, hooks: Iterable[Hook]) -> frozenset[str]:
        inventory = self._run.environment.inventory
        return frozenset(system for hook in dict.fromkeys(hooks) for system in hook.questions(inventory))

    def _take_decisions(self, decisions: Iterable[tuple[_Request, _Decision]]) -> None:
        self._is_deciding = False
        for request, decision in () if self._run.cancel.draining else decisions:
            if isinstance(decision, str):
                request.reason = decision
            elif isinstance(decision, StepResult):
                self._resume(request, decision)
            else:
                self._begin_before(request, decision)
        if self._has_moved:
            self._decide()

    def _begin_before(self, request: _Request, slots: Sequence[_Slot]) -> None:
        request.is_decided = True
        for slot in slots:
            self._slots[slot.hook, slot.subject.name] = slot
            slot.holders.add(request.owner)
        # One that is prepared for another effect of this run may be in use again by now.
        todo = [slot for slot in slots if not slot.is_cut_off]
        if not todo:
            self._end_before(request, slots, ([], None))
            return
        self._start(
            StepId(f"{todo[0].hook.name}:before", request.owner.subject),
            self._systems(slot.hook for slot in todo),
            partial(_prepare, self._run, todo),
            partial(self._end_before, request, slots),
            lambda problem: ([], failed(problem)),
        )

    def _end_before(
        self, request: _Request, slots: Sequence[_Slot], ended: tuple[list[_Ended], StepResult | None]
    ) -> None:
        states, withheld = ended
        for state, result in states:
            self._report(state, result)
        for slot in slots:
            if withheld is not None and not slot.is_prepared:
                del self._slots[slot.hook, slot.subject.name]
            slot.is_prepared = True
        self._resume(request, withheld)
        if withheld is not None:
            self._decide()

    # ------------------------------------------------------------ after

    def _look_after(self, slot: _Slot) -> None:
        if not self._run.cancel.draining:
            self._start(
                StepId(f"{slot.hook.name}:after", slot.subject.name),
                self._systems([slot.hook]) | {VERIFY},
                partial(_bring_about, self._run, slot, "after", slot.hook.after),
                partial(self._end_after, slot),
                lambda problem: (_state(self._run, slot, "after"), failed(problem)),
            )

    def _end_after(self, slot: _Slot, ended: _Ended) -> None:
        self._report(*ended)
        if ended[1].ended_well:
            del self._slots[slot.hook, slot.subject.name]
            self._decide()


# ---------------------------------------------------------------- on threads of their own


class _Decider:
    """Decides which effects may happen now.

    Args:
        run: the run.
        slots: who is away already.
    """

    def __init__(self, run: Run, slots: _Slots) -> None:
        self._run = run
        self._inventory = run.environment.inventory
        self._slots = slots
        self._readiness: dict[Hook, Mapping[str, Readiness] | ProvisionError] = {}

    def decide(self, requests: Iterable[_Request]) -> list[tuple[_Request, _Decision]]:
        """Return what becomes of some requests; the first one is served first."""
        return [(request, self._decide(request)) for request in requests]

    def _decide(self, request: _Request) -> _Decision:
        slots: list[_Slot] = []
        skipped: list[str] = []
        for hook, subjects in request.targets.items():
            decision = self._decide_one(request, hook, subjects, skipped)
            if not isinstance(decision, list):
                return decision
            slots += decision
        for line in skipped:
            self._run.progress(request.owner, line)
        self._slots.update(((slot.hook, slot.subject.name), slot) for slot in slots)
        return slots

    def _decide_one(
        self, request: _Request, hook: Hook, subjects: Mapping[str, Subject], skipped: list[str]
    ) -> _Decision:
        slots = {name: slot for (other, name), slot in self._slots.items() if other is hook}
        taken = {name for name, slot in slots.items() if slot.is_counted}
        causes = {self._run.planned.consents.affected_subject(*effect) for effect in request.effects}
        systems = hook.questions(self._inventory)
        is_cut_off = any(self._run.session.is_cut_off(name, causes.union(subjects)) for name in systems)
        readiness = self._ask(hook, next(iter(subjects.values())))
        if isinstance(readiness, ProvisionError):
            reason, others = readiness.diagnostics[0].summary, taken.difference(subjects)
            is_coming = isinstance(readiness, AwayError) and (readiness.away.late or readiness.away.absent)
            if others:
                return f"waits for {_names(others)}: {reason}"
            if hook.needs_answer and not (is_cut_off or is_coming):
                reason = f"{hook.name} is not possible: {reason}"
                return StepResult(Outcome.BLOCKED, reason, readiness.diagnostics)
            skipped.append(f"no {hook.name}: {reason}")
            return []
        down = hook.taken_away(subjects, readiness)
        for name in subjects.keys() - down:
            why = "is not ready already" if name in readiness else "is not part of it yet"
            skipped.append(f"no {hook.name}: {name} {why}")
        held = [slots[name] for name in down if name in slots]
        changing = [slot.subject.name for slot in held if slot.is_over or not slot.is_prepared]
        if changing:
            return f"waits for {_names(changing)}"
        not_ready = {name for name, state in readiness.items() if state is not Readiness.READY}
        away = (not_ready - slots.keys() | taken).difference(down)
        withheld = self._over_limit(request, hook, down, away, taken.difference(down)) if down else None
        if withheld is not None:
            return withheld
        if down and is_cut_off:
            skipped.append(f"no {hook.name}: there is no other way to {_names(systems)}")
        return [slots.get(name) or _Slot(hook, subjects[name], is_cut_off) for name in down]

    def _over_limit(
        self, request: _Request, hook: Hook, down: Sequence[str], away: set[str], taken: set[str]
    ) -> StepResult | str | None:
        """Return why no more may go away, or None."""
        limit = hook.limit(self._inventory)
        if hook.is_excessive(self._inventory, down):
            # No waiting helps: a person decides, once nothing else of this run is away.
            return f"waits for {_names(taken)}" if taken else self._ask_excess(request, hook, down)
        if len(away) + len(down) > limit:
            return f"waits for {_names(away)}: at most {limit} may be away at once"
        would_work = hook.works_without(self._inventory, frozenset(away.union(down)))
        if not would_work and hook.works_without(self._inventory, frozenset(down)):
            return f"waits for {_names(away)}: what is left would not be enough"
        return None

    def _ask_excess(self, request: _Request, hook: Hook, down: Sequence[str]) -> StepResult | None:
        system, effect = request.effects[0]
        excess = Effect(hook.excess, self._run.planned.consents.affected_subject(system, effect))
        if self._run.consent(system, excess):
            return None
        together = " at once" if len(down) > 1 else ""
        summary = f"waits for consent: {excess}: {effect} takes away {_names(down)}{together}"
        remedy = f"run again with --allow {hook.excess}"
        diagnostic = Diagnostic("CONSENT_MISSING", summary, severity=Severity.WARNING, remedy=remedy)
        return StepResult(Outcome.WAITING, summary, (diagnostic,))

    def _ask(self, hook: Hook, subject: Subject) -> Mapping[str, Readiness] | ProvisionError:
        if hook not in self._readiness:
            state = _state(self._run, _Slot(hook, subject), "before")
            try:
                _ask_afresh(self._run, state.questions)
                self._readiness[hook] = hook.readiness(self._run.expander.context(state))
            except ProvisionError as error:
                self._readiness[hook] = error
        return self._readiness[hook]


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _state(run: Run, slot: _Slot, phase: str) -> StepState:
    step = Step(StepId(f"{slot.hook.name}:{phase}", slot.subject.name), slot.subject)
    return StepState(step, None, slot.hook.questions(run.environment.inventory))


def _ask_afresh(run: Run, queries: Mapping[str, Collection[object]]) -> None:
    """Ask other systems: what happened to a subject meanwhile has dropped no answer of theirs."""
    for system, asked in queries.items():
        run.session.ask(system, asked, run.cancel, fresh=True)


def _bring_about(
    run: Run, slot: _Slot, phase: str, resources: Callable[[Context], Sequence[Resource]]
) -> _Ended:
    state = _state(run, slot, phase)
    run.step_started(state.step.id)
    try:
        _ask_afresh(run, state.questions)
        state.resources = run.expander.call(state, resources, phase)
        read = Questions().add_resources(state.resources)
        _ask_afresh(
            run, {name: asked.difference(state.questions.get(name, ())) for name, asked in read.items()}
        )
    except ProvisionError as error:
        return state, failed(error.diagnostics[0], exit_code=error.exit_code)
    return state, execute(run, state)


def _prepare(run: Run, slots: Sequence[_Slot]) -> tuple[list[_Ended], StepResult | None]:
    """Prepare all; where one fails, take back what was done and return why the effect is withheld."""
    ended: list[_Ended] = []
    for index, slot in enumerate(slots):
        ended.append(_bring_about(run, slot, "before", slot.hook.before))
        state, result = ended[-1]
        if not result.ended_well:
            ended += [_bring_about(run, other, "undo", other.hook.undo) for other in slots[: index + 1]]
            return ended, inherited_result(state.step.id, result)
    return ended, None
