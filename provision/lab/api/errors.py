"""How the API says no: as an HTTP answer, or as the end of a task."""

from __future__ import annotations

from collections.abc import Mapping

VERIFICATION_FAILED = "Parameter verification failed."


class ApiError(Exception):
    """A refused request. The message becomes the HTTP reason phrase, as in Proxmox VE.

    Args:
        status: HTTP status code.
        message: one line; also the body's `message`.
        errors: texts by parameter.
        bare: answer without a body, as the real proxy does for failed authentication.
        text: the body is the message alone, as where the real proxy itself dies.
    """

    def __init__(
        self,
        status: int,
        message: str,
        errors: Mapping[str, str] | None = None,
        *,
        bare: bool = False,
        text: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = dict(errors or {})
        self.bare = bare
        self.text = text


def failed(message: str) -> ApiError:
    """Return what Proxmox VE answers whenever its code dies: 500 with the text."""
    return ApiError(500, message)


def forbidden(detail: str = "") -> ApiError:
    """Return 403, naming path and privileges unless `detail` is empty."""
    return ApiError(403, "Permission check failed" + (f" ({detail})" if detail else ""))


def bad_parameter(name: str, text: str) -> ApiError:
    """Return 400 for one parameter."""
    return ApiError(400, VERIFICATION_FAILED, {name: text})


class TaskError(Exception):
    """A task ends with this text as its exit status."""
