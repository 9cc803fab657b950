"""What the checks claim, read from their files without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

SUBJECTS = {
    "hypervisor": "every hypervisor",
    "vm": "every VM",
    "gpu_vm": "every VM with a card",
    "node": "every node",
    "machine": "every hypervisor and node",
    "cluster": "the cluster",
}
"""Whom a check is about, by the argument that names it; the first one that it or its fixtures take."""

MAKES = "trials"
"""Argument of a check that makes something for a time."""


def check_files(folders: Sequence[Path]) -> list[Path]:
    """Return the files of checks in some folders."""
    return [path for folder in folders for path in sorted(folder.glob("test_*.py"))]


def claims(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield name, claim (the first line of the docstring) and subject of each check in a file."""
    functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
    for name, function in functions.items():
        if name.startswith("test_"):
            claim = (ast.get_docstring(function) or name).splitlines()[0]
            yield name, claim, _subject(name, functions)


def check_names(folders: Sequence[Path]) -> frozenset[str]:
    """Return the names of all checks, as `verify.skip` takes them."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in check_files(folders))
    return frozenset(name for tree in trees for name, _, _ in claims(tree))


def pod_checks(tree: ast.Module) -> frozenset[str]:
    """Return the names of the checks in a file that make pods for a time."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}

    def takes(name: str) -> bool:
        arguments = [argument.arg for argument in functions[name].args.args]
        return MAKES in arguments or any(takes(argument) for argument in arguments if argument in functions)

    return frozenset(name for name in functions if name.startswith("test_") and takes(name))


def _subject(name: str, functions: dict[str, ast.FunctionDef]) -> str:
    """Return whom a function is about: its own arguments first, then those of its fixtures."""
    arguments = [each.arg for each in functions[name].args.args]
    for each in arguments:
        if each in SUBJECTS:
            return SUBJECTS[each]
    found = (_subject(each, functions) for each in arguments if each in functions)
    return next((each for each in found if each), "")
