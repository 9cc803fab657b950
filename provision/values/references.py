"""Objects that are named as `module:attribute`, as entry points are, and imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter
from typing import Any


def load_object(reference: str) -> Any:
    """Return what `module:attribute` names.

    Raises:
        ImportError, AttributeError: there is no such thing.
    """
    module, _, attribute = reference.partition(":")
    return attrgetter(attribute)(import_module(module))
