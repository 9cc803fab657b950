"""JUnit XML of verification, in the form that CI systems read (testsuites, testsuite, testcase)."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Protocol

from provision.report.checks import FAILED, OUTCOMES, PROVEN, Check


class Measured(Protocol):
    """A figure of a check."""

    @property
    def name(self) -> str: ...  # noqa: D102 - what was measured
    @property
    def value(self) -> float: ...  # noqa: D102 - as a number
    @property
    def unit(self) -> str: ...  # noqa: D102 - of value and expectation
    @property
    def expected(self) -> float | None: ...  # noqa: D102 - None where nothing is declared
    @property
    def margin(self) -> float: ...  # noqa: D102 - how far it may be below, as a share


class MeasuredCheck(Check, Protocol):
    """A result with its figures."""

    @property
    def figures(self) -> Sequence[Measured]: ...  # noqa: D102 - what it has measured


def junit_xml(name: str, checks: Sequence[MeasuredCheck], seconds: float) -> str:
    """Return the document: only what is proven passes, what is not and has not failed is skipped.

    Args:
        name: the inventory's name.
        checks: all results.
        seconds: time of the whole verification.
    """
    failed = sum(check.outcome == FAILED for check in checks)
    skipped = sum(check.outcome not in (PROVEN, FAILED) for check in checks)
    counts = {
        "tests": str(len(checks)),
        "failures": str(failed),
        "errors": "0",
        "skipped": str(skipped),
        "time": f"{seconds:.3f}",
    }
    root = ET.Element("testsuites", {"name": "provision", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": _clean(name), **counts})
    properties = ET.SubElement(suite, "properties")
    for outcome in OUTCOMES:
        number = sum(check.outcome == outcome for check in checks)
        value = f"{number} of {len(checks)}"
        ET.SubElement(properties, "property", {"name": outcome, "value": value})
    for check in checks:
        attributes = {
            "classname": _clean(f"{name}.{check.subject}"),
            "name": _clean(check.name),
            "time": f"{check.seconds:.3f}",
        }
        case = ET.SubElement(suite, "testcase", attributes)
        _add_figures(case, check.figures)
        message = _clean(check.message)
        if check.outcome == FAILED:
            ET.SubElement(case, "failure", {"message": _first(message)}).text = message
        elif check.outcome != PROVEN:
            ET.SubElement(case, "skipped", {"message": f"{check.outcome}: {message}"})
        elif message:
            ET.SubElement(case, "system-out").text = message
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add_figures(case: ET.Element, figures: Sequence[Measured]) -> None:
    if not figures:
        return
    properties = ET.SubElement(case, "properties")
    for figure in figures:
        values = {
            "value": figure.value,
            "unit": figure.unit,
            "expected": figure.expected,
            "margin": figure.margin,
        }
        for key, value in values.items():
            if value not in (None, ""):
                attributes = {"name": _clean(f"{figure.name}.{key}"), "value": _clean(str(value))}
                ET.SubElement(properties, "property", attributes)


def _first(message: str) -> str:
    return message.splitlines()[0] if message else "failed"


def _clean(text: str) -> str:
    """Return text without the characters that XML 1.0 cannot hold at all."""
    return "".join(char if _allowed(ord(char)) else f"\\x{ord(char):02x}" for char in text)


def _allowed(code: int) -> bool:
    return code in {0x9, 0xA, 0xD} or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000  # noqa: PLR2004 - the Char production of XML 1.0
