"""What changes of a cluster's node cost its pods."""

from __future__ import annotations

from provision.contracts.effect import EffectClass

DRAIN = EffectClass(60, "drain", "the pods that run on the node are evicted")
VOLUME_LOSS = EffectClass(
    125,
    "volume-loss",
    "volumes that only this node has may be lost with its system disk",
    is_final=True,
    affects_existing=True,
)

EFFECTS = (DRAIN, VOLUME_LOSS)
