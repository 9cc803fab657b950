"""A site that stands in for the engine behind commands."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from provision.api import Ask, Options
from provision.engine.model import Plan, RunReport, StepId, StepReport
from provision.inventory import Inventory
from provision.values import events
from provision.values.cancel import Cancel
from provision.values.events import Emitter
from provision.values.outcomes import ExitCode, Outcome
from provision.verify.model import CheckResult, VerifyReport
from tests.unit.report.samples import PLAN

INVENTORY = Inventory.model_validate({"version": "1", "name": "lab"})
STEP = StepId("base_os", "vm-1")
DONE = RunReport("r1", "lab", (StepReport(STEP, Outcome.CHANGED, 2.0),), trips={"vm-1/ssh": 2}, seconds=3.0)


@dataclass
class FakeSite:
    """Stands in for the engine: says what it was told to say, and remembers what it was asked."""

    plan_result: Plan = PLAN
    report: RunReport = DONE
    checks: tuple[CheckResult, ...] = ()
    emitted: tuple[events.Event, ...] = ()
    options: Options | None = None
    confirmed: bool | None = None
    answer: bool | None = None
    closed: bool = False
    cancelled: bool = False
    saved: list[Path] = field(default_factory=list)
    kept: bool = False

    def awaited(self) -> tuple[str, ...]:
        return ()

    def keeps_on_hosts(self) -> bool:
        return self.kept

    def plan(self, options: Options, emit: Emitter, cancel: Cancel, *, detailed: bool = False) -> Plan:
        del cancel, detailed
        self.options = options
        for event in self.emitted:
            emit(event)
        return self.plan_result

    def save(self, plan: Plan, path: Path) -> None:
        del plan
        self.saved.append(path)

    def apply(
        self,
        plan: Plan | None,
        options: Options,
        emit: Emitter,
        cancel: Cancel,
        confirm: Callable[[Plan], bool],
        *,
        ask: Ask,
        saved: Path | None = None,
    ) -> RunReport:
        del plan, saved
        self.options = options
        self.confirmed = confirm(self.plan_result)
        self.answer = ask("Is the cable in?")
        for event in self.emitted:
            emit(event)
        self.cancelled = cancel.draining
        if not self.confirmed:
            return replace(self.report, exit_code=ExitCode.WAITING)
        return replace(self.report, exit_code=130, interrupted=True) if cancel.draining else self.report

    def destroy(
        self, options: Options, emit: Emitter, cancel: Cancel, confirm: Callable[[Plan], bool]
    ) -> RunReport:
        return self.apply(None, options, emit, cancel, confirm, ask=lambda _: None)

    def verify(self, options: Options, emit: Emitter, cancel: Cancel) -> VerifyReport:
        del emit, cancel
        self.options = options
        return VerifyReport(self.checks, 1.0)

    def close(self) -> None:
        self.closed = True
