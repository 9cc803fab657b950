from provision.values.diagnostics import Diagnostic
from provision.values.outcomes import ExitCode
from provision.verify.model import CheckOutcome, CheckResult, VerifyReport

AWAY = Diagnostic("HOST_UNREACHABLE", "no SSH connection", "n1")


def test_a_system_that_gives_no_answers_is_an_error_and_no_success() -> None:
    unsure = CheckResult("the host name", "n1", CheckOutcome.CANNOT_TELL, "no SSH connection")
    assert VerifyReport((unsure,)).exit_code(strict=False) is ExitCode.DONE
    assert VerifyReport((unsure,), silent=(AWAY,)).exit_code(strict=False) is ExitCode.ERROR
    assert VerifyReport((unsure,), silent=(AWAY,)).exit_code(strict=True) is ExitCode.ERROR
