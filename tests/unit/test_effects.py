from __future__ import annotations

import pytest

from provision.values.effects import RELOAD, Effect, EffectClass


@pytest.mark.parametrize(
    ("effect", "text"),
    [
        (Effect(EffectClass.INITRAMFS), "initramfs"),
        (Effect(EffectClass.RESTART, "chrony.service"), "restart chrony.service"),
        (Effect(EffectClass.RESTART, f"{RELOAD}dnsmasq.service"), "reload dnsmasq.service"),
        (Effect(EffectClass.DELETE, "vm-1"), "delete vm-1"),
    ],
)
def test_an_effect_is_told_in_the_words_of_the_user(effect: Effect, text: str) -> None:
    assert str(effect) == text
