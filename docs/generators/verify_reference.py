"""Writes docs/verify.md from the checks: `python -m provision.verify.reference`."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from provision.verify import checks

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
SUBJECTS = {
    "hypervisor": "every hypervisor",
    "vm": "every VM",
    "gpu_vm": "every VM with a card",
    "node": "every node",
}
"""Whom a check is about, by the argument that names it; the first one that it or its fixtures take."""


def files() -> list[Path]:
    """Return the files of checks."""
    return sorted(Path(inspect.getfile(checks)).parent.glob("test_*.py"))


def claims(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield name, claim (the first line of the docstring) and subject of each check in a file."""
    functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
    for name, function in functions.items():
        if name.startswith("test_"):
            claim = (ast.get_docstring(function) or name).splitlines()[0]
            yield name, claim, _subject(name, functions)


def check_names() -> frozenset[str]:
    """Return the names of all checks, as `verify.skip` takes them."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in files())
    return frozenset(name for tree in trees for name, _, _ in claims(tree))


def _subject(name: str, functions: dict[str, ast.FunctionDef]) -> str:
    """Return whom a function is about: its own arguments first, then those of its fixtures."""
    arguments = [each.arg for each in functions[name].args.args]
    for each in arguments:
        if each in SUBJECTS:
            return SUBJECTS[each]
    found = (_subject(each, functions) for each in arguments if each in functions)
    return next((each for each in found if each), "")


def reference() -> str:
    """Return the page as Markdown."""
    parts = [HEAD]
    for path in files():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        title = (ast.get_docstring(tree) or path.stem).splitlines()[0].rstrip(".")
        rows = [f"| {claim} | {subject} | `{name}` |" for name, claim, subject in claims(tree)]
        parts.append(f"\n## {title}\n\n| claim | about | check |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(reference())
