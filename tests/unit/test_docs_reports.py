"""The pages of reports name each of them, and tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| `([\w/.]+)::(\w+)` \|$", re.MULTILINE)
INPUTS = [f"{number:02}" for number in (5, 6, 7, 9, 10, *range(12, 29))]
"""Numbers of the inputs that were taken from public reports and tried on machines."""
PAGES = {"proxmox-reports.md": 40, "cluster-reports.md": 50, "cluster-failures.md": 60}
"""How many reports a page has; each has a test."""
KIND = re.compile(r"^\| ([^|]+) \| (\d+) \| (`[^|]+`) \|$", re.MULTILINE)
LEAST = 11
"""A reported shape and ten more."""


def rows(page: str) -> list[tuple[str, ...]]:
    return ROW.findall((ROOT / "docs" / page).read_text("utf-8"))


def _has_test(path: str, name: str) -> bool:
    return re.search(rf"(?m)^ *def {name}\(", (ROOT / path).read_text("utf-8")) is not None


@pytest.mark.parametrize("page", PAGES)
def test_each_report_has_its_row_in_order(page: str) -> None:
    assert [row[0] for row in rows(page)] == [str(number + 1) for number in range(PAGES[page])]


@pytest.mark.parametrize("page", PAGES)
def test_each_named_test_of_a_report_exists(page: str) -> None:
    missing = [f"{path}::{name}" for _, _, _, path, name in rows(page) if not _has_test(path, name)]
    assert missing == []


def test_each_input_from_a_report_has_its_rule_and_its_test() -> None:
    inputs = [row for row in rows("reliability.md") if row[3]]
    assert [row[0] for row in inputs] == INPUTS
    assert [f"{path}::{name}" for _, _, _, path, name in inputs if not _has_test(path, name)] == []


def _tables(path: str) -> dict[str, ast.expr]:
    """Return the constants of a module, and what its tests are parametrized with."""
    tables: dict[str, ast.expr] = {}
    for node in ast.parse((ROOT / path).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("parametrize"):
                    tables[node.name] = decorator.args[1]
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            tables[ast.unparse(node.target)] = node.value
        elif isinstance(node, ast.Assign):
            tables[ast.unparse(node.targets[0])] = node.value
    return tables


def _size(table: ast.expr, tables: dict[str, ast.expr]) -> int:
    if isinstance(table, ast.Starred):
        return _size(table.value, tables)
    if isinstance(table, ast.Name | ast.Call):  # a constant, or its `values()`
        return _size(tables[ast.unparse(table).removesuffix(".values()")], tables)
    if isinstance(table, ast.Dict):
        return len(table.keys)
    assert isinstance(table, ast.List | ast.Tuple), ast.unparse(table)
    return sum(_size(entry, tables) if isinstance(entry, ast.Starred) else 1 for entry in table.elts)


def test_each_kind_of_input_has_as_many_shapes_as_the_page_says() -> None:
    kinds = KIND.findall((ROOT / "docs" / "reliability.md").read_text("utf-8"))
    assert len(kinds) == 24
    for kind, number, text in kinds:
        count = 0
        for path, name in re.findall(r"`([\w/.]+)::(\w+)`", text):
            tables = _tables(path)
            count += _size(tables[name], tables)
        assert (kind, int(number)) == (kind, count)
        assert count >= LEAST, kind
