"""Runs the steps of a plan: each when its predecessors have ended and its systems are free."""

from __future__ import annotations

import heapq
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from provision.contracts.effect import Effect
from provision.engine import workers
from provision.engine.act import execute, is_stale
from provision.engine.defect import defect
from provision.engine.expand import VERIFY
from provision.engine.graph import predecessors
from provision.engine.model import ConsentNeed, StepId, StepReport
from provision.engine.reboot import REBOOT, after_reboot, reboot
from provision.engine.run import Ending, Run, failed
from provision.engine.work import Work
from provision.values.cancel import Interrupted
from provision.values.consent import Consent
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
    """A message of a worker: what it did, and its endings or what it raised.

    Args:
        name: the step, or the reboot.
        systems: what was busy with it.
        endings: how steps ended: the step itself, or those that waited for the reboot.
        error: what ends the run.
        rebooted: the subject, empty for a step.
        repaid: the debts that its reboot has paid.
    """

    name: StepId
    systems: frozenset[str]
    endings: dict[StepId, Ending] = field(default_factory=dict)
    error: BaseException | None = None
    rebooted: str = ""
    repaid: list[tuple[str, Effect]] = field(default_factory=list)


class Scheduler:
    """Decides what begins when; all decisions are made on the caller's thread.

    A step that owes a reboot has ended, but its outcome is only known after it: until then it is unsettled,
    and steps of other subjects that come after it wait.

    Args:
        run: what is run, and what all its threads share.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.works = run.planned.works
        self.order = list(self.works)
        self.position = {step: index for index, step in enumerate(self.order)}
        self.followers: dict[StepId, list[StepId]] = {step: [] for step in self.works}
        self.left: Counter[StepId] = Counter()  # how many steps must still end before one may begin
        for step, work in self.works.items():
            for each in predecessors(work.step):
                if each in self.works:
                    self.left[step] += 1
                    self.followers[each].append(step)
        self.ready = [self.position[step] for step in self.order if not self.left[step]]  # a heap
        self.open = Counter(step.subject for step in self.works)  # how many steps of a subject have not ended
        self.busy: Counter[str] = Counter()  # how many steps that run act on a system
        self.running: dict[StepId, float] = {}  # since when
        self.rebooting: set[str] = set()
        self.parked: dict[str, list[StepId]] = {}  # what begins when a system is free
        self.awaiting: dict[str, list[StepId]] = {}  # what begins when a subject has rebooted
        self.endings: dict[StepId, Ending] = {}
        self.seconds: dict[StepId, float] = {}
        self.unsettled: dict[StepId, set[str]] = {}  # whose reboots a step's outcome waits for
        self.cut: set[StepId] = set()  # what was running when the run had to leave
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
        cut = bool(self.unsettled) or any(step not in self.endings for step in self.works)
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
            self._start(work, frozenset(), lambda: self._verify(work))
            return
        if work.new_boot:
            for subject in sorted({self.run.session.subject_of(name) for name in work.systems}):
                if subject in self.run.owed:
                    self.awaiting.setdefault(subject, []).append(work.step.id)
                    self._reboot(subject)
                    return
        systems = self._exclusive(work)
        taken = next((name for name in sorted(systems) if self.busy[name]), None)
        if taken is not None:
            self.parked.setdefault(taken, []).append(work.step.id)
            self._wake(systems)
            return
        self._start(work, systems, lambda: execute(self.run, work))

    def _queue(self, step: StepId) -> None:
        heapq.heappush(self.ready, self.position[step])

    def _wake(self, systems: Iterable[str]) -> None:
        """Take up one step that waits for each of some systems, where it is free by now."""
        for name in systems:
            waiting = self.parked.get(name)
            if waiting and not self.busy[name]:
                self._queue(waiting.pop(0))

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
        fresh = not is_stale(self.run, work) and self.run.session.acts(work.systems) == work.acts
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

    def _start(self, work: Work, systems: frozenset[str], call: Callable[[], Ending]) -> None:
        step = work.step.id
        self._started(work)
        self._work_off(_Done(step, systems), (step,), lambda: {step: call()})

    def _started(self, work: Work) -> None:
        self.run.step_started(work.step.id, self.run.usual.get(work.step.id, 0.0))

    def _work_off(
        self, done: _Done, steps: Sequence[StepId], call: Callable[[], dict[StepId, Ending]]
    ) -> None:
        """Call something on a thread of its own, which sends how it ended.

        Args:
            done: the message: whose it is, and the systems that are busy until it comes.
            steps: what fails with a defect.
            call: returns the endings.
        """
        self.running[done.name] = time.monotonic()
        self.busy.update(done.systems)

        def work_off() -> None:
            try:
                done.endings = call()
            except Interrupted as error:
                done.error = error
            except Exception as error:  # noqa: BLE001 - a defect ends the step, not the run
                told = defect("INTERNAL", f"{done.name}: provision itself failed", done.name.subject, error)
                done.endings = {step: failed(told) for step in steps}
            except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
                done.error = error
            self.inbox.put(done)

        workers.start(str(done.name), work_off)

    def _verify(self, work: Work) -> Ending:
        if self.run.verify is None:
            return Ending(Outcome.UNCHANGED, "no checks")
        gate = work.step.gate
        if gate and self.run.question(gate) is not True:
            return Ending(Outcome.WAITING, f"waits for a person: {gate}")
        found = self.run.verify(self.run.cancel)
        self.run.verification = found.detail
        outcome = Outcome.UNCHANGED if found.exit_code is ExitCode.DONE else Outcome.FAILED
        return Ending(outcome, found.summary, exit_code=found.exit_code)

    # ------------------------------------------------------------ reboots

    def _reboot(self, subject: str) -> bool:
        """Begin the reboot that a subject owes, once its systems are free; tell whether it began."""
        if subject in self.rebooting or self.run.cancel.draining:
            return False
        systems = self.run.session.behind(subject)
        if any(self.busy[name] for name in systems):
            return False
        self.rebooting.add(subject)
        waiting = [step for step, reboots in self.unsettled.items() if reboots == {subject}]

        def reboot_and_read_back() -> dict[StepId, Ending]:
            problem = reboot(self.run, subject)
            if problem:
                return {step: failed(problem, self.endings[step].changed) for step in waiting}
            return after_reboot(self.run, [self.works[step] for step in waiting], self.endings)

        done = _Done(StepId(REBOOT, subject), systems, rebooted=subject, repaid=list(self.run.owed[subject]))
        self._work_off(done, waiting, reboot_and_read_back)
        return True

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
                self._queue(step)
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
            self._queue(step)
        reason = f"the reboot of {subject} is owed: another step of it failed"
        for step in [step for step, reboots in self.unsettled.items() if subject in reboots]:
            former = self.endings[step]
            self._settle(
                step, Ending(Outcome.BLOCKED, reason, former.diagnostics, former.changed, stops=True)
            )

    # ------------------------------------------------------------ what ended

    def _take(self, done: _Done) -> None:
        began = self.running.pop(done.name)
        self.busy.subtract(done.systems)
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
            self._queue(step)
        for step, reboots in list(self.unsettled.items()):
            reboots.discard(subject)
            if not reboots:
                self._settle(step, done.endings.get(step, replace(self.endings[step], deferred=frozenset())))
        self._try_reboots()

    def _end(self, step: StepId, ending: Ending, seconds: float) -> None:
        self.endings[step] = ending
        self.seconds[step] = seconds
        self.run.ended.add(step)
        self.open[step.subject] -= 1
        self._release(each for each in self.followers[step] if each.subject == step.subject)
        reboots = {each for each in ending.deferred if each in self.run.owed}
        if reboots:
            self.unsettled[step] = reboots
        else:
            ending.deferred = frozenset()
            self._settle(step, ending)
        self._try_reboots()

    def _try_reboots(self) -> None:
        """Begin the reboots that steps wait for, and those of subjects whose steps have all ended."""
        for subject in list(self.run.owed):
            if subject in self.rebooting:
                continue
            if not self.open[subject] and not self._may_reboot(subject):
                self._give_up(subject)
            elif not self.open[subject] or subject in self.awaiting:
                self._reboot(subject)

    def _settle(self, step: StepId, ending: Ending) -> None:
        """Tell the outcome of a step, and let those of other subjects go on."""
        self.unsettled.pop(step, None)
        self.endings[step] = ending
        self._tell(step, ending)
        self._release(each for each in self.followers[step] if each.subject != step.subject)

    def _release(self, steps: Iterable[StepId]) -> None:
        for step in steps:
            self.left[step] -= 1
            if not self.left[step]:
                self._queue(step)

    def _tell(self, step: StepId, ending: Ending) -> None:
        seconds = self.seconds.get(step, 0.0)
        for diagnostic in ending.diagnostics:
            self.run.problem(step, diagnostic)
        self.run.step_ended(step, ending.outcome, seconds, ending.reason)

    def _leave(self) -> None:
        """Give every step without an outcome one: the run ends here."""
        for step in self.works:
            if step in self.unsettled:
                changed = self.endings[step].changed
                ending = Ending(Outcome.BLOCKED, "interrupted before its reboot", changed=changed)
            elif step in self.endings:
                continue
            elif step in self.running or step in self.cut:
                reason = "interrupted: what it began is looked up by the next run"
                ending = Ending(Outcome.FAILED, reason, stops=True)
            else:
                ending = Ending(Outcome.BLOCKED, "interrupted before it began", stops=True)
            self._settle(step, ending)
