"""Runs the steps of a plan: each when its predecessors have ended and its systems are free."""

from __future__ import annotations

import heapq
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from provision.contracts.effect import Effect
from provision.engine import workers
from provision.engine.act import execute
from provision.engine.blocking import Blocking
from provision.engine.defect import defect
from provision.engine.graph import Countdown
from provision.engine.hooks import Hooks
from provision.engine.model import StepId, StepReport
from provision.engine.reboot import REBOOT, after_reboot, reboot
from provision.engine.refresh import is_outdated, is_stale
from provision.engine.run import Run
from provision.engine.step_state import StepResult, StepState, failed
from provision.engine.verifying import result_without_checks, verify
from provision.inventory.playbook import VERIFY
from provision.values.cancel import Interrupted
from provision.values.diagnostics import Diagnostic
from provision.values.outcomes import ExitCode, Outcome

T = TypeVar("T")
GRACE = 3.0
"""Seconds that running steps have after the second Ctrl-C."""
WORKERS = 256
"""Steps at a time: more than machines that boot at once, each of which holds one while it is waited for."""


@dataclass(slots=True)
class _Done:
    """A message of a worker.

    Args:
        name: the step, the reboot, or the hook.
        systems: what was busy with it.
        proceed: takes in what it did, on the scheduler's thread.
        error: what ends the run.
    """

    name: StepId
    systems: frozenset[str]
    proceed: Callable[[], None] = lambda: None
    error: BaseException | None = None


class Scheduler:
    """Decides what begins when; all decisions are made on the caller's thread.

    A step that awaits a reboot has ended, but its result is final only after it: until then steps of other
    subjects that come after it wait.

    Args:
        run: what is run, and what all its threads share.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.states = run.planned.states
        self.order = list(self.states.values())
        for position, state in enumerate(self.order):
            state.position = position
        self.countdown = Countdown(state.step for state in self.order)
        self.ready = [self.states[step].position for step in self.countdown.ready()]  # a heap
        self.open = Counter(step.subject for step in self.states)  # steps of a subject that have not ended
        self.busy: Counter[str] = Counter()  # how many running steps act on a system
        self.readers = Counter(name for state in self.order for name in state.questions)  # open steps
        self.running: set[StepId] = set()
        self.provisional: dict[StepId, StepState] = {}  # ended, and their final result awaits a reboot
        self.blocking = Blocking(self.states, self.provisional)
        self.rebooting: set[str] = set()
        self.parked: dict[str, list[StepState]] = {}  # what begins when a system is free
        self.awaiting: dict[str, list[StepState]] = {}  # what begins when a subject has rebooted
        self.hooks = Hooks(run, self._start_worker, self._report_hook)
        self.inbox: queue.SimpleQueue[_Done] = queue.SimpleQueue()

    def go(self) -> bool:
        """Run everything; return whether the user interrupted it.

        Raises:
            BaseException: what a worker raised that is no error of a system (a defect, a killed process).
        """
        try:
            while True:
                self._dispatch()
                if not self.running and not self._resume_waiting():
                    break
                if self.running:
                    self._take(workers.wait(self.inbox, self.run.cancel))
        except Interrupted:
            self._wait_for_last_messages()
            self._leave()
            return True
        cut = any(state.awaited_reboots or state.result is None for state in self.order)
        self._leave()
        return cut or any(result.exit_code is ExitCode.INTERRUPTED for _, result in self._ended())

    def _ended(self) -> list[tuple[StepState, StepResult]]:
        return [(state, state.result) for state in self.states.values() if state.result is not None]

    def _wait_for_last_messages(self) -> None:
        """Give what runs a moment to kill its process groups on the targets; what blocks is left behind."""
        end = time.monotonic() + GRACE
        while self.running and time.monotonic() < end:
            try:
                message = self.inbox.get(timeout=workers.TICK)
            except queue.Empty:
                continue
            if not isinstance(message.error, Interrupted):
                self._take(message)
            else:
                self._note_interrupted(message.name)
                self.running.discard(message.name)

    def _note_interrupted(self, step: StepId) -> None:
        if step in self.states:
            self.states[step].interrupted = True

    def reports(self) -> tuple[StepReport, ...]:
        """Return how all steps ended, in the plan's order."""
        return tuple(
            StepReport(state.step.id, end.outcome, state.seconds, end.changed, end.diagnostics, end.reason)
            for state, end in self._ended()
        )

    # ------------------------------------------------------------ what begins

    def _dispatch(self) -> None:
        while self.ready and len(self.running) < WORKERS and not self.run.cancel.draining:
            self._begin(self.order[heapq.heappop(self.ready)])

    def _begin(self, state: StepState) -> None:
        """Begin a step, end it at once when there is nothing to do, or park it until a system is free."""
        if state.step.id.role == VERIFY and self.busy[VERIFY]:
            self.parked.setdefault(VERIFY, []).append(state)
            return
        result = self._result_without_work(state)
        if result is not None:
            self._announce(state)
            self._end(state, result, 0.0)
            return
        if state.step.id.role == VERIFY:
            self._start(state, frozenset(), lambda: verify(self.run, state))
            return
        if state.needs_new_boot:
            for subject in self._subjects(state):
                if subject in self.run.owed:
                    self.awaiting.setdefault(subject, []).append(state)
                    self._reboot(subject)
                    return
        systems = self._exclusive(state)
        taken = next((name for name in sorted(systems) if self.busy[name]), None)
        if taken is not None:
            self.parked.setdefault(taken, []).append(state)
            self._wake(systems)
            return
        self._start(state, systems, lambda: execute(self.run, state))

    def _subjects(self, state: StepState) -> list[str]:
        return sorted({self.run.session.subject_of(name) for name in state.systems})

    def _queue(self, state: StepState) -> None:
        heapq.heappush(self.ready, state.position)

    def _queue_steps(self, steps: Iterable[StepId]) -> None:
        for step in steps:
            self._queue(self.states[step])

    def _wake(self, systems: Iterable[str]) -> None:
        """Take up one step that waits for each of some systems, where it is free by now."""
        for name in systems:
            waiting = self.parked.get(name)
            if waiting and not self.busy[name]:
                self._queue(waiting.pop(0))

    def _result_without_work(self, state: StepState) -> StepResult | None:
        """Return the result of a step that needs no worker: nothing to do, blocked, or unreached."""
        blocked = self.blocking.result_of(state)
        if blocked is not None:
            return blocked
        if state.step.id.role == VERIFY:
            return result_without_checks(self.states, state)
        plan = state.plan
        subjects = self._subjects(state) if state.needs_new_boot else ()
        withheld = [self.run.withheld[name] for name in subjects if name in self.run.withheld]
        if withheld:
            return StepResult(Outcome.WAITING, withheld[0])
        if plan.unreached and not plan.late:
            diagnostics = () if plan.problem is None else (plan.problem,)
            return StepResult(Outcome.UNREACHED, plan.unreached, diagnostics, excused=plan.excused)
        if plan.problem is not None:
            return failed(plan.problem) if not state.resources else None
        fresh = not is_stale(self.run, state) and not is_outdated(self.run, state)
        return StepResult(Outcome.UNCHANGED) if fresh and not plan.changes else None

    def _exclusive(self, state: StepState) -> frozenset[str]:
        """Return the systems that no other step may act on meanwhile.

        A late step may wait for its subject to boot and settle: systems of others stay free for the steps of
        others meanwhile, and each action on them holds their lock.
        """
        if state.plan.late or is_stale(self.run, state):
            own = self.run.session.of_subject(state.step.subject.name)
            return state.systems.intersection(own)
        acted = {change.key.system for change in state.plan.changes}
        return frozenset(acted) or state.systems

    def _start(self, state: StepState, systems: frozenset[str], call: Callable[[], StepResult]) -> None:
        began = time.monotonic()

        def proceed(result: StepResult) -> None:
            if state.unprepared:
                self._prepare(state)
            else:
                self._end(state, result, time.monotonic() - began)

        self._announce(state)
        self._start_worker(state.step.id, systems, call, proceed, failed)

    def _prepare(self, state: StepState) -> None:
        """Prepare other systems for what a step is about to do; then it is begun again."""
        effects, state.unprepared = state.unprepared, ()

        def resume(withheld: StepResult | None) -> None:
            if withheld is not None:
                self._end(state, replace(withheld, changed=state.changed), 0.0)
                return
            state.prepared.update(effects)
            self._queue(state)

        if self.hooks.prepare(state.step.id, state.position, effects, resume):
            resume(None)

    def _announce(self, state: StepState) -> None:
        step = state.step.id
        if not state.is_announced:
            self.run.step_started(step, self.run.typical_seconds.get(step, 0.0))
        state.is_announced = True

    def _start_worker(
        self,
        name: StepId,
        systems: frozenset[str],
        call: Callable[[], T],
        proceed: Callable[[T], None],
        defective: Callable[[Diagnostic], T],
    ) -> None:
        """Call something on a thread of its own.

        Args:
            name: whose it is.
            systems: what is busy meanwhile.
            call: what to call.
            proceed: takes what it returned, on the scheduler's thread.
            defective: what it would have returned, for a defect.
        """
        self.running.add(name)
        self.busy.update(systems)
        message = _Done(name, systems)

        def work() -> None:
            try:
                message.proceed = partial(proceed, call())
            except Interrupted as error:
                message.error = error
            except Exception as error:  # noqa: BLE001 - a defect ends the step, not the run
                diagnostic = defect("INTERNAL", f"{name}: provision itself failed", name.subject, error)
                message.proceed = partial(proceed, defective(diagnostic))
            except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
                message.error = error
            self.inbox.put(message)

        workers.start(str(name), work)

    # ------------------------------------------------------------ reboots

    def _reboot(self, subject: str) -> bool:
        """Begin the reboot that a subject owes, once its systems are free; return whether it began."""
        if subject in self.rebooting or self.run.cancel.draining:
            return False
        session, name = self.run.session, StepId(REBOOT, subject)
        if any(self.busy[system] for system in session.behind(subject)):
            return False
        first = next(iter(self.run.of_subject(subject)), None)
        position = first.position if first is not None else 0
        resume = partial(self._resume_reboot, subject)
        if not self.hooks.prepare(name, position, tuple(self.run.owed[subject]), resume):
            return bool(self.running)
        systems = session.behind(subject, movable=False)  # the others are reached by another way meanwhile
        self.rebooting.add(subject)
        waiting = [state for state in self.provisional.values() if state.awaited_reboots == {subject}]

        def reboot_and_read_back() -> dict[StepId, StepResult]:
            problem = reboot(self.run, subject)
            if problem:
                return {state.step.id: failed(problem, state.changed) for state in waiting}
            return after_reboot(self.run, waiting)

        repaid = tuple(self.run.owed[subject])
        self._start_worker(
            name,
            systems,
            reboot_and_read_back,
            lambda results: self._end_reboot(subject, repaid, results),
            lambda problem: {state.step.id: failed(problem) for state in waiting},
        )
        return True

    def _resume_reboot(self, subject: str, withheld: StepResult | None) -> None:
        """Begin a reboot that other systems are prepared for, or leave it owed."""
        if withheld is not None:
            self._give_up_reboot(subject, withheld)
        elif self._may_reboot(subject):
            self._reboot(subject)

    def _resume_waiting(self) -> bool:
        """When nothing runs: begin owed reboots, take up all that waits; return whether anything happens."""
        if self.run.cancel.draining:
            return False
        before = len(self._ended())
        for subject in sorted(self.run.owed):
            if not self._may_reboot(subject):
                self._give_up_reboot(subject)
            elif self._reboot(subject):
                return True
        for name in list(self.parked):
            for state in self.parked.pop(name):
                self._queue(state)
        self._dispatch()
        return bool(self.running) or len(self._ended()) > before or self.hooks.resume_waiting()

    def _may_reboot(self, subject: str) -> bool:
        """Whether nothing of a subject failed: a half-changed host is not rebooted."""
        return not any(
            state.result is not None and state.result.outcome in {Outcome.FAILED, Outcome.BLOCKED}
            for state in self.run.of_subject(subject)
        )

    def _give_up_reboot(self, subject: str, withheld: StepResult | None = None) -> None:
        """Leave a reboot owed because something of the subject failed, or another system withholds it."""
        self.run.owed.pop(subject, None)
        reason = f"{subject} still needs a reboot: another step of it failed"
        cause = withheld or StepResult(Outcome.BLOCKED, reason)
        if withheld is not None:
            self.run.withheld[subject] = withheld.reason
        for state in self.awaiting.pop(subject, []):
            self._queue(state)
        for state in list(self.provisional.values()):
            if subject in state.awaited_reboots and (former := state.result) is not None:
                diagnostics = (*former.diagnostics, *cause.diagnostics)
                self._make_final(state, replace(cause, diagnostics=diagnostics, changed=former.changed))
        self.hooks.release(StepId(REBOOT, subject))

    # ------------------------------------------------------------ what ended

    def _take(self, message: _Done) -> None:
        self.running.discard(message.name)
        self.busy.subtract(message.systems)
        self._wake(message.systems)
        if message.error is not None:
            if isinstance(message.error, Interrupted):  # it had begun, so it is no step that never did
                self._note_interrupted(message.name)
            raise message.error
        message.proceed()
        self._try_reboots()

    def _end_reboot(
        self, subject: str, repaid: Iterable[tuple[str, Effect]], results: Mapping[StepId, StepResult]
    ) -> None:
        self.rebooting.discard(subject)
        left = self.run.owed.get(subject, {})
        for reboot_owed in repaid:
            left.pop(reboot_owed, None)
        if not left:
            self.run.owed.pop(subject, None)
        for state in self.awaiting.pop(subject, []):
            self._queue(state)
        for state in list(self.provisional.values()):
            state.awaited_reboots.discard(subject)
            if not state.awaited_reboots and (former := state.result) is not None:
                self._make_final(state, results.get(state.step.id, replace(former, deferred=frozenset())))
        self.hooks.release(StepId(REBOOT, subject))

    def _end(self, state: StepState, result: StepResult, seconds: float) -> None:
        state.result = result
        state.seconds = seconds
        subject = state.step.subject.name
        self.open[subject] -= 1
        self._queue_steps(self.countdown.end(state.step.id))
        state.awaited_reboots = {name for name in result.deferred if name in self.run.owed}
        if state.awaited_reboots:
            self.provisional[state.step.id] = state
        else:
            self._make_final(state, replace(result, deferred=frozenset()) if result.deferred else result)
        self._try_reboots()
        self.hooks.release(state.step.id)

    def _report_hook(self, state: StepState, result: StepResult) -> None:
        self.states[state.step.id] = state
        self._make_final(state, result)

    def _try_reboots(self) -> None:
        """Begin the reboots that steps wait for, and those of subjects whose steps have all ended."""
        for subject in list(self.run.owed):
            if subject in self.rebooting or self.hooks.is_waiting(StepId(REBOOT, subject)):
                continue
            if not self.open[subject] and not self._may_reboot(subject):
                self._give_up_reboot(subject)
            elif not self.open[subject] or subject in self.awaiting:
                self._reboot(subject)

    def _make_final(self, state: StepState, result: StepResult) -> None:
        """Report the final result of a step, and let steps of other subjects go on."""
        self.provisional.pop(state.step.id, None)
        state.awaited_reboots.clear()
        state.result = result
        for diagnostic in result.diagnostics:
            self.run.problem(state.step.id, diagnostic)
        self.run.step_ended(state.step.id, result.outcome, state.seconds, result.reason)
        if state.step.group and result.outcome in state.step.stopping:
            self.blocking.stopped.setdefault(state.step.group, state)
        self._queue_steps(self.countdown.settle(state.step.id))
        if self.order[state.position] is state:  # no hook
            self._free_locks(state)

    def _free_locks(self, state: StepState) -> None:
        """Let other runs act on systems that this one has done with, while it waits for guests and nodes."""
        self.readers.subtract(list(state.questions))
        for name in state.questions:
            if not self.readers[name]:
                self.run.session.release_unused(name)

    def _leave(self) -> None:
        """Give every step without a final result one: the run ends here."""
        for state in self.order:
            if state.awaited_reboots:
                result = StepResult(Outcome.BLOCKED, "interrupted before its reboot", changed=state.changed)
            elif state.result is not None:
                continue
            elif state.step.id in self.running or state.interrupted:
                reason = "interrupted: what it began is looked up by the next run"
                result = StepResult(Outcome.FAILED, reason)
            else:
                result = StepResult(Outcome.BLOCKED, "interrupted before it began")
            self._make_final(state, result)
