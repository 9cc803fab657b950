"""What changes of a VM cost."""

from __future__ import annotations

from provision.contracts.effect import EffectClass

DEVICE_LOSS = EffectClass(
    75, "device-loss", "the host loses a device that its driver has", affects_existing=True
)
"""It affects a device of the hypervisor, which was there before a VM that is created in this run."""

CONSOLE_LOSS = EffectClass(80, "console-loss", "the local screen goes dark", affects_existing=True)
"""It affects the hypervisor's monitor, which was there before a VM that is created in this run."""

POWER_CYCLE = EffectClass(
    90, "power-cycle", "the VM is switched off and on", voids_target=True, boots_target=True
)

EFFECTS = (DEVICE_LOSS, CONSOLE_LOSS, POWER_CYCLE)
