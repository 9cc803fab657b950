from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.values.sizes import format_size, parse_percent, parse_rate, parse_size


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("768MiB", 768),
        ("60GiB", 61440),
        ("2TiB", 2097152),
        ("1.5GiB", 1536),
        ("60 GiB", 61440),
        ("0.25TiB", 262144),
    ],
)
def test_sizes_are_mib(text: str, mib: int) -> None:
    assert parse_size(text) == mib


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("60GB", "did you mean 60GiB"),
        ("60G", "did you mean 60GiB"),
        ("60", "did you mean 60GiB"),
        ("8192", "did you mean 8192MiB or 8192GiB"),  # as `qm set --memory` has it
        ("512m", "did you mean 512MiB"),
        ("1.5tb", "did you mean 1.5TiB"),
        ("60XiB", "unknown unit"),
        ("0.3MiB", "not a whole number of MiB"),
        ("-1GiB", "is not a size"),
        ("", "is not a size"),
    ],
)
def test_other_units_are_refused_with_the_near_one(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        parse_size(text)


@given(st.integers(min_value=0, max_value=10**9))
def test_format_size_is_the_inverse_of_parse_size(mib: int) -> None:
    assert parse_size(format_size(mib)) == mib


def test_rates_tell_bytes_from_bits() -> None:
    assert parse_rate("280GBps").bits_per_second == 2240e9
    assert parse_rate("400Gbps").bits_per_second == 400e9
    assert str(parse_rate("400Gbps")) == "400Gbps"
    with pytest.raises(ValueError, match="is not a rate"):
        parse_rate("400")


def test_percentages_are_fractions() -> None:
    assert parse_percent("90%") == pytest.approx(0.9)
    assert parse_percent("0.5 %") == pytest.approx(0.005)
    for wrong in ("90", "101%", "-1%", "%"):
        with pytest.raises(ValueError, match="is not a percentage"):
            parse_percent(wrong)
