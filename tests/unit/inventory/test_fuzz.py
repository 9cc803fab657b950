# ruff: noqa: E501, S104, SIM905 - no socket is bound; tables with one case a line
"""Whatever a file holds, loading it gives an inventory or a UsageError, never anything else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provision.api.domains import load_inventory as load
from provision.inventory.resolve import resolve
from provision.values.errors import UsageError

from .conftest import SITE
from .test_rules import RDMA, SERVED

LOTS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
RICH = SERVED + (
    "vars: { a: [1, &x { b: c }], d: *x, e: 1.10 }\n"
    "expect: { nccl: { busbw: 280GBps, nvls: required }, rdma: { write: 90% } }\n"
    "sharing: { mode: hami, version: '1', cards: { e: [vm-2/0] } }\n"
)
PIECES = [
    *": - [ ] { } , # & * ! | > ' \" % @ ` ? ~ = \t \n \r \0 \u2028 \ufeff \x85 \ud83d".split(" "),
    "  ", "\n  ", "null", "true", "on", "!secret", "!!binary", "${X}", "<<", "*a", "&a", "---\n", "...\n", "%YAML 1.1\n",
    "nodes:", "name", "profile", "extends: ", "gpu-[01-16]", "[1-99999]", "10.0.0.0/0", "0.0.0.0", "-1", "9" * 30, "kind: file",
    "host_resources: [{ kind: file }]", "\U0001f600", "é",
]  # fmt: skip


def holds(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        load(path, environ={"Y": "1"})
    except UsageError as error:
        problems = error.diagnostics
    else:
        return
    assert problems
    assert all(problem.summary for problem in problems)
    places = [problem.source for problem in problems if problem.source is not None]
    assert all(min(place.line, place.column, place.width) >= 1 for place in places)


@LOTS
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes(tmp_path: Path, data: bytes) -> None:
    holds(tmp_path / "a.yaml", data)


@LOTS
@given(parts=st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=30))
def test_arbitrary_text_made_of_yaml(tmp_path: Path, parts: list[str]) -> None:
    holds(tmp_path / "a.yaml", "".join(parts).encode(errors="surrogatepass"))


@LOTS
@given(
    text=st.sampled_from([SITE, RDMA, RICH]),
    changes=st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(PIECES) | st.text(max_size=8)),
        min_size=1,
        max_size=3,
    ),
)
def test_mutated_inventories(tmp_path: Path, text: str, changes: list[tuple[float, int, str]]) -> None:
    for place, cut, put in changes:
        at = int(place * len(text))
        text = text[:at] + put + text[at + cut :]
    holds(tmp_path / "a.yaml", text.encode(errors="surrogatepass"))


VALUES = st.recursive(
    st.sampled_from(
        ["null", "true", "1", "'1'", "1.10", "x", "10.0.0.11", "60GiB", "!secret { env: A }", "/x", "''"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(
            st.tuples(st.sampled_from(["a", "kind", "name", "address", "1"]), inner),
            max_size=3,
            unique_by=lambda pair: pair[0],
        ).map(lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}")
    ),
    max_leaves=6,
)


@LOTS
@given(text=st.sampled_from([SITE, RDMA, RICH]), seed=st.integers(0, 10**6), value=VALUES)
def test_any_value_in_place_of_any_other(tmp_path: Path, text: str, seed: int, value: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    tree, problems = resolve(path, (), {})
    assert tree is not None
    assert not problems
    lines = text.splitlines(keepends=True)
    chance = random.Random(seed)  # noqa: S311 - picks a place, guards nothing
    line = chance.randrange(len(lines))
    colons = [
        index
        for index, letter in enumerate(lines[line])
        if letter == ":" and lines[line][index + 1 : index + 2] == " "
    ]
    if colons:
        at = chance.choice(colons)
        rest = lines[line][at + 2 :]
        end = next((index for index, letter in enumerate(rest) if letter in ",}\n"), len(rest))
        lines[line] = lines[line][: at + 2] + value + rest[end:]
    holds(path, "".join(lines).encode())


SECTIONS = (
    "policy access network images hypervisors profiles nodes k3s lab expect vars sharing rdma gpu".split()
)
SHAPES = [
    "null",
    "[]",
    "{}",
    "x",
    "1",
    "{ a: null }",
    "{ a: [] }",
    "{ a: { b: c } }",
    "[[a]]",
    "!secret { env: A }",
]


@pytest.mark.parametrize("value", SHAPES)
def test_any_shape_of_any_section(tmp_path: Path, value: str) -> None:
    for section in SECTIONS:
        holds(tmp_path / "a.yaml", f"version: 1\nname: a\n{section}: {value}\n".encode())
