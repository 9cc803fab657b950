"""Reads the one-line docstrings of the models' fields from their source; only docs and schema need them."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache

from pydantic import BaseModel


@cache
def _module(name: str) -> dict[str, dict[str, str]]:
    classes: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(sys.modules[name])).body:
        if isinstance(node, ast.ClassDef):
            classes[node.name] = _fields(node)
    return classes


def _fields(node: ast.ClassDef) -> dict[str, str]:
    docs = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            docs[field.target.id] = text.value.value.strip()
    return docs


def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field of a model, inherited ones included."""
    docs: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if issubclass(cls, BaseModel) and cls is not BaseModel:
            docs.update(_module(cls.__module__).get(cls.__name__, {}))
    return {name: docs.get(name, "") for name in model.model_fields}
