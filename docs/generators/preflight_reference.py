"""Writes docs/preflight.md from the rules: `python -m docs.generators.preflight_reference [FILE]`."""

from __future__ import annotations

import sys
from pathlib import Path

from provision.api.preflight import rules

HEAD = """# Preflight

Rules that are checked before anything is touched. An error refuses the run (exit 4); a warning is shown.
A rule whose evidence is missing (a host that is not up yet) is checked again when its step is reached.
`destroy` checks only those that bear on a removal.

This page is generated: `python -m docs.generators.preflight_reference docs/preflight.md`.

| code | severity | when | remedy | in a destroy |
| --- | --- | --- | --- | --- |
"""


def reference() -> str:
    """Return the page as Markdown."""
    rows = [
        f"| {', '.join(f'`{code}`' for code in rule.codes)} | {rule.severity} | {rule.when} | {rule.remedy} |"
        f" {'checked' if rule.removal else '-'} |"
        for rule in rules()
    ]
    return HEAD + "\n".join(rows) + "\n"


def main() -> None:
    """Write the page to the file that is named, or to standard output."""
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(reference())
    else:
        sys.stdout.write(reference())


if __name__ == "__main__":
    main()
