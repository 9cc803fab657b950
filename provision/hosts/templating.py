"""Texts and templates of the inventory: Jinja2, sandboxed, strict about names that are not set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from provision.values.diagnostics import Diagnostic, Source
from provision.values.errors import UsageError

_LIMIT = 1024 * 1024
"""Bytes of a template, and of what it may become."""
_NAME = re.compile(r"(?<!\{)\{\{ *([A-Za-z_][A-Za-z0-9_]*) *\}\}")
_CONSTANTS = frozenset({"true", "false", "none", "True", "False", "None", "not", "loop", "self", "super"})
"""Names that Jinja2 does not look up among the values."""


@lru_cache(maxsize=1)
def _environment() -> Any:
    from provision.hosts.limited_templates import (  # noqa: PLC0415 - slow, and only for texts with braces
        LimitedEnvironment,
    )

    return LimitedEnvironment()


@lru_cache(maxsize=1024)
def _compiled(text: str) -> Any:
    return _environment().from_string(text)


def render(text: str, values: Mapping[str, object], what: str, source: Source | None = None) -> str:
    """Return a text with its `{{ names }}` filled in; a text without braces is returned as it is.

    Args:
        text: the text.
        values: value by name.
        what: what the text is, for messages.
        source: inventory line.

    Raises:
        UsageError: `TEMPLATE_ERROR`: wrong syntax, an unset name, or something that the sandbox forbids.
    """
    if "{{" not in text and "{%" not in text and "{#" not in text:
        return text
    filled = _filled(text, values)
    if filled is not None:
        return filled
    from jinja2 import TemplateError  # noqa: PLC0415 - slow, see above

    from provision.hosts.limited_templates import render_limited  # noqa: PLC0415 - likewise

    if len(text) > _LIMIT:
        raise _error(f"{what} is larger than 1 MiB", source)
    try:
        rendered = render_limited(_compiled(text), values)
    except TemplateError as error:
        raise _error(f"{what}: {error.message or type(error).__name__}", source) from None
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise _error(f"{what}: {error}", source) from None
    except (RecursionError, MemoryError) as error:
        raise _error(f"{what}: {type(error).__name__}", source) from None
    return rendered


def _filled(text: str, values: Mapping[str, object]) -> str | None:
    """Return what Jinja2 makes of a text with nothing but `{{ names }}` of texts and numbers, else None.

    Most texts of an inventory are such, and a thousand nodes fill in each of them.
    """
    parts = _NAME.split(text)
    names = parts[1::2]
    plain = parts[0::2]
    if "\r" in text or any("{{" in part or "{%" in part or "{#" in part for part in plain):
        return None
    if any(name in _CONSTANTS or type(values.get(name)) not in (str, int) for name in names):
        return None
    parts[1::2] = [str(values[name]) for name in names]
    return "".join(parts) if sum(map(len, parts)) <= _LIMIT else None


def read_template(path: Path, source: Source | None = None) -> str:
    """Return the text of a template file on the controller.

    Raises:
        UsageError: `TEMPLATE_UNREADABLE`.
    """
    try:
        status = path.stat()
        data = _bytes(path, (status.st_ino, status.st_mtime_ns, status.st_size))
    except OSError as error:
        raise _unreadable(path, error.strerror or "it cannot be read", source) from None
    if len(data) > _LIMIT:
        raise _unreadable(path, "it is larger than 1 MiB", source)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _unreadable(path, "it is not UTF-8 text", source) from None


@lru_cache(maxsize=64)
def _bytes(path: Path, stamp: tuple[int, ...]) -> bytes:
    """Return a file's bytes, up to one more than the limit; hosts share templates."""
    del stamp  # part of the cache's key: a changed file is read again
    with path.open("rb") as file:
        return file.read(_LIMIT + 1)


def _error(summary: str, source: Source | None) -> UsageError:
    remedy = "correct the text, or set the name under vars: of the inventory, hypervisor, profile or node"
    return UsageError(Diagnostic("TEMPLATE_ERROR", summary, source=source, remedy=remedy))


def _unreadable(path: Path, reason: str, source: Source | None) -> UsageError:
    return UsageError(Diagnostic("TEMPLATE_UNREADABLE", f"the template {path}: {reason}", source=source))
