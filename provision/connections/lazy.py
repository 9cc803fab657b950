"""Imports that wait for their first use."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    """Stands for a module until something of it is wanted.

    `importlib.util.LazyLoader` does not do: with it, the second `import` statement loads the module.
    """

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def import_at_first_use(name: str) -> None:
    """Put a stand-in for a module in place, which loads it when something of it is used.

    For what a library imports and hardly ever uses: paramiko imports invoke, and with it asyncio and
    unittest.mock, for `Match exec` in ~/.ssh/config alone.

    Args:
        name: a top-level module; where it is loaded or not installed, nothing happens.
    """
    if name not in sys.modules and find_spec(name) is not None:
        sys.modules[name] = _Later(name)
