"""What roles of hosts share: the reboot of a subject, effects that follow from a file's place."""

from __future__ import annotations

from provision.contracts.effect import Effect
from provision.hosts import host_effects
from provision.hosts.resources.kernel import BOOT_LOADER, INITRAMFS
from provision.inventory import Inventory, Subject

DAEMON_RELOAD = Effect(host_effects.DAEMON_RELOAD)


def reboot_of(inventory: Inventory, subject: Subject) -> Effect:
    """Return the effect of rebooting a subject's host."""
    if subject.kind == "hypervisor":
        return Effect(host_effects.REBOOT_HYPERVISOR)
    virtual = inventory.nodes[subject.name].is_virtual
    return Effect(host_effects.REBOOT_GUEST if virtual else host_effects.REBOOT_NODE)


def restart(unit: str) -> Effect:
    """Return the effect of restarting a unit."""
    return Effect(host_effects.RESTART, unit)


def effects_of_path(path: str, reboot: Effect | None) -> tuple[Effect, ...]:
    """Return what a change of a file costs because of where it lies.

    Args:
        path: absolute path on the host.
        reboot: the host's reboot; None where nothing waits for the next boot.
    """
    boot = () if reboot is None else (reboot,)
    if path.startswith(("/etc/modprobe.d/", "/etc/initramfs-tools/")):
        return (INITRAMFS, *boot)
    if path.startswith("/etc/default/grub"):
        return (BOOT_LOADER, *boot)
    if path.startswith(("/etc/systemd/system/", "/lib/systemd/system/", "/usr/lib/systemd/system/")):
        return (DAEMON_RELOAD,)
    return ()
