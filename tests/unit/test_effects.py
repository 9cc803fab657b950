from __future__ import annotations

import pytest

from provision.contracts import common_effects
from provision.contracts.effect import Effect
from provision.hosts import host_effects


@pytest.mark.parametrize(
    ("effect", "text"),
    [
        (Effect(host_effects.INITRAMFS), "initramfs"),
        (Effect(host_effects.RESTART, "chrony.service"), "restart chrony.service"),
        (Effect(host_effects.RELOAD, "dnsmasq.service"), "reload dnsmasq.service"),
        (Effect(common_effects.DELETE, "vm-1"), "delete vm-1"),
    ],
)
def test_an_effect_is_told_in_the_words_of_the_user(effect: Effect, text: str) -> None:
    assert str(effect) == text
