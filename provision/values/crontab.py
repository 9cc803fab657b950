"""The five fields of a schedule, as crontab(5) and the Go library robfig/cron read them."""

from __future__ import annotations

import re
from datetime import date, timedelta
from itertools import pairwise

_NAMES = {
    name: str(number)
    for names, first in (
        (("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1),
        (("sun", "mon", "tue", "wed", "thu", "fri", "sat"), 0),
    )
    for number, name in enumerate(names, first)
}
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = re.compile(r"@every\s+(?=\d)(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?")
_PART = re.compile(r"(?:(\*|\?)|(\d{1,2})(?:-(\d{1,2}))?)(?:/(\d{1,2}))?")
_FIRST = date(2000, 1, 1)
_UNITS = (timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1))
_DAY = 24 * 60
_FIELDS = len(_RANGES)


def longest_gap(schedule: str) -> timedelta | None:
    """Return the longest time between two moments of a schedule; None for text that is no schedule.

    Args:
        schedule: five fields, or `@hourly`, `@every 6h` and the like; `TZ=...` before them does not count.
    """
    text = re.sub(r"^(?:CRON_)?TZ=\S+\s+", "", schedule.strip()).lower()
    every = _EVERY.fullmatch(text)
    if every is not None:
        parts = (int(part or 0) for part in every.groups())
        return sum((number * unit for number, unit in zip(parts, _UNITS, strict=True)), timedelta())
    fields = _WORDS.get(text, text).split()
    if len(fields) != _FIELDS:
        return None
    sets = [_values(field, *limits) for field, limits in zip(fields, _RANGES, strict=True)]
    if any(not values for values in sets):
        return None
    minutes, hours, days, months, weekdays = (values or frozenset() for values in sets)
    moments = sorted(hour * 60 + minute for hour in hours for minute in minutes)
    starts = [day * _DAY for day in _days(fields, days, months, weekdays)]
    if len(starts) < 2:  # noqa: PLR2004 - a gap has two ends
        return None
    inside = max((later - earlier for earlier, later in pairwise(moments)), default=0)
    between = max(later - earlier for earlier, later in pairwise(starts)) + moments[0] - moments[-1]
    return timedelta(minutes=max(inside, between))


def _values(field: str, low: int, high: int) -> frozenset[int] | None:
    """Return the numbers of a field; None for text that is none."""
    numbers: set[int] = set()
    for part in field.split(","):
        text = re.sub(r"[a-z]{3}", lambda match: _NAMES.get(match[0], match[0]), part)
        match = _PART.fullmatch(text)
        if match is None:
            return None
        anything, first, last, step = match.groups()
        start, end = (low, high) if anything else (int(first), int(last or first))
        if step and first and not last:
            end = high
        if high == _RANGES[-1][1] and first and not last and int(first) == high + 1:
            start = end = 0  # Sunday, too
        if not low <= start <= end <= high or (step and not int(step)):
            return None
        numbers.update(range(start, end + 1, int(step or 1)))
    return frozenset(numbers)


def _days(
    fields: list[str], days: frozenset[int], months: frozenset[int], weekdays: frozenset[int]
) -> list[int]:
    """Return the matching days of eight years; a day of the week and one of the month are alternatives."""
    is_any = fields[2][0] in "*?" or fields[4][0] in "*?"
    matching: list[int] = []
    for number in range(_FIRST.toordinal(), _FIRST.replace(year=_FIRST.year + 8).toordinal()):
        day = date.fromordinal(number)
        in_month, in_week = day.day in days, day.isoweekday() % 7 in weekdays
        if day.month in months and (in_month and in_week if is_any else in_month or in_week):
            matching.append(number)
    return matching
