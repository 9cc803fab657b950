"""fakepve's fixtures, here alone: its plugin, off in pyproject.toml, makes every start of pytest slow."""

from __future__ import annotations

from fakepve.pytest_plugin import _fakepve_pki, fakepve, fakepve_cafile

__all__ = ["_fakepve_pki", "fakepve", "fakepve_cafile"]
