from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from provision.api import Answers, Options
from provision.values import events
from provision.values.cancel import Cancel
from provision.verify.model import CheckOutcome, CheckResult, VerifyReport
from tests.unit.proxmox.roles.world import OPTIONS, World

RESULTS = (
    CheckResult("it is so", "vm-1", CheckOutcome.PROVEN, seconds=0.5),
    CheckResult("it is so", "vm-gpu", CheckOutcome.FAILED, "token secret-token was seen"),
)


def test_a_plan_is_told_as_events_and_ends_with_its_exit_code(tmp_path: Path) -> None:
    site = World(tmp_path).site()
    events_shown: list[events.Event] = []
    plan = site.plan(OPTIONS, events_shown.append, Cancel(), detailed=True)
    keys = {each.key for each in events_shown if isinstance(each, events.ChangePlanned)}
    assert keys == {str(change.key) for step in plan.steps for change in step.changes}
    assert isinstance(events_shown[0], events.RunStarted)
    assert isinstance(events_shown[-1], events.RunEnded)
    assert events_shown[-1].exit_code == 2
    assert "secret-token" not in str(events_shown)


def test_a_verification_tells_every_check_with_secrets_masked(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.apply()
    site = world.site()

    def verifier(
        answers: Answers,
        excused: frozenset[str],
        options: Options,
        tell: Callable[[CheckResult], None],
    ) -> VerifyReport:
        del answers, excused, options
        for each in RESULTS:
            tell(each)
        return VerifyReport(RESULTS)

    site.verifier = verifier
    events_shown: list[events.Event] = []
    site.verify(Options(), events_shown.append, Cancel())
    checks = [each for each in events_shown if isinstance(each, events.CheckDone)]
    assert [(each.subject, each.outcome) for each in checks] == [("vm-1", "proven"), ("vm-gpu", "failed")]
    assert "secret-token" not in str(events_shown)
    assert isinstance(events_shown[-1], events.RunEnded)
    assert events_shown[-1].exit_code == 3
