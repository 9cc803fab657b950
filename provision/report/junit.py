"""JUnit XML of verification, in the form that CI systems read (testsuites, testsuite, testcase)."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from provision.report.checks import FAILED, OUTCOMES, PROVEN, Check


def junit_xml(name: str, checks: Sequence[Check], seconds: float) -> str:
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
        message = _clean(check.message)
        if check.outcome == FAILED:
            ET.SubElement(case, "failure", {"message": _first(message)}).text = message
        elif check.outcome != PROVEN:
            ET.SubElement(case, "skipped", {"message": f"{check.outcome}: {message}"})
        elif message:
            ET.SubElement(case, "system-out").text = message
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _first(message: str) -> str:
    return message.splitlines()[0] if message else "failed"


def _clean(text: str) -> str:
    """Return text without the characters that XML 1.0 cannot hold at all."""
    return "".join(char if _allowed(ord(char)) else f"\\x{ord(char):02x}" for char in text)


def _allowed(code: int) -> bool:
    return code in {0x9, 0xA, 0xD} or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000  # noqa: PLR2004 - the Char production of XML 1.0
