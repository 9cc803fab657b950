"""What a preflight rule is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.values.diagnostics import Diagnostic, Severity

if TYPE_CHECKING:
    pass
from provision.proxmox.preflight.site import Site


@dataclass(frozen=True, slots=True)
class UnknownYet:
    """A rule that lacks evidence now, and why; it is asked again when its step is reached."""

    reason: str
    subject: str = ""


Finding = Diagnostic | UnknownYet


@dataclass(frozen=True, slots=True)
class Rule:
    """One check before anything is touched.

    Args:
        codes: stable codes of its diagnostics.
        when: when it refuses or warns, for the reference.
        remedy: what helps, for the reference.
        check: looks at the site and answers findings; empty means fine.
        severity: error refuses the run, warning is shown.
        removal: it bears on a removal, too; a destroy runs no other.
    """

    codes: tuple[str, ...]
    when: str
    remedy: str
    check: Callable[[Site], list[Finding]]
    severity: Severity = Severity.ERROR
    removal: bool = False
