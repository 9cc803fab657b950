from provision.values.diagnostics import Diagnostic
from provision.values.outcomes import ExitCode
from provision.verify.model import CheckOutcome, CheckResult, Silence, VerifyReport

AWAY = Silence(Diagnostic("HOST_UNREACHABLE", "no SSH connection", "n1"))
STRANGER = Silence(Diagnostic("HOST_KEY_UNKNOWN", "nobody accepted its key", "n2"), ExitCode.REFUSED)


def test_a_system_that_gives_no_answers_is_an_error_and_no_success() -> None:
    unsure = CheckResult("the host name", "n1", CheckOutcome.UNKNOWN, "no SSH connection")
    assert VerifyReport((unsure,)).exit_code(strict=False) is ExitCode.DONE
    assert VerifyReport((unsure,), silent=(AWAY,)).exit_code(strict=False) is ExitCode.ERROR
    assert VerifyReport((unsure,), silent=(AWAY,)).exit_code(strict=True) is ExitCode.ERROR


def test_the_worst_of_all_that_was_found_decides() -> None:
    failed = CheckResult("the host name", "n3", CheckOutcome.FAILED)
    assert VerifyReport((failed,), silent=(STRANGER,)).exit_code(strict=False) is ExitCode.REFUSED
    assert VerifyReport((), silent=(AWAY, STRANGER)).exit_code(strict=True) is ExitCode.REFUSED
    assert VerifyReport((failed,), silent=(AWAY,)).exit_code(strict=True) is ExitCode.ERROR
    assert VerifyReport((failed,)).exit_code(strict=True) is ExitCode.VERIFY_FAILED
