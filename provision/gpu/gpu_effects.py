"""What changes cost pods that use a GPU."""

from __future__ import annotations

from provision.contracts.effect import EffectClass

GPU_PODS_LOSE_DEVICE = EffectClass(70, "gpu-pods-lose-device", "running GPU pods lose their device")

EFFECTS = (GPU_PODS_LOSE_DEVICE,)
