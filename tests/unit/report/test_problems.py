from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.report.problems import EVIDENCE_LINES, grouped, mark, print_diagnostics, remedy_parts
from provision.report.style import (
    ASCII,
    duration,
    make_console,
    printable,
    roughly,
    say,
    shorten,
    ticking,
)
from provision.values.diagnostics import Diagnostic, Severity, Source
from tests.unit.report.samples import Encoded, shown

UNREACHABLE = Diagnostic(
    "SSH_UNREACHABLE",
    "no answer within 10 s",
    evidence=("connect: timed out",),
    untouched="nothing was changed",
    remedy="look at the cable, then run the command again",
)


def test_a_problem_says_what_where_why_and_what_next() -> None:
    source = Source("lab.yaml", 7, 14, "    address: 198.18.0.300", 12)
    one = replace(UNREACHABLE, subject="vm-1", source=source)
    assert shown(lambda console: print_diagnostics(console, [one])).splitlines() == [
        "error SSH_UNREACHABLE  vm-1",
        "  no answer within 10 s",
        "  lab.yaml:7:14",
        "  7 |     address: 198.18.0.300",
        "    |              ^^^^^^^^^^^^",
        "  | connect: timed out",
        "  left alone: nothing was changed",
        "  next: look at the cable, then run the command again",
        "",
    ]


def test_equal_problems_of_many_subjects_are_one() -> None:
    many = [replace(UNREACHABLE, subject=f"n{number}") for number in range(12)]
    text = shown(lambda console: print_diagnostics(console, many))
    assert text.count("SSH_UNREACHABLE") == 1
    assert "n0, n1, n2, n3, n4, n5, n6, n7 and 4 more" in text


def test_other_causes_stay_apart_and_errors_come_first() -> None:
    warning = replace(UNREACHABLE, severity=Severity.WARNING)
    other = replace(UNREACHABLE, summary="refused")
    assert [len(group) for group in grouped([warning, UNREACHABLE, other, UNREACHABLE])] == [1, 1, 1]
    assert grouped([warning, UNREACHABLE])[0] == (UNREACHABLE,)


def test_a_hundred_warnings_of_one_code_are_one_message() -> None:
    warnings = [
        Diagnostic(
            "CLOCK_SKEW",
            f"the clock is {number} s ahead",
            subject=f"n{number}",
            severity=Severity.WARNING,
            source=Source("lab.yaml", number + 1, 3, f"  n{number}: {{}}", 2),
            remedy="let chrony step it",
        )
        for number in range(100)
    ]
    text = shown(lambda console: print_diagnostics(console, warnings), width=80)
    assert text.count("CLOCK_SKEW") == 1
    assert "n0, n1, n2, n3, n4, n5, n6, n7 and 92 more" in text
    assert "and 97 more messages of this code" in text
    assert "also on lines 2, 3, 4, 5, 6, 7, 8, 9 and 91 more" in text
    assert len(text.splitlines()) < 15
    full = shown(lambda console: print_diagnostics(console, warnings, full=True))
    assert "the clock is 99 s ahead" in full


@pytest.mark.parametrize(
    ("remedy", "parts"),
    [
        ("wait and try again", [("wait and try again", False)]),
        ("`provision plan lab`", [("provision plan lab", True)]),
        (
            "compare it with the host's own (`ssh-keygen -lf key`), then `provision trust lab vm-1/ssh K`.",
            [
                ("compare it with the host's own", False),
                ("ssh-keygen -lf key", True),
                ("then", False),
                ("provision trust lab vm-1/ssh K", True),
            ],
        ),
        ("Write `address: 198.18.0.4` or a `profile`.", [("Write address: 198.18.0.4 or a profile.", False)]),
        ("", []),
    ],
)
def test_a_remedy_has_its_commands_apart(remedy: str, parts: list[tuple[str, bool]]) -> None:
    assert remedy_parts(remedy) == parts


def test_a_command_in_a_remedy_is_a_whole_line_that_can_be_copied() -> None:
    command = f"provision trust inventories/{'x' * 60}.yaml vm-1/ssh SHA256:{'A' * 43}"
    problem = replace(UNREACHABLE, remedy=f"compare the two fingerprints, then accept it: `{command}`")
    lines = shown(lambda console: print_diagnostics(console, [problem]), width=40).splitlines()
    assert command in [line.strip() for line in lines]


@given(st.text(alphabet="ab ", min_size=1, max_size=300), st.integers(20, 90))
def test_no_word_is_broken_at_any_width(text: str, width: int) -> None:
    said = shown(lambda console: say(console, text), width=width)
    assert said.split() == text.split()
    assert all(len(line) <= width or " " not in line.strip() for line in said.splitlines())


def test_a_log_file_has_one_line_for_one_sentence() -> None:
    stream = Encoded("utf-8")
    say(make_console(stream), "word " * 100)
    assert len(stream.getvalue().splitlines()) == 1


def test_only_the_last_lines_of_evidence_are_shown() -> None:
    long = replace(UNREACHABLE, evidence=tuple(f"line {number}" for number in range(40)))
    text = shown(lambda console: print_diagnostics(console, [long]))
    assert f"({40 - EVIDENCE_LINES} earlier lines not shown)" in text
    assert "| line 39" in text
    assert "| line 27\n" not in text


def test_evidence_cannot_move_the_cursor() -> None:
    evil = replace(UNREACHABLE, summary="x\x1b]0;title\x07", evidence=("\x1b[1A\x1b[2Kall is well",))
    text = shown(lambda console: print_diagnostics(console, [evil]))
    assert "\x1b" not in text
    assert "\x07" not in text


@pytest.mark.parametrize(
    ("column", "width"),
    [(1, 1), (5, 3), (400, 5), (900, 2000), (1, 5000)],
)
def test_the_mark_is_under_its_place_and_on_the_screen(column: int, width: int) -> None:
    text = "".join(chr(97 + number % 26) for number in range(1000))
    place, line, marks = mark(Source("f", 12, column, text, width), 80, ASCII)
    assert place == f"f:12:{column}"
    assert len(line) <= 80
    assert len(marks) <= 80
    assert line[marks.index("^")] == text[column - 1]


def test_a_line_that_must_not_be_shown_is_not() -> None:
    assert mark(Source("f", 1, 2), 80) == ["f:1:2"]


def test_a_tab_does_not_shift_the_mark() -> None:
    _, line, marks = mark(Source("f", 1, 3, "\t\tkey: x", 3), 80, ASCII)
    assert line[marks.index("^") : marks.rindex("^") + 1] == "key"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.44, "0.4 s"),
        (9.96, "10.0 s"),
        (41.6, "42 s"),
        (59.9, "1 min"),
        (305, "5 min 05 s"),
        (360, "6 min"),
        (7380, "2 h 03 min"),
    ],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (40.4, "40 s"), (345, "6 min"), (7210, "2 h 00 min")]
)
def test_rough_durations_have_no_false_precision(seconds: float, text: str) -> None:
    assert roughly(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.9, "0:00"), (7, "0:07"), (365, "6:05"), (7380, "2:03:00"), (7381, "2:03:01")]
)
def test_a_watched_time_moves_every_second(seconds: float, text: str) -> None:
    assert ticking(seconds) == text


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain ü", "plain ü"),
        ("a\tb", "a    b"),
        ("a\nb", r"a\nb"),
        ("\x1b[0m", r"\x1b[0m"),
        ("\u202e", r"\u202e"),
    ],
)
def test_text_is_safe_to_print(text: str, safe: str) -> None:
    assert printable(text) == safe


def test_shortened_text_fits() -> None:
    assert shorten("abcdef", 6, "...") == "abcdef"
    assert shorten("abcdefg", 6, "...") == "abc..."
