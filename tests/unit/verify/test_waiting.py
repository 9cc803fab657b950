from __future__ import annotations

import pytest

from provision.api.site import _verification
from provision.engine.world import Options
from provision.values.outcomes import ExitCode
from provision.verify.model import CheckOutcome, CheckResult, VerifyReport

GOOD = CheckResult("it runs", "vm-1", CheckOutcome.PASSED)
WRONG = CheckResult("it has its memory", "vm-1", CheckOutcome.FAILED)
OTHER = CheckResult("it has its memory", "vm-2", CheckOutcome.FAILED)


@pytest.mark.parametrize(
    ("checks", "waiting", "code"),
    [
        ((GOOD,), (), ExitCode.DONE),
        ((GOOD,), ("vm-1",), ExitCode.DONE),
        ((GOOD, WRONG), (), ExitCode.VERIFY_FAILED),
        ((GOOD, WRONG), ("vm-1",), ExitCode.WAITING),
        ((WRONG, OTHER), ("vm-1",), ExitCode.VERIFY_FAILED),
        ((WRONG,), ("vm-2",), ExitCode.VERIFY_FAILED),
    ],
)
def test_what_waits_for_consent_is_no_failed_verification(
    checks: tuple[CheckResult, ...], waiting: tuple[str, ...], code: ExitCode
) -> None:
    assert _verification(VerifyReport(checks), Options(), set(waiting)).exit_code is code
