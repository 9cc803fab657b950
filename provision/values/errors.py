"""The error vocabulary: what may be tried again, what may not, and what a user reads."""

from __future__ import annotations

from collections.abc import Sequence

from provision.values.diagnostics import Diagnostic
from provision.values.outcomes import ExitCode


class ProvisionError(Exception):
    """Base of all errors that a user may see; carries diagnostics, never a traceback.

    Args:
        diagnostics: one or more problems, all at once.
        exit_code: what the process ends with if nothing worse happened.
    """

    exit_code = ExitCode.ERROR

    def __init__(
        self, diagnostics: Diagnostic | Sequence[Diagnostic], exit_code: ExitCode | None = None
    ) -> None:
        self.diagnostics = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        if exit_code is not None:
            self.exit_code = exit_code
        super().__init__(
            "; ".join(f"{diagnostic.code}: {diagnostic.summary}" for diagnostic in self.diagnostics)
        )


class UsageError(ProvisionError):
    """Wrong usage or wrong inventory: exit 64."""

    exit_code = ExitCode.USAGE


class Refused(ProvisionError):  # noqa: N818 - reads as the outcome it is
    """Preflight, an unknown host key or a stale plan refused before anything was touched: exit 4."""

    exit_code = ExitCode.REFUSED


class Permanent(ProvisionError):  # noqa: N818 - the field's word
    """Trying again cannot help."""


class Transient(ProvisionError):  # noqa: N818 - the field's word
    """May go away by itself.

    Args:
        retry_after: seconds to wait before the next try.
    """

    def __init__(self, diagnostics: Diagnostic | Sequence[Diagnostic], retry_after: float = 1.0) -> None:
        super().__init__(diagnostics)
        self.retry_after = retry_after


class UnknownOutcome(ProvisionError):  # noqa: N818 - the field's word
    """An action may or may not have happened: look it up, never repeat it.

    Args:
        handle: how to look it up (a UPID, a run id), if there is one.
    """

    def __init__(self, diagnostics: Diagnostic | Sequence[Diagnostic], handle: str = "") -> None:
        super().__init__(diagnostics)
        self.handle = handle
