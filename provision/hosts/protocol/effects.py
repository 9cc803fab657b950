"""How a host brings an effect about: one shell fragment for each effect class that it can do by itself.

Sources: update-initramfs(8), dracut(8), proxmox-boot-tool(8) and Proxmox VE's administration guide ("Host
Bootloader"), grub-mkconfig(8), systemctl(1).
"""

from __future__ import annotations

import shlex

from provision.contracts.effect import RELOAD, Effect
from provision.hosts import host_effects
from provision.k3s import k3s_effects

REBUILDS_BOOT = frozenset({host_effects.INITRAMFS, host_effects.BOOT_LOADER})
"""Effects that a boot does not replace, and that a boot must follow to be of use."""

SATISFIED_BY_BOOT = frozenset(
    {
        host_effects.DAEMON_RELOAD,
        host_effects.RESTART,
        k3s_effects.RESTART_K3S,
        host_effects.REBOOT_GUEST,
        host_effects.REBOOT_NODE,
        host_effects.REBOOT_HYPERVISOR,
    }
)
"""Effects that any other boot of the host brings about as well."""

_INITRAMFS = """if command -v update-initramfs >/dev/null; then update-initramfs -u -k all
elif command -v dracut >/dev/null; then dracut --regenerate-all --force
else echo 'neither update-initramfs nor dracut is installed' >&2; exit 1
fi"""

# proxmox-boot-tool exists on every Proxmox VE host, but rules only where it has been given a boot partition
_BOOT_LOADER = """if command -v proxmox-boot-tool >/dev/null && [ -s /etc/kernel/proxmox-boot-uuids ]
then proxmox-boot-tool refresh
elif command -v update-grub >/dev/null; then update-grub
elif command -v grub2-mkconfig >/dev/null; then grub2-mkconfig -o /boot/grub2/grub.cfg
elif command -v grub-mkconfig >/dev/null; then grub-mkconfig -o /boot/grub/grub.cfg
else echo 'no known boot loader tool is installed' >&2; exit 1
fi"""

_K3S = """for unit in k3s k3s-agent; do
if systemctl --quiet is-enabled "$unit.service" 2>/dev/null; then systemctl restart "$unit.service"; fi
done"""

_WHOLE_HOST = {
    host_effects.DAEMON_RELOAD: "systemctl daemon-reload",
    host_effects.INITRAMFS: _INITRAMFS,
    host_effects.BOOT_LOADER: _BOOT_LOADER,
    k3s_effects.RESTART_K3S: _K3S,
}

_TIMEOUTS = {
    host_effects.DAEMON_RELOAD: 120.0,
    host_effects.INITRAMFS: 1800.0,
    host_effects.BOOT_LOADER: 600.0,
    host_effects.RESTART: 300.0,
    k3s_effects.RESTART_K3S: 900.0,
}


def fragment(effect: Effect) -> str | None:
    """Return the shell fragment that brings an effect about, None if a host cannot by itself.

    A restart's target is a unit; `reload:UNIT` reloads it. Units that are not running are started by a
    restart and left alone by a reload.
    """
    if effect.cls == host_effects.RESTART and effect.target:
        return _restart(effect.target)
    return _WHOLE_HOST.get(effect.cls)


def _restart(target: str) -> str:
    if target.startswith(RELOAD):
        return f"systemctl try-reload-or-restart -- {shlex.quote(target.removeprefix(RELOAD))}"
    return f"systemctl restart -- {shlex.quote(target)}"


def timeout(effect: Effect) -> float:
    """Return how many seconds an effect may take (generous: emulated machines are slow)."""
    return _TIMEOUTS.get(effect.cls, 300.0)
