"""Imports that wait for their first use."""

from __future__ import annotations

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec


def import_at_first_use(name: str) -> None:
    """Put a module in place that is only loaded when something of it is used.

    For what a library imports and hardly ever uses: paramiko imports invoke, and with it asyncio and
    unittest.mock, for `Match exec` in ~/.ssh/config alone. See importlib's documentation, "Implementing lazy
    imports".

    Args:
        name: a top-level module; where it is not installed, nothing happens.
    """
    if name in sys.modules:
        return
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        return
    spec.loader = LazyLoader(spec.loader)
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
