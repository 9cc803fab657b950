"""What changes of a host cost, and how a host performs each of them.

Sources: update-initramfs(8), dracut(8), proxmox-boot-tool(8) and Proxmox VE's administration guide ("Host
Bootloader"), grub-mkconfig(8), systemctl(1).
"""

from __future__ import annotations

from provision.contracts.effect import EffectClass
from provision.values.consent import Consent

DAEMON_RELOAD = EffectClass(
    10,
    "daemon-reload",
    "systemd reads its units again",
    Consent.ALLOW,
    script="systemctl daemon-reload",
    timeout=120.0,
    done_by_boot=True,
)

INITRAMFS = EffectClass(
    20,
    "initramfs",
    "the initramfs of all kernels is built again",
    Consent.ALLOW,
    script="""if command -v update-initramfs >/dev/null; then update-initramfs -u -k all
elif command -v dracut >/dev/null; then dracut --regenerate-all --force
else echo 'neither update-initramfs nor dracut is installed' >&2; exit 1
fi""",
    timeout=1800.0,
    needs_boot=True,
)

BOOT_LOADER = EffectClass(
    30,
    "boot-loader",
    "the boot loader's menu is written again",
    Consent.ALLOW,
    # proxmox-boot-tool exists on every Proxmox VE host, but rules only where it was given a boot partition.
    script="""if command -v proxmox-boot-tool >/dev/null && [ -s /etc/kernel/proxmox-boot-uuids ]
then proxmox-boot-tool refresh
elif command -v update-grub >/dev/null; then update-grub
elif command -v grub2-mkconfig >/dev/null; then grub2-mkconfig -o /boot/grub2/grub.cfg
elif command -v grub-mkconfig >/dev/null; then grub-mkconfig -o /boot/grub/grub.cfg
else echo 'no known boot loader tool is installed' >&2; exit 1
fi""",
    timeout=600.0,
    needs_boot=True,
)

RELOAD = EffectClass(
    35,
    "reload",
    "a service reads its configuration again",
    Consent.ALLOW,
    # A unit that is not running is left alone.
    script="systemctl try-reload-or-restart -- {target}",
    done_by_boot=True,
)

RESTART = EffectClass(
    40,
    "restart",
    "a service restarts",
    Consent.ALLOW,
    # A unit that is not running is started.
    script="systemctl restart -- {target}",
    done_by_boot=True,
)

REBOOT_GUEST = EffectClass(100, "reboot-guest", "the VM reboots", reboots=True, done_by_boot=True)
REBOOT_NODE = EffectClass(110, "reboot-node", "the machine reboots", reboots=True, done_by_boot=True)
REBOOT_HYPERVISOR = EffectClass(
    120,
    "reboot-hypervisor",
    "the hypervisor reboots, and every VM on it stops",
    reboots=True,
    done_by_boot=True,
)

EFFECTS = (
    DAEMON_RELOAD,
    INITRAMFS,
    BOOT_LOADER,
    RELOAD,
    RESTART,
    REBOOT_GUEST,
    REBOOT_NODE,
    REBOOT_HYPERVISOR,
)
