"""Writes the generated pages, and the outputs of commands in all pages: `make docs`."""

from __future__ import annotations

from pathlib import Path

from docs.generators.console import refreshed

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


def main() -> None:
    """Write all pages that differ."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if refreshed(text) != text:
            page.write_text(refreshed(text), encoding="utf-8")


if __name__ == "__main__":
    main()
