"""Bring a GPU lab up from one YAML inventory, and prove it.

The library: `from provision import load`, then `load(FILE).plan()`, `.apply()`, `.verify()`, `.destroy()`.
Names are imported when they are first used, so that `import provision` alone costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from provision.api import Options, Plan, RunReport, Site, load
    from provision.values.cancel import Cancel, Interrupted
    from provision.values.diagnostics import Diagnostic
    from provision.values.errors import ProvisionError, Refused, UsageError
    from provision.values.outcomes import ExitCode, Outcome
    from provision.verify.model import CheckOutcome, VerifyReport

__version__ = "0.1.0"

__all__ = [
    "Cancel",
    "CheckOutcome",
    "Diagnostic",
    "ExitCode",
    "Interrupted",
    "Options",
    "Outcome",
    "Plan",
    "ProvisionError",
    "Refused",
    "RunReport",
    "Site",
    "UsageError",
    "VerifyReport",
    "load",
]
_HOMES = {
    "provision.api": ("Options", "Plan", "RunReport", "Site", "load"),
    "provision.values.cancel": ("Cancel", "Interrupted"),
    "provision.values.diagnostics": ("Diagnostic",),
    "provision.values.errors": ("ProvisionError", "Refused", "UsageError"),
    "provision.values.outcomes": ("ExitCode", "Outcome"),
    "provision.verify.model": ("CheckOutcome", "VerifyReport"),
}


def __getattr__(name: str) -> Any:
    """Import a name of the library when it is first used (PEP 562)."""
    for module, names in _HOMES.items():
        if name in names:
            from importlib import import_module  # noqa: PLC0415 - `import provision` is cheap

            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
