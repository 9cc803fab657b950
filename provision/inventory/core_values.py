"""Scalars as they were typed, and what they mean by YAML 1.2 core."""

from __future__ import annotations

from typing import Any


class Scalar(str):
    """A scalar as it was typed, with its YAML 1.2 core type and the folder of its file.

    Args (set after creation):
        core: `str`, `int`, `float` or `bool`; quoted scalars are always `str`.
        folder: folder of the file that it stands in, for relative paths.
    """

    __slots__ = ("core", "folder")

    core: str
    folder: str


def core_value(value: Any) -> Any:
    """Return plain Python values by YAML 1.2 core: what Helm charts and JSON receive."""
    if isinstance(value, Scalar):
        return _core_scalar(value)
    if isinstance(value, dict):
        return {str.__str__(key): core_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [core_value(item) for item in value]
    return value


def _core_scalar(value: Scalar) -> str | int | float | bool:
    text = str.__str__(value)
    if value.core == "int":
        return to_int(text)
    if value.core == "float":
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if value.core == "bool":
        return text.lower() == "true"
    return text


def typed_value(value: Any) -> Any:
    """Return plain Python values that print as they were typed: what templates receive.

    A number whose text would change (`1.10`, `0644`) stays text.
    """
    if isinstance(value, Scalar):
        plain = _core_scalar(value)
        same = isinstance(plain, bool) or str(plain) == str.__str__(value)
        return plain if same else str.__str__(value)
    if isinstance(value, dict):
        return {str.__str__(key): typed_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [typed_value(item) for item in value]
    return value


def to_int(text: str) -> int:
    """Return the number of a YAML 1.2 core integer (`12`, `0o17`, `0x1F`)."""
    if text.startswith("0o"):
        return int(text, 8)
    if text.startswith("0x"):
        return int(text, 16)
    return int(text, 10)
