"""Writes docs/verify.md from the checks: `python -m provision.verify.reference`."""

from __future__ import annotations

import ast
import sys

from provision.api.domains import check_folders
from provision.verify.claims import check_files, claims

HEAD = """# Verification

`provision verify INVENTORY` proves the site on fresh answers, and `apply` ends with it. Each check claims one
thing about one subject. What the inventory does not declare is not checked. A check that finds no evidence
either way is *unknown*: that is no success (`--strict`: [exit 7](exit-codes.md)), unless the subject is off
because its owner wants it so (`power: unmanaged`). Of what is not managed (`manage: false`)
nothing is claimed, and it is not asked. A unit that failed without being of the inventory fails no check: it
is told with the one that passes.

`verify.skip` names checks that are left out, by the last column of the tables below; they stay in the
results, as *unknown* without fault. `verify.timeout` ends each command of a check after as many seconds:
the check is *unknown* then.

Checks are testinfra's; each of their commands is a question that goes with all others in one execution.
Nothing is installed on hosts, and nothing is changed.

This page is generated from the checks: `python -m docs.generators.verify_reference > docs/verify.md`.
"""


def reference() -> str:
    """Return the page as Markdown."""
    parts = [HEAD]
    for path in check_files(check_folders()):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        title = (ast.get_docstring(tree) or path.stem).splitlines()[0].rstrip(".")
        rows = [f"| {claim} | {subject} | `{name}` |" for name, claim, subject in claims(tree)]
        parts.append(f"\n## {title}\n\n| claim | about | check |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(reference())
