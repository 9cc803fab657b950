from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from provision.contracts.change import Change, Op
from provision.report.diff import SHORT_DIFF_LINES, field_line, text_diff, value_text
from provision.report.style import ASCII


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "(none)"),
        (True, "true"),
        (0, "0"),
        ("", '""'),
        (b"abc", "(3 bytes)"),
        ((), "(empty)"),
        ({}, "(empty)"),
        (frozenset({"b", "a"}), "a, b"),
        ({"a": 1, "b": None}, "a=1, b=(none)"),
        (("x", ("y", "z")), "x, y, z"),
        (SecretStr("hunter2"), "**********"),
        ("a\nb", r"a\nb"),
    ],
)
def test_a_value_is_one_line(value: object, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (Change(Op.UPDATE, "mode", "0644", "0600"), "mode: 0644 -> 0600"),
        (Change(Op.CREATE, "mode", None, "0600"), "mode: 0600"),
        (Change(Op.CREATE, "content", None, "a line\n"), "content: a line"),
        (Change(Op.UPDATE, "content", "a line", "a line\n"), r"content: a line -> a line\n"),
        (Change(Op.CREATE, "net0"), "net0"),
        (Change(Op.DELETE, "net0", "virtio", None), "net0: virtio"),
        (Change(Op.DELETE, "net0"), "net0"),
        (Change(Op.UPDATE, "x", "a", None), "x: a -> (none)"),
        (Change(Op.ATTENTION, "x", None, "unknown: no answer"), "x: unknown: no answer"),
        (Change(Op.UPDATE, "l", ("a", "b"), ("b", "c")), "l: +c, -a"),
        (Change(Op.UPDATE, "l", ("a", "b"), ("b", "a")), "l: a, b -> b, a"),
        (Change(Op.UPDATE, "key", "hunter2", "hunter3", secret=True), "key: (secret) -> (secret), differs"),
        (Change(Op.CREATE, "key", None, "hunter3", secret=True), "key: (secret)"),
    ],
)
def test_a_difference_is_one_line(change: Change, text: str) -> None:
    assert field_line(change, 100, ASCII) == text


def test_long_values_are_cut_where_they_still_show_the_difference() -> None:
    old, new = "x" * 200 + "old", "x" * 200 + "new"
    line = field_line(Change(Op.UPDATE, "value", old, new), 80, ASCII)
    assert len(line) <= 80
    assert "old" in line
    assert "new" in line
    assert field_line(Change(Op.UPDATE, "value", old, new), 80, ASCII, full=True) == f"value: {old} -> {new}"


@given(st.text(), st.text(), st.integers(20, 200), st.booleans())
def test_a_line_is_one_line_whatever_the_values(old: str, new: str, width: int, full: bool) -> None:
    line = field_line(Change(Op.UPDATE, "path", old, new), width, ASCII, full=full)
    assert line.isprintable()
    assert full or len(line) <= max(width, 48)


def test_a_short_diff_has_only_changed_lines() -> None:
    change = Change(Op.UPDATE, "content", "a\nb\nc\n", "a\nB\nc\n")
    assert text_diff(change) == [("-", "b"), ("+", "B")]


def test_a_full_diff_has_its_surroundings() -> None:
    change = Change(Op.UPDATE, "content", "a\nb\nc\n", "a\nB\nc\n")
    assert text_diff(change, full=True) == [
        ("@", "@@ -1,3 +1,3 @@"),
        (" ", "a"),
        ("-", "b"),
        ("+", "B"),
        (" ", "c"),
    ]


def test_a_short_diff_says_how_much_it_hides() -> None:
    new = "".join(f"line {number}\n" for number in range(50))
    lines = text_diff(Change(Op.UPDATE, "content", "x\n", new))
    assert len(lines) == SHORT_DIFF_LINES + 1
    assert lines[-1] == ("@", "31 more changed lines (--full shows all)")


def test_a_secret_has_no_diff() -> None:
    change = Change(Op.UPDATE, "content", "a\nhunter2\n", "a\nhunter3\n", secret=True)
    assert text_diff(change, full=True) == []
    assert "hunter" not in field_line(change, 100, ASCII, full=True)
