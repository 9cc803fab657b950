"""All generated pages."""

from __future__ import annotations

from pathlib import Path

from docs.generators import cli_reference as commands
from docs.generators import inventory_reference as inventory
from docs.generators import preflight_reference as preflight
from docs.generators import verify_reference as checks
from provision.report import schema as events

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
GENERATED = {
    "cli.md": commands.reference,
    "inventory.md": inventory.reference_markdown,
    "preflight.md": preflight.reference,
    "events.md": events.reference,
    "verify.md": checks.reference,
}
