"""What was proven before a change that goes from one subject to the next, and what is not proven any more.

It is kept in a file until all subjects are done: a run that goes on after a failure compares with the time
before the first change, not with what the failure left.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.api.check_session import FreshAnswers
from provision.engine.environment import Options, Verification
from provision.engine.model import Checkpoint
from provision.engine.run_lock import usable
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.outcomes import ExitCode
from provision.values.whole_file import make_private_folder, write_whole
from provision.verify.model import CheckOutcome, CheckResult, VerifyReport

if TYPE_CHECKING:
    from provision.api.site import Site

SETTLING = (5.0, 10.0, 15.0, 30.0, 30.0)
"""Seconds between looks after a change: what has just restarted needs a while until all of it is proven."""
SHOWN = 6
"""Checks that a message names."""
Claims = Mapping[str, CheckOutcome]
"""The worst outcome of each check and subject."""
_RANK = (
    CheckOutcome.FAILED,
    CheckOutcome.UNKNOWN,
    CheckOutcome.NOT_RUN,
    CheckOutcome.TRIVIAL,
    CheckOutcome.PROVEN,
)


def claims(report: VerifyReport) -> dict[str, CheckOutcome]:
    """Return the worst outcome of each check for each subject; one that is excused says nothing."""
    outcomes: dict[str, CheckOutcome] = {}
    for result in report.checks:
        key = _key(result)
        if not result.excused:
            outcomes[key] = min(result.outcome, outcomes.get(key, result.outcome), key=_RANK.index)
    return outcomes


def _key(result: CheckResult) -> str:
    return f"{result.subject}: {result.check or result.name}"


def regressions(before: Claims, report: VerifyReport) -> tuple[CheckResult, ...]:
    """Return the checks that were proven before and are not now, and those that fail and were not there."""
    return tuple(
        result
        for result in report.checks
        if not result.excused
        and (
            (result.outcome is CheckOutcome.FAILED and before.get(_key(result)) is not CheckOutcome.FAILED)
            or (result.outcome is CheckOutcome.UNKNOWN and before.get(_key(result)) is CheckOutcome.PROVEN)
        )
    )


@dataclass(slots=True)
class Baseline:
    """The checks of the time before the first change.

    Args:
        path: its file.
        inventory: the file of the inventory, for remedies.
        asked: what the checks asked at the last checkpoint, by system: the next one asks it at once.
    """

    path: Path
    inventory: str
    asked: Mapping[str, Iterable[Any]] = field(default_factory=dict)

    def read(self) -> tuple[Claims, str] | None:
        """Return what was proven, and the subject that was changed last; None where nothing is kept."""
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            kept = {str(key): CheckOutcome(value) for key, value in data["claims"].items()}
            return kept, str(data["subject"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def keep(self, before: Claims, subject: str) -> None:
        """Write it.

        Raises:
            UsageError: the folder cannot be written.
        """
        kept = {"subject": subject, "claims": {key: str(outcome) for key, outcome in before.items()}}
        with usable(self.path.parent):
            make_private_folder(self.path.parent)
            write_whole(self.path, json.dumps(kept, indent=1, sort_keys=True))

    def retire(self, report: VerifyReport) -> None:
        """Remove it, if a verification of the whole site shows nothing that got worse since."""
        kept = self.read()
        if kept is not None and not regressions(kept[0], report):
            with suppress(OSError):
                self.path.unlink()


def pass_checkpoint(
    site: Site, options: Options, baseline: Baseline, checkpoint: Checkpoint, cancel: Cancel
) -> Verification:
    """Run the checks on fresh answers, and compare them with the baseline.

    Before the first change there is none, and these checks become it. The subject at which a former run
    stopped may be changed again, in whatever state it is: this is how it is repaired.
    """
    kept = baseline.read()
    report = _checked(site, options, baseline, cancel)
    if kept is None:
        present = claims(report)
        baseline.keep(present, checkpoint.subject)
        return _passed(report, present)
    before, stopped = kept
    worse = regressions(before, report)
    if checkpoint.is_before:
        if worse and checkpoint.subject != stopped:
            return _refused(checkpoint, worse, baseline, f"before {checkpoint.subject} is changed")
        baseline.keep(before, checkpoint.subject)
        return _passed(report, before)
    for seconds in SETTLING:
        if not worse:
            break
        cancel.wait(seconds)
        if cancel.draining:
            break
        report = _checked(site, options, baseline, cancel)
        worse = regressions(before, report)
    # What comes next is kept by who comes next: a run that dies here goes on with this subject.
    baseline.keep(before, checkpoint.subject)
    if worse:
        return _refused(checkpoint, worse, baseline, f"after the change of {checkpoint.subject}")
    return _passed(report, before)


def _checked(site: Site, options: Options, baseline: Baseline, cancel: Cancel) -> VerifyReport:
    remembered = baseline.asked or site.queries.recall(verify=True)
    answers = FreshAnswers(site.session, cancel, remembered)
    # Pods of checks are left out: others may hold at one checkpoint what was free at the one before.
    report = site.run_checks(answers, replace(options, junit=None, pods=False), lambda _: None)
    baseline.asked = answers.asked
    return report


def _passed(report: VerifyReport, before: Claims) -> Verification:
    proven = report.count(CheckOutcome.PROVEN)
    broken = sum(outcome is CheckOutcome.FAILED for outcome in before.values())
    known = f"; {broken} failed already before the first change" if broken else ""
    return Verification(ExitCode.DONE, f"{proven} proven, none worse than before{known}")


def _refused(
    checkpoint: Checkpoint, worse: tuple[CheckResult, ...], baseline: Baseline, when: str
) -> Verification:
    count = len(worse)
    what = f"{count} check{'s' * (count > 1)} {'are' if count > 1 else 'is'} worse than before"
    evidence = [f"{result.subject}: {result.name}: {result.message or result.outcome}" for result in worse]
    name = baseline.inventory or "INVENTORY"
    way_back = f"{checkpoint.way_back}; " if checkpoint.way_back else ""
    diagnostic = Diagnostic(
        "CHECKPOINT_FAILED",
        f"{what} {when}",
        checkpoint.subject,
        evidence=(*evidence[:SHOWN], *([f"and {count - SHOWN} more"] if count > SHOWN else [])),
        untouched="nothing that comes after it was changed",
        remedy=f"{way_back}see all checks with `provision verify {name}`, then run the same command again;"
        f" to accept the present state, remove {baseline.path}",
    )
    return Verification(ExitCode.VERIFY_FAILED, f"{what} {when}", VerifyReport(worse), (diagnostic,))
