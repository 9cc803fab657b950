"""Asks a host and acts on it: one execution to know, one to act."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NoReturn

from provision.connections.contracts import ShellConnection
from provision.connections.upload import UploadLockedError
from provision.contracts.driver import Action, Emit, Result, Verdict
from provision.contracts.effect import Effect, EffectClass
from provision.contracts.query import Frame, QueryKind, Unknown
from provision.contracts.remedy import Fix
from provision.contracts.snapshot import Snapshot
from provision.hosts import host_effects
from provision.hosts.operations.notes import notes_of
from provision.hosts.protocol.deadlines import Limit
from provision.hosts.protocol.execution import Execution
from provision.hosts.protocol.frames import KEEP
from provision.hosts.protocol.greeting import Hello, last_lines, no_hello, whole
from provision.hosts.protocol.hold import Hold
from provision.hosts.protocol.live_output import Live
from provision.hosts.protocol.script import (
    FIRST_STEP,
    HOST_LOCK,
    LOCK,
    RC_LOCKED,
    RC_NO_FLOCK,
    STATE,
    Step,
    act_script,
    effect_fragment,
    hold_script,
    new_nonce,
    observe_script,
)
from provision.values.cancel import Cancel, Interrupted
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError, Refused, Transient
from provision.values.outcomes import ExitCode
from provision.values.redaction import Redactor

KEEP_ANSWERS = 8 * 1024 * 1024
"""Bytes kept at each end of an answer: grouped queries may bring file contents."""

GREETING = Limit(120.0)
"""How long a host may take until its first frame: emulated ones are slow."""

ANSWER = Limit(300.0)
"""How long all queries of one kind may take."""

LOCKING = Limit(60.0)
"""How long taking the lock may take, and asking for a reboot."""

UNCHANGED = "nothing was changed"
BETWEEN_TRIES = 3.0
"""Seconds between two looks at a host that reboots."""


class HostDriver:
    """A host with a shell: implements `Driver`.

    Args:
        system: name in keys and messages (`vm-1/ssh`).
        connection: how to reach it.
        kinds: the query kinds by name.
        who: user and machine on whose behalf it acts; written into the host's lock.
        redactor: masks secrets in all output.
        state: folder of lock, markers and blobs on the host.
        reboot_deadline: seconds that a reboot may take until the host answers again.
        effects: all effect classes whose markers may be on the host.
    """

    def __init__(
        self,
        system: str,
        connection: ShellConnection,
        kinds: Mapping[str, QueryKind],
        *,
        who: str,
        redactor: Redactor | None = None,
        state: str = STATE,
        reboot_deadline: float = 600.0,
        effects: Collection[EffectClass] = host_effects.EFFECTS,
    ) -> None:
        self.system = system
        self._connection = connection
        self._kinds = kinds
        self._who = " ".join(who.split())
        self._redactor = redactor or Redactor()
        self._state = state
        self._reboot_deadline = reboot_deadline
        self._effects = {cls.name: cls for cls in effects}
        self._run = "reboot"

    @property
    def round_trips(self) -> int:
        """Executions so far."""
        return self._connection.executions

    def close(self) -> None:
        """Release the connection."""
        self._connection.close()

    def _execution(
        self, nonce: str, limits: Mapping[int, Limit], bye: int, cancel: Cancel, **more: Any
    ) -> Execution:
        more = {"greeting": GREETING, "keep": KEEP, "effects": self._effects, **more}
        return Execution(self._connection, nonce, limits, bye, cancel, **more)

    def _diagnostic(self, code: str, summary: str, **more: Any) -> Diagnostic:
        return Diagnostic(code, f"{self.system}: {summary}", self.system, **more)

    # ------------------------------------------------------------ asking

    def answer(self, queries: frozenset[Any], cancel: Cancel) -> Snapshot:
        """Ask everything at once, in one execution.

        Raises:
            Transient, Permanent, Refused: the host gives no answers at all.
            Interrupted: the run leaves.
        """
        groups: dict[str, list[Any]] = defaultdict(list)
        for query in queries:
            groups[query.kind].append(query)
        asked = [(self._kinds[kind], sorted(groups[kind], key=repr)) for kind in sorted(groups)]
        nonce = new_nonce()
        script = observe_script(nonce, [kind.script(group) for kind, group in asked], state=self._state)
        limits = dict.fromkeys(range(1, len(asked) + 1), ANSWER)
        execution = self._execution(nonce, limits, len(asked) + 1, cancel, keep=KEEP_ANSWERS)
        execution.run(script)
        hello = self._greeted(execution, cancel)
        complete = execution.frame(len(asked) + 1) is not None
        if not complete and execution.expired is None:
            self._cut(execution)
        answers: dict[Any, object] = {}
        for index, (kind, group) in enumerate(asked, 1):
            frame = execution.frame(index)
            if frame is None or frame.rc is None:
                answers.update(dict.fromkeys(group, Unknown(self._unanswered(execution, index))))
                continue
            try:
                parsed = kind.parse(frame, group)
            except (ValueError, ArithmeticError, LookupError, RecursionError) as error:
                # One host's odd answer, as a number of thousands of digits, must not end the plan of all.
                reason = f"the host's answer is not understood: {str(error)[:100]}"
                answers.update(dict.fromkeys(group, Unknown(reason)))
                continue
            for query in group:
                answers[query] = parsed.get(query, Unknown("the host's answer does not mention it"))
        return Snapshot(
            self.system,
            boot_id=hello.boot_id,
            answers=answers,
            pending=hello.pending,
            clock=hello.clock,
            # date(1) cuts to whole seconds
            skew=hello.clock + 0.5 - execution.heard if hello.clock else 0.0,
        )

    def _unanswered(self, execution: Execution, index: int) -> str:
        if execution.expired == index:
            return f"no answer within {ANSWER.timeout:g} s"
        return "a query before it did not end"

    def _greeted(self, execution: Execution, cancel: Cancel) -> Hello:
        if cancel.leaving:
            raise Interrupted
        if execution.hello is not None:
            return execution.hello
        raise self._no_hello(execution)

    def _no_hello(self, execution: Execution) -> ProvisionError:
        outside = execution.parser.outside()
        evidence = last_lines(self._redactor.data(outside))
        if execution.expired is not None:
            summary = f"the host did not answer within {GREETING.timeout:g} s after connecting"
            remedy = "see what the host is busy with, then run the command again"
            return Transient(self._diagnostic("HOST_SILENT", summary, evidence=evidence, remedy=remedy))
        return no_hello(self.system, outside, execution.rc, evidence, by_sudo=self._connection.uses_sudo)

    def _cut(self, execution: Execution) -> NoReturn:
        evidence = last_lines(self._redactor.data(execution.parser.outside()))
        summary = "the connection was cut in the middle of the answer"
        remedy = "check the network and the host, then run the command again"
        raise Transient(self._diagnostic("HOST_CUT", summary, evidence=evidence, remedy=remedy))

    # ------------------------------------------------------------ acting

    def act(
        self, run: str, actions: Sequence[Action], effects: Sequence[Effect], emit: Emit, cancel: Cancel
    ) -> list[Result]:
        """Do the actions in order, then the effects, in one execution; large content goes before it.

        Raises:
            ProvisionError: `HOST_LOCKED` (exit 6): another run works on this host.
            Transient, Permanent, Refused: the host could not be reached; nothing began.
            Interrupted: the run left before anything began.
        """
        self._run = run
        steps, limits, labels = self._steps(actions, effects)
        self._send_blobs(actions, cancel)
        nonce = new_nonce()
        script = act_script(nonce, run, self._who, steps, state=self._state, effects=self._effects.values())
        live = Live(emit, FIRST_STEP)
        bye = FIRST_STEP + len(steps)
        execution = self._execution(nonce, limits, bye, cancel, redactor=self._redactor, live=live)
        if cancel.leaving:
            raise Interrupted
        execution.run(script)
        live.close()
        if execution.hello is None:
            if execution.rc is not None:  # the shell ended without it
                raise self._no_hello(execution)
            # cut, or silent for too long: the script was on its way and may still run
            return self._results(execution, labels, cancel)
        self._locked(execution)
        return self._results(execution, labels, cancel)

    def hold(self, run: str, what: str, cancel: Cancel) -> Hold:
        """Take the lock that protects this host's API, by an execution that lasts until it is released.

        When the connection ends, or the controller with it, the host frees the lock by itself.

        Args:
            run: id of the run, written into the lock.
            what: name of the API in messages (`pve/api`).
            cancel: the run's.

        Raises:
            ProvisionError: `HOST_LOCKED` (exit 6): another run works through this API.
            Transient, Permanent, Refused: the host could not be reached, or has no place for a lock.
            Interrupted: the run leaves.
        """
        nonce = new_nonce()

        def make(end: Cancel, on_end: Callable[[int], None]) -> Execution:
            return self._execution(nonce, {LOCK: LOCKING}, FIRST_STEP + 1, end, on_end=on_end)

        hold = Hold(make, hold_script(nonce, run, self._who, state=self._state))
        hold.begin(cancel)
        self._greeted(hold.execution, cancel)
        self._locked(hold.execution, what)
        if not hold.alive:
            self._cut(hold.execution)
        return hold

    def _steps(
        self, actions: Sequence[Action], effects: Sequence[Effect]
    ) -> tuple[list[Step], dict[int, Limit], list[str]]:
        steps: list[Step] = []
        limits: dict[int, Limit] = {LOCK: LOCKING}
        labels: list[str] = []
        early = notes_of(actions[1:])
        for action in actions:
            fix = action.remedy
            if not isinstance(fix, Fix):
                raise TypeError(f"{action.label}: a host runs fixes, no API calls")
            self._redactor.add(*fix.secrets)
            marks = tuple(dict.fromkeys((*action.effects, *fix.effects)))
            limits[FIRST_STEP + len(steps)] = Limit(fix.timeout, fix.quiet)
            labels.append(action.label)
            script = "\n".join((*(note.shell() for note in early), fix.script))
            early = ()
            steps.append(Step(script, marks=marks, blobs=tuple(blob.sha256 for blob in fix.blobs)))
        for effect in effects:
            fragment = effect_fragment(effect)
            if fragment is None:
                raise ValueError(f"{self.system}: no host performs {effect} by itself")
            limits[FIRST_STEP + len(steps)] = Limit(effect.cls.timeout)
            labels.append(str(effect))
            steps.append(Step(fragment, clears=(effect,)))
        return steps, limits, labels

    def _send_blobs(self, actions: Sequence[Action], cancel: Cancel) -> None:
        blobs = {
            blob.sha256: blob
            for action in actions
            if isinstance(action.remedy, Fix)
            for blob in action.remedy.blobs
        }
        for sha256, blob in blobs.items():
            path, lock = f"{self._state}/blobs/{sha256}", f"{self._state}/{HOST_LOCK}"
            try:
                self._connection.upload(path, blob.view(), cancel, lock=lock)
            except UploadLockedError as locked:
                raise ProvisionError(self._holder(locked.holder, self.system), ExitCode.LOCKED) from None

    def _locked(self, execution: Execution, what: str = "") -> None:
        frame = execution.frame(LOCK)
        if frame is None or frame.rc in (0, None):
            return
        if frame.rc == RC_LOCKED:
            raise ProvisionError(self._holder(frame.stdout, what or self.system), ExitCode.LOCKED)
        code, summary, remedy = "NO_FLOCK", "the host has no flock(1) to lock it with", "install util-linux"
        if frame.rc != RC_NO_FLOCK:
            code, summary = "HOST_STATE_UNWRITABLE", f"{self._state} cannot be written"
            remedy = "free some space, or mount the root filesystem read-write"
        evidence = last_lines(frame.stdout + frame.stderr)
        diagnostic = self._diagnostic(code, summary, evidence=evidence, untouched=UNCHANGED, remedy=remedy)
        raise Permanent(diagnostic)

    def _holder(self, words: bytes, what: str) -> Diagnostic:
        parts = words.decode("utf-8", "replace").strip("\n").split("\t")
        run, who, since, pgid = (*parts, "", "", "", "")[:4]
        when = "an unknown time"
        if since.isascii() and since.isdigit() and len(since) < 12:  # noqa: PLR2004 - a date that exists
            when = datetime.fromtimestamp(int(since), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return Diagnostic(
            "HOST_LOCKED",
            f"{what} is locked by run {run or '(unknown)'} of {who or '(unknown)'} since {when}",
            self.system,
            evidence=(f"process group {pgid}",) if pgid else (),
            untouched=UNCHANGED,
            remedy="wait until that run has ended; if it hangs, end that process group on the host",
        )

    def _results(self, execution: Execution, labels: Sequence[str], cancel: Cancel) -> list[Result]:
        results: list[Result] = []
        stopped = execution.frame(FIRST_STEP + len(labels)) is not None
        for index, label in enumerate(labels, FIRST_STEP):
            frame = execution.frame(index)
            if frame is None and stopped:
                results.append(Result(Verdict.NOT_BEGUN))
                continue
            # between two frames nothing shows where a cut connection left the host
            result = self._result(execution, index, label, frame or Frame(b"", b"", None), cancel)
            stopped = stopped or result.verdict is not Verdict.DONE
            results.append(replace(result, kept=whole(frame)))
        return results

    def _result(self, execution: Execution, index: int, label: str, frame: Frame, cancel: Cancel) -> Result:
        output = last_lines(frame.stdout + frame.stderr)
        verdict, seconds, handle = Verdict.FAILED, execution.took(index), ""
        if frame.rc == 0:
            return Result(Verdict.DONE, seconds, output=output)
        if frame.rc is not None:
            code, summary, remedy = "FIX_FAILED", f"{label} failed with exit status {frame.rc}", ""
        elif execution.expired == index and execution.killed:
            code, summary = "FIX_TIMED_OUT", f"{label} was ended: {execution.deadlines.reason}"
            remedy = "run the command again: it looks at what was done until then"
        else:
            verdict, seconds = Verdict.INDETERMINATE, 0.0
            handle = "" if execution.hello is None else str(execution.hello.pgid)
            cause = "the run was interrupted" if cancel.leaving else "the connection was cut"
            code, summary = "OUTCOME_UNKNOWN", f"{cause} during {label}: it may have ended, or may still run"
            remedy = "run the command again: it reads the present state first"
        diagnostic = self._diagnostic(code, summary, evidence=output, remedy=remedy)
        return Result(verdict, seconds, diagnostic, output, handle)

    # ------------------------------------------------------------ rebooting

    def reboot(self, effect: Effect, emit: Emit, cancel: Cancel) -> str:
        """Reboot, wait for another boot id, reconnect, and return it.

        Raises:
            ProvisionError: `HOST_LOCKED`; `REBOOT_FAILED` when the host refuses.
            Transient: `REBOOT_TIMED_OUT`: no other boot answers within the deadline.
            Refused: it came back with another host key.
            Interrupted: the run leaves.
        """
        nonce = new_nonce()
        fragment = "if command -v systemctl >/dev/null; then systemctl --no-block reboot; else reboot; fi"
        steps = [Step(fragment, marks=(effect,))]
        script = act_script(
            nonce, self._run, self._who, steps, state=self._state, effects=self._effects.values()
        )
        limits = {LOCK: LOCKING, FIRST_STEP: LOCKING}
        execution = self._execution(nonce, limits, FIRST_STEP + 1, cancel)
        execution.run(script)
        before = self._greeted(execution, cancel).boot_id
        self._locked(execution)
        frame = execution.frame(FIRST_STEP)
        if frame is not None and frame.rc not in (0, None):
            summary = f"the host refused to reboot (exit status {frame.rc})"
            evidence = last_lines(frame.stdout + frame.stderr)
            remedy = "find out what delays it: `systemctl status reboot.target`, `systemd-inhibit --list`"
            raise Permanent(self._diagnostic("REBOOT_FAILED", summary, evidence=evidence, remedy=remedy))
        self._connection.close()
        emit("rebooting")
        return self._await_boot(before, cancel)

    def _await_boot(self, before: str, cancel: Cancel) -> str:
        deadline = time.monotonic() + self._reboot_deadline
        evidence: tuple[str, ...] = _OLD_BOOT
        while time.monotonic() < deadline:
            cancel.wait(BETWEEN_TRIES)
            try:
                now = self.answer(frozenset(), cancel).boot_id
            except Refused:
                raise
            except Transient as error:
                evidence = tuple(diagnostic.summary for diagnostic in error.diagnostics)
            else:
                if now != before:
                    return now
                evidence = _OLD_BOOT
            self._connection.close()
        summary = f"the host did not come back within {self._reboot_deadline:g} s after the reboot began"
        remedy = "look at the host's console"
        raise Transient(self._diagnostic("REBOOT_TIMED_OUT", summary, evidence=evidence, remedy=remedy))


_OLD_BOOT = ("the host still answers from its old boot",)
