"""Runs the steps of a plan: each when its predecessors have ended and its systems are free."""

from __future__ import annotations

import heapq
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from provision.engine import workers
from provision.engine.act import execute, is_stale
from provision.engine.defect import defect
from provision.engine.expand import VERIFY
from provision.engine.graph import predecessors
from provision.engine.model import ConsentNeed, StepId, StepReport
from provision.engine.reboot import after_reboot, reboot
from provision.engine.run import Ending, Run, failed
from provision.engine.work import Work
from provision.values.cancel import Interrupted
from provision.values.diagnostics import Diagnostic
from provision.values.effects import Consent, Effect
from provision.values.events import StepEnded, StepStarted
from provision.values.outcomes import ExitCode, Outcome

GRACE = 3.0
"""Seconds that running steps have after the second Ctrl-C."""
WORKERS = 256
"""Steps at a time: more than machines that boot at once, each of which holds one while it is waited for."""
_UNPROVEN = {
    Outcome.FAILED: "failed",
    Outcome.BLOCKED: "blocked",
    Outcome.UNREACHED: "unreached",
    Outcome.WAITING: "waiting",
}
"""Outcomes of steps after which the site is not verified, the first one is told."""


@dataclass(slots=True)
class _Done:
    """A message of a worker: what it did, and its endings or what it raised."""

    name: StepId
    systems: frozenset[str]
    endings: dict[StepId, Ending] = field(default_factory=dict)
    error: BaseException | None = None
    rebooted: str = ""
    repaid: list[tuple[str, Effect]] = field(default_factory=list)


class Scheduler:
    """Decides what begins when; all decisions are made on the caller's thread."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.works = run.planned.works
        self.position = {step: index for index, step in enumerate(self.works)}
        self.left = dict.fromkeys(self.works, 0)
        self.followers: dict[StepId, list[StepId]] = {step: [] for step in self.works}
        for step, work in self.works.items():
            for each in predecessors(work.step):
                if each in self.works:
                    self.left[step] += 1
                    self.followers[each].append(step)
        self.open: dict[str, int] = {}
        for work in self.works.values():
            self.open[work.step.subject.name] = self.open.get(work.step.subject.name, 0) + 1
        self.ready = [self.position[step] for step, count in self.left.items() if count == 0]
        heapq.heapify(self.ready)
        self.order = list(self.works)
        self.parked: dict[str, list[StepId]] = {}
        self.awaiting: dict[str, list[StepId]] = {}
        self.busy: dict[str, int] = {}
        self.running: dict[StepId, float] = {}
        self.rebooting: set[str] = set()
        self.cut: set[StepId] = set()
        self.endings: dict[StepId, Ending] = {}
        self.seconds: dict[StepId, float] = {}
        self.deferred: dict[str, list[StepId]] = {}
        self.held: dict[StepId, list[StepId]] = {}
        self.awaits: dict[StepId, set[str]] = {}
        self.inbox: queue.SimpleQueue[_Done] = queue.SimpleQueue()

    def go(self) -> bool:
        """Run everything; return whether the user interrupted it.

        Raises:
            BaseException: what a worker raised that is no error of a system (a defect, a killed process).
        """
        try:
            while True:
                self._dispatch()
                if not self.running and not self._unstick():
                    break
                if self.running:
                    self._take(workers.wait(self.inbox, self.run.cancel))
        except Interrupted:
            self._last_words()
            self._leave()
            return True
        cut = any(step not in self.endings for step in self.works)
        self._leave()
        return cut or any(each.exit_code is ExitCode.INTERRUPTED for each in self.endings.values())

    def _last_words(self) -> None:
        """Give what runs a moment to kill its process groups on the targets; what blocks is left behind."""
        end = time.monotonic() + GRACE
        while self.running and time.monotonic() < end:
            try:
                done = self.inbox.get(timeout=workers.TICK)
            except queue.Empty:
                continue
            if not isinstance(done.error, Interrupted):
                self._take(done)
            else:
                self.cut.add(done.name)
                self.running.pop(done.name)

    def reports(self) -> tuple[StepReport, ...]:
        """Return how all steps ended, in the plan's order."""
        return tuple(
            StepReport(
                step,
                ending.outcome,
                self.seconds.get(step, 0.0),
                ending.changed,
                ending.diagnostics,
                ending.reason,
            )
            for step in self.works
            if (ending := self.endings.get(step)) is not None
        )

    # ------------------------------------------------------------ what begins

    def _dispatch(self) -> None:
        while self.ready and len(self.running) < WORKERS and not self.run.cancel.draining:
            self._begin(self.works[self.order[heapq.heappop(self.ready)]])

    def _begin(self, work: Work) -> None:
        """Begin a step, end it at once when there is nothing to do, or park it until a system is free."""
        ending = self._without_work(work)
        if ending is not None:
            self._started(work)
            self._end(work.step.id, ending, 0.0)
            return
        if work.step.id.role == VERIFY:
            self._start(work, frozenset(), self._verify)
            return
        if work.new_boot:
            for subject in sorted({self.run.session.subject_of(name) for name in work.systems}):
                if subject in self.run.owed:
                    self.awaiting.setdefault(subject, []).append(work.step.id)
                    self._reboot(subject)
                    return
        systems = self._exclusive(work)
        taken = next((name for name in sorted(systems) if self.busy.get(name)), None)
        if taken is not None:
            self.parked.setdefault(taken, []).append(work.step.id)
            self._wake(systems)
            return
        self._start(work, systems, lambda each: {each.step.id: execute(self.run, each)})

    def _wake(self, systems: Iterable[str]) -> None:
        """Take up one step that waits for each of some systems, where it is free by now."""
        for name in systems:
            waiting = self.parked.get(name)
            if waiting and not self.busy.get(name):
                heapq.heappush(self.ready, self.position[waiting.pop(0)])

    def _without_work(self, work: Work) -> Ending | None:
        """Return the ending of a step that needs no worker: nothing to do, blocked, or unreached."""
        if work.step.id.role == VERIFY:
            return self._unverified()
        blocked = self._blocked(work)
        if blocked is not None:
            return blocked
        plan = work.plan
        need = self._withheld(work) if work.new_boot else None
        if need is not None:
            what = "waits for" if need.consent is Consent.ALLOW else "waits for consent:"
            return Ending(Outcome.WAITING, f"{what} {need.effect} of {need.system}", stops=True)
        if plan.unreached and not plan.late:
            told = () if plan.problem is None else (plan.problem,)
            return Ending(Outcome.UNREACHED, plan.unreached, told, stops=True, excused=plan.excused)
        if plan.problem is not None:
            return failed(plan.problem) if not work.resources else None
        fresh = not is_stale(self.run, work) and self.run.session.deeds(work.systems) == work.deeds
        return Ending(Outcome.UNCHANGED) if fresh and not plan.changes else None

    def _withheld(self, work: Work) -> ConsentNeed | None:
        """Return the reboot without consent that a step would need."""
        subjects = sorted({self.run.session.subject_of(name) for name in work.systems})
        return next((self.run.withheld[each] for each in subjects if each in self.run.withheld), None)

    def _blocked(self, work: Work) -> Ending | None:
        for each in sorted(work.step.needs):
            ending = self.endings.get(each)
            if ending is None or not ending.stops:
                continue
            if ending.outcome is Outcome.UNREACHED:
                return Ending(Outcome.UNREACHED, ending.reason, stops=True, excused=ending.excused)
            if ending.outcome is Outcome.WAITING:
                return Ending(Outcome.WAITING, f"waits for {each}", stops=True)
            root = ending.reason if ending.outcome is Outcome.BLOCKED else f"{each} failed"
            return Ending(Outcome.BLOCKED, root, stops=True)
        return None

    def _unverified(self) -> Ending | None:
        """Return why the site is not verified: failed checks would only repeat what steps said before."""
        count = Counter(ending.outcome for ending in self.endings.values() if not ending.excused)
        for outcome, verb in _UNPROVEN.items():
            if count[outcome]:
                what = f"{count[outcome]} step{'s' * (count[outcome] > 1)} {verb}"
                result = Outcome.WAITING if outcome is Outcome.WAITING else Outcome.BLOCKED
                return Ending(result, f"not verified: {what}; `provision verify` tells what is true now")
        return None

    def _exclusive(self, work: Work) -> frozenset[str]:
        """Return the systems that no other step may act on meanwhile.

        A late step may wait for its subject to boot and settle: systems of others stay free for the steps of
        others meanwhile, and each action on them holds their lock.
        """
        if work.plan.late or is_stale(self.run, work):
            own = self.run.session.of_subject(work.step.subject.name)
            return work.systems.intersection(own)
        acted = {each.key.system for each in work.plan.changes}
        return frozenset(acted) or work.systems

    def _start(
        self, work: Work, systems: frozenset[str], call: Callable[[Work], dict[StepId, Ending]]
    ) -> None:
        step = work.step.id
        self._started(work)
        self._occupy(step, systems)

        def perform() -> None:
            done = _Done(step, systems)
            try:
                done.endings = call(work)
            except Interrupted as error:
                done.error = error
            except Exception as error:  # noqa: BLE001 - a defect ends the step, not the run
                done.endings = {step: failed(_defect(step, error))}
            except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
                done.error = error
            self.inbox.put(done)

        workers.start(str(step), perform)

    def _started(self, work: Work) -> None:
        step = work.step.id
        self.run.emit(
            StepStarted(
                run=self.run.id, subject=step.subject, role=step.role, usually=self.run.usual.get(step, 0.0)
            )
        )

    def _occupy(self, name: StepId, systems: frozenset[str]) -> None:
        self.running[name] = time.monotonic()
        for system in systems:
            self.busy[system] = self.busy.get(system, 0) + 1

    def _verify(self, work: Work) -> dict[StepId, Ending]:
        if self.run.verify is None:
            return {work.step.id: Ending(Outcome.UNCHANGED, "no checks")}
        gate = work.step.gate
        if gate and self.run.question(gate) is not True:
            return {work.step.id: Ending(Outcome.WAITING, f"waits for a person: {gate}")}
        found = self.run.verify(self.run.cancel)
        self.run.verification = found.detail
        outcome = Outcome.UNCHANGED if found.exit_code is ExitCode.DONE else Outcome.FAILED
        return {work.step.id: Ending(outcome, found.summary, exit_code=found.exit_code)}

    # ------------------------------------------------------------ reboots

    def _reboot(self, subject: str) -> bool:
        """Begin the reboot that a subject owes, once its systems are free; tell whether it began."""
        if subject in self.rebooting or self.run.cancel.draining:
            return False
        systems = self._behind(subject)
        if any(self.busy.get(name) for name in systems):
            return False
        self.rebooting.add(subject)
        name = StepId("reboot", subject)
        self._occupy(name, systems)
        deferred = [step for step in self.deferred.get(subject, ()) if self.awaits[step] == {subject}]
        owed = list(self.run.owed[subject])

        def perform() -> None:
            done = _Done(name, systems, rebooted=subject, repaid=owed)
            try:
                problem = reboot(self.run, subject)
                if problem:
                    done.endings = {step: failed(problem, self.endings[step].changed) for step in deferred}
                else:
                    works = [self.works[step] for step in deferred]
                    done.endings = after_reboot(self.run, works, self.endings)
            except Interrupted as error:
                done.error = error
            except Exception as error:  # noqa: BLE001 - as above
                done.endings = {step: failed(_defect(name, error)) for step in deferred}
            except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
                done.error = error
            self.inbox.put(done)

        workers.start(str(name), perform)
        return True

    def _behind(self, subject: str) -> frozenset[str]:
        return self.run.session.behind(subject)

    def _unstick(self) -> bool:
        """When nothing runs: begin owed reboots, take up all that waits; tell whether anything happens."""
        if self.run.cancel.draining:
            return False
        for subject in sorted(self.run.owed):
            if self._may_reboot(subject) and self._reboot(subject):
                return True
            self._give_up(subject)
        before = len(self.endings)
        for name in list(self.parked):
            for step in self.parked.pop(name):
                heapq.heappush(self.ready, self.position[step])
        self._dispatch()
        return bool(self.running) or len(self.endings) > before

    def _may_reboot(self, subject: str) -> bool:
        """Tell whether nothing of a subject failed: a half-changed host is not rebooted."""
        return not any(
            ending.outcome in {Outcome.FAILED, Outcome.BLOCKED}
            for step, ending in self.endings.items()
            if step.subject == subject
        )

    def _give_up(self, subject: str) -> None:
        """Leave a reboot owed because something of the subject failed."""
        self.run.owed.pop(subject, None)
        for step in self.awaiting.pop(subject, []):
            heapq.heappush(self.ready, self.position[step])
        for step in self.deferred.pop(subject, []):
            former = self.endings[step]
            if not former.deferred:
                continue  # another reboot that it waited for was given up before
            reason = f"the reboot of {subject} is owed: another step of it failed"
            self._final(step, Ending(Outcome.BLOCKED, reason, former.diagnostics, former.changed, stops=True))

    # ------------------------------------------------------------ what ended

    def _take(self, done: _Done) -> None:
        began = self.running.pop(done.name)
        for system in done.systems:
            self.busy[system] -= 1
        self._wake(done.systems)
        if done.error is not None:
            if isinstance(done.error, Interrupted):  # it had begun, so it is no step that never did
                self.cut.add(done.name)
            raise done.error
        if done.rebooted:
            self._rebooted(done)
            return
        for step, ending in done.endings.items():
            self._end(step, ending, time.monotonic() - began)

    def _rebooted(self, done: _Done) -> None:
        subject = done.rebooted
        self.rebooting.discard(subject)
        left = self.run.owed.get(subject, {})
        for each in done.repaid:
            left.pop(each, None)
        if not left:
            self.run.owed.pop(subject, None)
        for step in self.awaiting.pop(subject, []):
            heapq.heappush(self.ready, self.position[step])
        for step in self.deferred.pop(subject, []):
            self.awaits[step].discard(subject)
            if step in done.endings:
                self._final(step, done.endings[step])
            elif not self.awaits[step]:
                self._final(step, replace(self.endings[step], deferred=frozenset()))
        self._try_reboots()

    def _end(self, step: StepId, ending: Ending, seconds: float) -> None:
        self.endings[step] = ending
        self.seconds[step] = seconds
        self.run.ended.add(step)
        self.open[step.subject] -= 1
        targets = {each for each in ending.deferred if each in self.run.owed}
        if targets:
            self.awaits[step] = targets
            self.held[step] = []
            for follower in self.followers[step]:
                if follower.subject == step.subject:
                    self._release(follower)
                else:
                    self.held[step].append(follower)
            for subject in targets:
                self.deferred.setdefault(subject, []).append(step)
        else:
            ending.deferred = frozenset()
            self._tell(step, ending)
            for follower in self.followers[step]:
                self._release(follower)
        self._try_reboots()

    def _try_reboots(self) -> None:
        """Begin the reboots that steps wait for, and those of subjects whose steps have all ended."""
        for subject in list(self.run.owed):
            if subject in self.rebooting:
                continue
            if self.open.get(subject, 0) == 0 and not self._may_reboot(subject):
                self._give_up(subject)
            elif self.open.get(subject, 0) == 0 or subject in self.awaiting:
                self._reboot(subject)

    def _final(self, step: StepId, ending: Ending) -> None:
        """A step that waited for a reboot has its outcome."""
        self.endings[step] = ending
        self._tell(step, ending)
        for follower in self.held.pop(step, []):
            self._release(follower)

    def _release(self, step: StepId) -> None:
        self.left[step] -= 1
        if self.left[step] == 0:
            heapq.heappush(self.ready, self.position[step])

    def _tell(self, step: StepId, ending: Ending) -> None:
        seconds = self.seconds.get(step, 0.0)
        mask = self.run.journal.mask  # here, because what a person reads in the summary comes from here too
        ending.diagnostics = tuple(each.masked(mask) for each in ending.diagnostics)
        ending.reason = mask(ending.reason)
        for diagnostic in ending.diagnostics:
            self.run.problem(step, diagnostic)
        self.run.journal.step(self.run.id, step, str(ending.outcome), seconds, ending.reason)
        self.run.emit(
            StepEnded(
                run=self.run.id,
                subject=step.subject,
                role=step.role,
                outcome=str(ending.outcome),
                seconds=seconds,
                reason=ending.reason,
            )
        )

    def _leave(self) -> None:
        """Give every step without an outcome one: the run ends here."""
        for step in self.works:
            ending = self.endings.get(step)
            if ending is not None and not ending.deferred:
                continue
            if ending is not None:
                self._final(
                    step, Ending(Outcome.BLOCKED, "interrupted before its reboot", changed=ending.changed)
                )
            elif step in self.running or step in self.cut:
                reason = "interrupted: what it began is looked up by the next run"
                self.endings[step] = Ending(Outcome.FAILED, reason, stops=True)
                self._tell(step, self.endings[step])
            else:
                self.endings[step] = Ending(Outcome.BLOCKED, "interrupted before it began", stops=True)
                self._tell(step, self.endings[step])


def _defect(step: StepId, error: Exception) -> Diagnostic:
    return defect("INTERNAL", f"{step}: provision itself failed", step.subject, error)
