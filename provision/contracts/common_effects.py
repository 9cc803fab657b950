"""Effect classes that any domain may bring about."""

from __future__ import annotations

from provision.contracts.effect import EffectClass

REPLACE = EffectClass(
    130,
    "replace",
    "it is destroyed and created again",
    is_final=True,
    replaces_target=True,
    voids_target=True,
    affects_existing=True,
)
DELETE = EffectClass(140, "delete", "its data is lost", is_final=True, voids_target=True)

EFFECTS = (REPLACE, DELETE)
