"""The rule about the machine that provision itself runs on."""

from __future__ import annotations

from pathlib import Path

from provision.preflight.model import Finding, Rule, Site, text_of
from provision.resources.host.query_file import FileText
from provision.roles import names
from provision.values.diagnostics import Diagnostic, Severity

MACHINE = FileText("/etc/machine-id")


def controller(site: Site, own: str | None = None) -> list[Finding]:
    """Warn when this very machine is one of those that may be rebooted."""
    machine = own if own is not None else _machine_id()
    if not machine:
        return []
    found: list[Finding] = []
    for subject in (*site.inventory.hypervisors, *site.inventory.nodes):
        answer = text_of(site.answer(names.ssh(subject), MACHINE))
        if isinstance(answer, str) and answer.strip() == machine:
            found.append(
                Diagnostic(
                    "CONTROLLER_ON_TARGET",
                    f"provision runs on {subject}, which it may have to reboot",
                    subject,
                    severity=Severity.WARNING,
                    remedy="Its reboot comes last; run the same command again after it.",
                )
            )
    return found


def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return ""


RULES = (
    Rule(
        ("CONTROLLER_ON_TARGET",),
        "provision runs on a machine that it may reboot",
        "run the same command again after the reboot",
        controller,
        severity=Severity.WARNING,
    ),
)
