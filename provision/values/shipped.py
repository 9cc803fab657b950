"""Where the files that ship with the tool lie."""

from __future__ import annotations

from pathlib import Path


def shipped_folder(kind: str) -> Path:
    """Return the folder of shipped files: in the installed package, else beside the package in a checkout.

    Args:
        kind: `playbooks`, `templates` or `inventories`.
    """
    package = Path(__file__).resolve().parents[1]
    installed = package / "_shipped" / kind
    return installed if installed.is_dir() else package.parent / kind
