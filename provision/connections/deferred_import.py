"""Imports that are deferred to the first use of the module."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _DeferredModule(ModuleType):
    """Takes the place of a module until an attribute of it is read.

    `importlib.util.LazyLoader` does not suffice: with it, the second `import` statement loads the module.
    """

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def import_at_first_use(name: str) -> None:
    """Load a module when an attribute of it is read, not when it is imported.

    For modules that a library imports and rarely uses: paramiko imports invoke, and with it asyncio and
    unittest.mock, for `Match exec` in ~/.ssh/config alone.

    Args:
        name: a top-level module; nothing happens if it is loaded already or not installed.
    """
    if name not in sys.modules and find_spec(name) is not None:
        sys.modules[name] = _DeferredModule(name)
