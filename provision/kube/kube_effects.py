"""What changes of a cluster's node cost its pods."""

from __future__ import annotations

from provision.contracts.effect import EffectClass

DRAIN = EffectClass(60, "drain", "pods are evicted from the node")

EFFECTS = (DRAIN,)
