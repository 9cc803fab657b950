import xml.etree.ElementTree as ET

import pytest

from provision.report.checks import OUTCOMES, print_checks, style_of, totals
from provision.report.history import CheckRecord, RunRecord
from provision.report.html import html_report
from provision.report.junit import junit_xml
from provision.values.diagnostics import Diagnostic
from provision.values.outcomes import ExitCode
from provision.verify.model import CheckOutcome, CheckResult, Silence, VerifyReport
from tests.unit.report.samples import shown

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


PROVEN = CheckResult("the host name", "n1", CheckOutcome.PROVEN)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (CheckResult("swap", "n2", CheckOutcome.PROVEN), ExitCode.DONE),
        (CheckResult("swap", "n2", CheckOutcome.TRIVIAL, "nothing to compare"), ExitCode.UNKNOWN),
        (CheckResult("swap", "n2", CheckOutcome.UNKNOWN, "no systemd"), ExitCode.UNKNOWN),
        (CheckResult("swap", "n2", CheckOutcome.UNKNOWN, "off by hand", excused=True), ExitCode.DONE),
        (CheckResult("swap", "n2", CheckOutcome.NOT_RUN, "left out", excused=True), ExitCode.DONE),
        (CheckResult("swap", "n2", CheckOutcome.FAILED, "/dev/vdb"), ExitCode.VERIFY_FAILED),
    ],
)
def test_a_subject_of_which_nothing_is_proven_is_in_doubt(result: CheckResult, code: ExitCode) -> None:
    assert VerifyReport((PROVEN, result)).exit_code(strict=True) is code


@pytest.mark.parametrize("outcome", CheckOutcome)
def test_only_what_is_proven_of_every_subject_is_green(outcome: CheckOutcome) -> None:
    other = CheckResult("swap", "n2", outcome, "why")
    is_green = style_of((PROVEN, other)) == "green"
    assert is_green is (outcome is CheckOutcome.PROVEN)


def test_a_trivial_check_beside_a_proven_one_of_its_subject_is_green() -> None:
    trivial = CheckResult("swap", "n1", CheckOutcome.TRIVIAL, "nothing to compare")
    assert style_of((PROVEN, trivial)) == "green"
    assert style_of((trivial,)) != "green"
    assert style_of(()) != "green"


@pytest.mark.parametrize("outcome", CheckOutcome)
def test_each_of_the_five_outcomes_is_counted_with_its_denominator(outcome: CheckOutcome) -> None:
    assert set(map(str, CheckOutcome)) == set(OUTCOMES)
    checks = (PROVEN, PROVEN, CheckResult("swap", "n2", outcome, "why"))
    number = 3 if outcome is CheckOutcome.PROVEN else 1
    words = f"{number} of 3 checks proven" if number == 3 else f"{number} {str(outcome).replace('-', ' ')}"
    assert words in totals(checks)
    assert words in shown(lambda console: print_checks(console, checks))
    records = tuple(
        CheckRecord(each.check, each.subject, str(each.outcome), "", False, 0.0, 0.0) for each in checks
    )
    run = RunRecord("20260101-abc", "lab", "verify", 0.0, "root@here", 1.0, 0, False, checks=records)
    assert words in html_report(run)
    suite = ET.fromstring(junit_xml("lab", checks, 1.0)).find("testsuite")  # noqa: S314 - our own document
    assert suite is not None
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert properties[str(outcome)] == f"{number} of 3"
    is_skipped = outcome not in (CheckOutcome.PROVEN, CheckOutcome.FAILED)
    assert (suite.find("testcase/skipped") is not None) is is_skipped
