"""What a change costs. One table is effect classes and consent classes alike."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Consent(StrEnum):
    """What the policy says about an effect class."""

    ALLOW = "allow"
    ASK = "ask"
    NEVER = "never"


class EffectClass(StrEnum):
    """Effect classes in rising order of risk; all that the engine knows of one are its properties below."""

    DAEMON_RELOAD = "daemon-reload"
    INITRAMFS = "initramfs"
    BOOT_LOADER = "boot-loader"
    RESTART = "restart"
    RESTART_K3S = "restart-k3s"
    DRAIN = "drain"
    GPU_PODS_LOSE_DEVICE = "gpu-pods-lose-device"
    CONSOLE_LOSS = "console-loss"
    POWER_CYCLE = "power-cycle"
    REBOOT_GUEST = "reboot-guest"
    REBOOT_NODE = "reboot-node"
    REBOOT_HYPERVISOR = "reboot-hypervisor"
    REPLACE = "replace"
    DELETE = "delete"

    @property
    def rank(self) -> int:
        """Position in the table: effects of one host run in this order."""
        return list(EffectClass).index(self)

    @property
    def is_reboot(self) -> bool:
        """Whether a new boot id proves the effect."""
        return self in (EffectClass.REBOOT_GUEST, EffectClass.REBOOT_NODE, EffectClass.REBOOT_HYPERVISOR)

    @property
    def default_consent(self) -> Consent:
        """Consent where the policy does not list it."""
        harmless = (
            EffectClass.DAEMON_RELOAD,
            EffectClass.INITRAMFS,
            EffectClass.BOOT_LOADER,
            EffectClass.RESTART,
        )
        return Consent.ALLOW if self in harmless else Consent.ASK

    @property
    def is_final(self) -> bool:
        """Whether it removes what nobody can bring back, so that old answers are not enough."""
        return self in (EffectClass.REPLACE, EffectClass.DELETE)

    @property
    def makes_anew(self) -> bool:
        """Whether its target is another one afterwards, of which nothing can be told before."""
        return self is EffectClass.REPLACE

    @property
    def voids_target(self) -> bool:
        """Whether its target's systems are not what they were: answers and connections no longer count."""
        return self in (EffectClass.POWER_CYCLE, EffectClass.REPLACE, EffectClass.DELETE)

    @property
    def hits_what_was(self) -> bool:
        """Whether it hits what was there before even where its target is born in this run.

        That is the monitor of the target's hypervisor, or what the target replaces.
        """
        return self in (EffectClass.CONSOLE_LOSS, EffectClass.REPLACE)

    @property
    def brings_new_boot(self) -> bool:
        """Whether its target boots: what only the new boot shows is not known before."""
        return self.is_reboot or self is EffectClass.POWER_CYCLE


RELOAD = "reload:"
"""A restart whose target begins with this reloads the unit (or restarts it if it cannot be reloaded)."""


@dataclass(frozen=True, slots=True, order=True)
class Effect:
    """One cost of a change; equal effects of one system happen once.

    Args:
        cls: the effect class, the key of the consent policy.
        target: what it hits: a unit (`chrony.service`, `reload:dnsmasq.service` to reload it only), a VM
            (`vm-gpu`), or empty for the whole system.
    """

    cls: EffectClass
    target: str = ""

    def __str__(self) -> str:
        if self.cls is EffectClass.RESTART and self.target.startswith(RELOAD):
            return f"reload {self.target.removeprefix(RELOAD)}"
        return f"{self.cls} {self.target}".rstrip()
