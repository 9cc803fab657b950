"""How long a schedule may be silent."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.values.crontab import longest_gap

GAPS = {
    "0 */12 * * *": timedelta(hours=12),
    "*/5 * * * *": timedelta(minutes=5),
    "0 3 * * *": timedelta(days=1),
    "0 8-18 * * mon-fri": timedelta(days=2, hours=14),
    "0 0 * * 7": timedelta(days=7),
    "0 0 1,15 * *": timedelta(days=17),
    "0 0 1 * sun": timedelta(days=7),
    "0 0 29 2 *": timedelta(days=1461),
    "@every 1h30m": timedelta(minutes=90),
    "@Daily": timedelta(days=1),
    "TZ=Europe/Berlin 0 3 * * *": timedelta(days=1),
}


@pytest.mark.parametrize("schedule", GAPS)
def test_the_longest_time_between_two_moments(schedule: str) -> None:
    assert longest_gap(schedule) == GAPS[schedule]


@pytest.mark.parametrize(
    "text", ["", "x", "* * * *", "61 * * * *", "0 0 31 2 *", "@every", "5/0 * * * *", "5-1 * * * *", "@x"]
)
def test_what_is_no_schedule_has_no_gap(text: str) -> None:
    assert longest_gap(text) is None


@given(st.text("0123456789*/,-? @everymonhTZ=", max_size=20))
@settings(max_examples=40, deadline=None)
def test_any_text_is_a_schedule_or_none(text: str) -> None:
    gap = longest_gap(text)
    assert gap is None or gap >= timedelta()
