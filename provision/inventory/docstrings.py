"""Reads the one-line docstrings of the models' fields from their source; only docs and schema need them."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache

from pydantic import BaseModel


@cache
def _module(name: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(sys.modules[name])).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = _fields(node)
    return found


def _fields(node: ast.ClassDef) -> dict[str, str]:
    found = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            found[field.target.id] = text.value.value.strip()
    return found


def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field of a model, inherited ones included."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, BaseModel) and each is not BaseModel:
            found.update(_module(each.__module__).get(each.__name__, {}))
    return {name: found.get(name, "") for name in model.model_fields}
