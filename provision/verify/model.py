"""Results of checks as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from provision.contracts.check import Figure
from provision.values.diagnostics import Diagnostic
from provision.values.outcomes import ExitCode, worst


class CheckOutcome(StrEnum):
    """How a check ended."""

    PROVEN = "proven"
    """Something was compared, and is as declared."""
    FAILED = "failed"
    TRIVIAL = "trivial"
    """There was nothing to compare, or a stand-in answered for the hardware."""
    UNKNOWN = "unknown"
    """There is no evidence for or against the claim."""
    NOT_RUN = "not-run"
    """Nobody looked: the inventory or the command line leaves it out."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check.

    Args:
        name: what is claimed, in words (`root filesystem fills the disk`).
        subject: whom it is about.
        outcome: how it ended.
        message: what was seen instead, why nothing is proven, or a remark on what is.
        excused: nothing is proven, without fault (a VM that is off by hand, a check that is left out).
        seconds: how long it took.
        total: how many checks there are, as far as is known when it ends; 0 if that is not known.
        check: its name in `verify.skip` and in docs/verify.md.
        figures: what it has measured.
    """

    name: str
    subject: str
    outcome: CheckOutcome
    message: str = ""
    excused: bool = False
    seconds: float = 0.0
    total: int = 0
    check: str = ""
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True, slots=True)
class Silence:
    """Why a system gave no answers at all, and the exit code of that (1; 4 for an unknown host key)."""

    diagnostic: Diagnostic
    exit_code: ExitCode = ExitCode.ERROR

    def masked(self, mask: Callable[[str], str]) -> Silence:
        """Return it with secrets masked."""
        return replace(self, diagnostic=self.diagnostic.masked(mask))


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """All checks of one verification, and the systems that gave no answers at all."""

    checks: tuple[CheckResult, ...]
    seconds: float = 0.0
    silent: tuple[Silence, ...] = ()

    def count(self, outcome: CheckOutcome) -> int:
        """Return how many checks had an outcome."""
        return sum(each.outcome is outcome for each in self.checks)

    def exit_code(self, *, strict: bool) -> ExitCode:
        """Return the worst: what a system is silent for, 3 for a failed check, with `strict` 7 for doubt.

        A run, or a subject without excuse, of which nothing is proven is in doubt, too.
        """
        codes = [each.exit_code for each in self.silent]
        if self.count(CheckOutcome.FAILED):
            codes.append(ExitCode.VERIFY_FAILED)
        unsure = any(each.outcome is CheckOutcome.UNKNOWN and not each.excused for each in self.checks)
        if strict and (unsure or not self.checks or self._unproven()):
            codes.append(ExitCode.UNKNOWN)
        return worst(codes)

    def _unproven(self) -> bool:
        """Whether there is a subject without excuse of which nothing is proven."""
        results: dict[str, list[CheckResult]] = {}
        for check in self.checks:
            results.setdefault(check.subject, []).append(check)
        return any(
            not any(check.outcome is CheckOutcome.PROVEN or check.excused for check in checks)
            for checks in results.values()
        )
