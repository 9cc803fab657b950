"""Names that domains bring and that an inventory may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Names that are no part of the models; `load` holds the inventory against them.

    Args:
        effect_classes: what `policy` may list.
    """

    effect_classes: tuple[str, ...] = ()
