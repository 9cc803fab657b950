"""All pages of the documentation, and those that are generated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from docs.generators import (
    cli_reference,
    events_reference,
    inventory_reference,
    preflight_reference,
    verify_reference,
)

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
GENERATED: Mapping[str, Callable[[], str]] = {
    "cli.md": cli_reference.reference,
    "inventory.md": inventory_reference.reference_markdown,
    "preflight.md": preflight_reference.reference,
    "events.md": events_reference.reference,
    "verify.md": verify_reference.reference,
}
