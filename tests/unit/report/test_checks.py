from __future__ import annotations

import xml.etree.ElementTree as ET

from provision.report.checks import print_checks
from provision.report.junit import junit_xml
from provision.verify.model import CheckOutcome, CheckResult
from tests.unit.report.samples import shown

CHECKS = (
    CheckResult("the card has no host driver", "pve", CheckOutcome.PROVEN, seconds=0.5),
    CheckResult("the clock is right", "vm-1", CheckOutcome.PROVEN),
    CheckResult(
        "root fills the disk", "vm-1", CheckOutcome.FAILED, "3.9 GiB of 8 GiB\n<&\x00 more", seconds=1.25
    ),
    CheckResult("the card is there", "vm-gpu", CheckOutcome.UNKNOWN, "off by hand", excused=True),
)


def test_the_table_shows_what_did_not_pass() -> None:
    assert shown(lambda console: print_checks(console, CHECKS, seconds=4.2)).splitlines() == [
        "pve     1 of 1 check proven",
        "vm-1    1 of 2 checks proven",
        "  FAILED       root fills the disk",
        "               3.9 GiB of 8 GiB",
        r"               <&\x00 more",
        "vm-gpu  0 of 1 check proven",
        "  unknown (no fault)  the card is there",
        "               off by hand",
        "",
        "Verified in 4.2 s: 2 of 4 checks proven, 1 failed, 0 trivial, 1 unknown, 0 not run",
    ]


def test_the_full_table_shows_everything() -> None:
    text = shown(lambda console: print_checks(console, CHECKS, full=True))
    assert "proven       the card has no host driver" in text


def test_a_remark_on_a_check_that_passed_is_shown() -> None:
    noted = CheckResult("no unit has failed", "vm-1", CheckOutcome.PROVEN, "other.service is not ours")
    text = shown(lambda console: print_checks(console, (noted,)))
    assert "proven       no unit has failed" in text
    assert "other.service is not ours" in text
    assert "1 of 1 check proven" in text
    suite = ET.fromstring(junit_xml("lab", (noted,), 1.0)).find("testsuite")  # noqa: S314 - our own document
    assert suite is not None
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "0")
    assert suite.findtext("testcase/system-out") == "other.service is not ours"


def test_many_checks_with_one_cause_are_one_line() -> None:
    many = [CheckResult(f"check {n}", "vm-1", CheckOutcome.FAILED, "there is no VM") for n in range(9)]
    text = shown(lambda console: print_checks(console, (*CHECKS, *many)))
    assert text.count("there is no VM") == 1
    assert "FAILED       9 checks" in text
    assert "FAILED       root fills the disk" in text
    assert "check 7" in shown(lambda console: print_checks(console, many, full=True))


def test_no_check_is_no_proof() -> None:
    assert "No check applies" in shown(lambda console: print_checks(console, ()))


def test_junit_counts_and_explains() -> None:
    suite = ET.fromstring(junit_xml("lab", CHECKS, 4.2)).find("testsuite")  # noqa: S314 - our own document
    assert suite is not None
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "4",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
        "time": "4.200",
    }
    cases = suite.findall("testcase")
    assert [(case.get("classname"), case.get("name"), case.get("time")) for case in cases] == [
        ("lab.pve", "the card has no host driver", "0.500"),
        ("lab.vm-1", "the clock is right", "0.000"),
        ("lab.vm-1", "root fills the disk", "1.250"),
        ("lab.vm-gpu", "the card is there", "0.000"),
    ]
    failure, skipped = cases[2].find("failure"), cases[3].find("skipped")
    assert failure is not None
    assert failure.get("message") == "3.9 GiB of 8 GiB"
    assert failure.text == "3.9 GiB of 8 GiB\n<&\\x00 more"
    assert skipped is not None
    assert skipped.get("message") == "unknown: off by hand"
