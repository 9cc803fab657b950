"""Writes the generated pages, and the outputs of commands in all pages: `make docs`."""

from __future__ import annotations

from docs.generators.console import refreshed
from docs.generators.pages import GENERATED, PAGES, ROOT

for name, page in GENERATED.items():
    (ROOT / "docs" / name).write_text(page(), encoding="utf-8")
for path in PAGES:
    path.write_text(refreshed(path.read_text(encoding="utf-8")), encoding="utf-8")
