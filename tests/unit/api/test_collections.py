"""A plan looks for reference cycles less often, and leaves Python's settings as they were."""

from __future__ import annotations

import gc

import pytest

from provision.api.collections import EVERY, fewer_collections


@pytest.mark.parametrize(
    ("before", "meanwhile"), [((700, 10, 10), EVERY), ((EVERY * 2, 30, 30), EVERY * 2), ((0, 10, 10), 0)]
)
def test_the_threshold_is_raised_and_put_back(before: tuple[int, int, int], meanwhile: int) -> None:
    original = gc.get_threshold()
    gc.set_threshold(*before)
    try:
        with fewer_collections():
            assert gc.get_threshold()[0] == meanwhile
        assert gc.get_threshold() == before
        with pytest.raises(KeyError), fewer_collections():
            raise KeyError
        assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*original)
