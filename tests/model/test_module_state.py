"""No module keeps state: what lives longer than a call belongs to an object that is passed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(path for folder in ("provision", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
MUTATING = frozenset(
    [
        "add",
        "append",
        "appendleft",
        "clear",
        "difference_update",
        "discard",
        "extend",
        "insert",
        "intersection_update",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "reverse",
        "setdefault",
        "sort",
        "symmetric_difference_update",
        "update",
        "__setitem__",
    ]
)
CONTAINERS = frozenset({"defaultdict", "deque", "Counter", "OrderedDict", "WeakSet", "local"})
WEAK = frozenset({"WeakKeyDictionary", "WeakValueDictionary"})


def module_names(tree: ast.Module) -> dict[str, ast.expr | None]:
    names: dict[str, ast.expr | None] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update((target.id, node.value) for target in targets if isinstance(target, ast.Name))
    return names


def mutated(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a statement or call changes in place."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING:
        yield node.func.value
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AugAssign):
        targets = [node.target]
    yield from (each.value for each in targets if isinstance(each, ast.Subscript | ast.Attribute))


def module_state(source: str) -> list[str]:
    tree = ast.parse(source)
    names = module_names(tree)
    state = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            state.append(f"line {node.lineno}: global {', '.join(node.names)}")
        state += [
            f"line {node.lineno}: {target.id} is changed"  # type: ignore[attr-defined]  # nodes that change have lines
            for target in mutated(node)
            if isinstance(target, ast.Name) and target.id in names
        ]
    for name, value in names.items():
        function = value.func if isinstance(value, ast.Call) else None
        called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if called in CONTAINERS | WEAK and not (isinstance(value, ast.Call) and value.args):
            state.append(f"{name} is an empty container")
    return state


@pytest.mark.parametrize(
    "source",
    [
        "_last = None\ndef read():\n    global _last\n    _last = 1",
        "_doors = {}\ndef door(key):\n    return _doors.setdefault(key, 1)",
        "_doors: dict = {}\ndef door(key):\n    _doors[key] = 1",
        "_seen = set()\ndef see(one):\n    _seen.add(one)",
        "_found = []\ndef see(one):\n    _found[:] = [one]",
        "_counts = {}\ndef count(key):\n    _counts[key] += 1",
        "_living = weakref.WeakSet()",
        "class State: ...\n_STATE = State()\ndef note(one):\n    _STATE.last = one",
    ],
)
def test_state_of_a_module_is_found(source: str) -> None:
    assert module_state(source)


def test_constants_and_objects_are_no_state_of_a_module() -> None:
    source = "TABLE = {1: 2}\nclass A:\n    def f(self):\n        self.seen = {}\n        self.seen[1] = 2"
    assert not module_state(source)


def test_no_module_keeps_state() -> None:
    state = {str(path.relative_to(ROOT)): module_state(path.read_text()) for path in MODULES}
    assert {path: lines for path, lines in state.items() if lines} == {}
