"""All generated pages."""

from __future__ import annotations

from pathlib import Path

from provision.cli import reference as commands
from provision.inventory import reference as inventory
from provision.preflight import reference as preflight
from provision.report import schema as events
from provision.verify import reference as checks

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
GENERATED = {
    "cli.md": commands.reference,
    "inventory.md": inventory.reference_markdown,
    "preflight.md": preflight.reference,
    "events.md": events.reference,
    "verify.md": checks.reference,
}
