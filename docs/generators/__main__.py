"""Writes the generated pages, the outputs of commands in all pages, and the pictures: `make docs`."""

from __future__ import annotations

from docs.generators.console import refreshed
from docs.generators.pages import GENERATED, PAGES, ROOT
from docs.generators.pictures import draw_all

for name, page in GENERATED.items():
    (ROOT / "docs" / name).write_text(page(), encoding="utf-8")
for path in PAGES:
    path.write_text(refreshed(path.read_text(encoding="utf-8")), encoding="utf-8")
draw_all()
