"""What changes of a cluster's node cost its pods."""

from __future__ import annotations

from provision.contracts.effect import EffectClass

DRAIN = EffectClass(60, "drain", "the pods that run on the node are evicted")

EFFECTS = (DRAIN,)
