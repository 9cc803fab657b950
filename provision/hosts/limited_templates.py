"""Jinja2 with limits: what a text may become, and how long it may take to become it.

The sandbox of Jinja2 keeps templates from the controller's objects, not from its memory and time. Whatever
can multiply text is computed only if the result stays below the limit, and each line of a template that runs
looks at the clock.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

from jinja2 import StrictUndefined, TemplateRuntimeError, pass_eval_context
from jinja2.filters import FILTERS
from jinja2.sandbox import ImmutableSandboxedEnvironment

LIMIT = 1024 * 1024
"""Characters that a text may have, also while it is made."""

SECONDS = 2.0
"""How long one text may take."""

_FILTERS = """
abs capitalize count d default dictsort e escape first float indent int items join last length list lower map
max min reject rejectattr replace round select selectattr sort string sum title tojson trim truncate unique
upper wordcount
"""
_METHODS = """
capitalize casefold count endswith find index isalnum isalpha isdecimal isdigit islower isnumeric isspace
isupper join lower lstrip partition removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip
split splitlines startswith strip swapcase title upper
"""
_MULTIPLYING = ("*", "**", "%", "+")


class LimitError(TemplateRuntimeError):
    """A text becomes too large, or takes too long."""


def _too_large() -> LimitError:
    return LimitError("becomes larger than 1 MiB")


def _size(value: object) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict) else 0


def _joined_size(parts: Any, glue: object = "") -> int:
    return sum(_size(part) if isinstance(part, str) else 24 for part in parts) + _size(glue) * _size(parts)


def _replaced_size(text: str, old: str, new: str) -> int:
    return len(text) + (text.count(old) if old else len(text) + 1) * len(new)


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Texts of at most 1 MiB, numbers of at most 4,300 digits, ranges of at most 100,000 steps."""

    intercepted_binops = frozenset(_MULTIPLYING)

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined,
            autoescape=False,  # configuration files of hosts, no HTML
            keep_trailing_newline=True,
        )
        own = {"join": _join, "replace": _replace, "indent": _indent, "tojson": _to_json}
        self.filters = {name: own.get(name, self.filters[name]) for name in _FILTERS.split()}
        self.globals = {"range": self.globals["range"], "dict": self.globals["dict"]}

    def wrap_str_format(self, value: Any) -> None:
        """Let no template call str.format, whose widths multiply text."""

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute an operation if its result stays small."""
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "*" and not numbers:
            count = next((side for side in (left, right) if isinstance(side, int)), 0)
            size = max(_size(left), _size(right)) * count
            context.multiplied = getattr(context, "multiplied", 0) + size
            if size > LIMIT or context.multiplied > 16 * LIMIT:
                raise _too_large()
        if operator == "+" and _size(left) + _size(right) > LIMIT:
            raise _too_large()
        if operator == "%" and not numbers:
            raise LimitError("formats by `%`, which is not supported: use `~` or a filter")
        if operator == "**" and not (abs(left) < 2**64 and abs(right) < 256):  # noqa: PLR2004 - below 4,300 digits
            raise LimitError("computes a number that is too large")
        if operator == "*" and numbers and max(abs(left), abs(right)) > 10**2000:
            raise LimitError("computes a number that is too large")
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may read an attribute; of texts, methods that cannot multiply them."""
        if isinstance(obj, str):
            return attr in _METHODS.split()
        return super().is_safe_attribute(obj, attr, value)

    def call(self, context: Any, method: Any, *args: Any, **kwargs: Any) -> Any:
        """Call something if its result stays small."""
        text = getattr(method, "__self__", None)
        name = getattr(method, "__name__", "")
        if isinstance(text, str) and name == "join":
            args = (list(args[0]),)
            if _joined_size(args[0], text) > LIMIT:
                raise _too_large()
        if isinstance(text, str) and name == "replace" and _replaced_size(text, *args[:2]) > LIMIT:
            raise _too_large()
        return super().call(context, method, *args, **kwargs)


def _join(value: Any, d: str = "") -> str:
    parts = [str(part) for part in value]
    if _joined_size(parts, d) > LIMIT:
        raise _too_large()
    return str(d).join(parts)


def _replace(text: object, old: str, new: str, count: int = -1) -> str:
    if _replaced_size(str(text), old, new) > LIMIT:
        raise _too_large()
    return str(text).replace(old, new, count)


def _indent(text: object, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    indention = width if isinstance(width, str) else " " * min(max(width, 0), LIMIT)
    lines = str(text).splitlines(keepends=True)
    if len(str(text)) + len(indention) * len(lines) > LIMIT:
        raise _too_large()
    return "".join(
        indention + line if (index or first) and (blank or line.strip()) else line
        for index, line in enumerate(lines)
    )


@pass_eval_context
def _to_json(context: Any, value: Any, indent: int | None = None) -> Any:
    if indent is not None and not 0 <= indent <= 16:  # noqa: PLR2004 - what a person reads
        raise LimitError("tojson takes an indent from 0 to 16")
    return FILTERS["tojson"](context, value, indent)


class _Clock:
    """Looks at the time at each call and line of a template that runs, and at the size of what it holds."""

    def __init__(self) -> None:
        self._end = time.monotonic() + SECONDS

    def __call__(self, frame: FrameType, _event: str, _argument: object) -> Any:
        if time.monotonic() > self._end:
            raise LimitError(f"takes longer than {SECONDS:g} s")
        return self._line if frame.f_code.co_filename == "<template>" else None

    def _line(self, frame: FrameType, _event: str, _argument: object) -> Any:
        if time.monotonic() > self._end:
            raise LimitError(f"takes longer than {SECONDS:g} s")
        if any(type(value) is str and len(value) > LIMIT for value in frame.f_locals.values()):
            raise _too_large()
        return self._line


def render_limited(template: Any, values: Mapping[str, object]) -> str:
    """Return what a template becomes.

    Raises:
        TemplateError: it is wrong, or passes a limit.
    """
    before = sys.gettrace()
    pieces, size = [], 0
    sys.settrace(_Clock())
    try:
        for piece in template.generate(values):
            pieces.append(piece)
            size += len(piece)
            if size > LIMIT:
                raise _too_large()
    finally:
        sys.settrace(before)
    return "".join(pieces)
