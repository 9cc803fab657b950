"""Queries about the kernel: modules, boot loader, arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.query import Frame
from provision.hosts.operations.basic import quote
from provision.hosts.queries.file import FileText
from provision.hosts.resources.base import HostFactKind, Rows, lines_of, no_answer

CMDLINE = FileText("/proc/cmdline")
"""Arguments of the running kernel."""


@dataclass(frozen=True, slots=True)
class ModuleState:
    """Whether a kernel module is `loaded`, `builtin`, `absent` or `foreign` (in a container).

    The name is written with underscores.
    """

    kind: ClassVar[str] = "module"
    name: str


def module_name(name: str) -> str:
    """Return the kernel's own spelling: `bochs-drm` and `bochs_drm` are one module."""
    return name.replace("-", "_")


_STATES = {"l": "loaded", "b": "builtin", "a": "absent", "f": "foreign"}


class ModuleStateKind:
    """Reads /sys/module (loadable modules have an `initstate`), then the list of built-in ones."""

    query = ModuleState

    def script(self, queries: Sequence[ModuleState]) -> str:
        """Return the fragment."""
        # systemd of a container writes this file; see systemd(1) on its container interface.
        lines = ["b=/lib/modules/$(uname -r)/modules.builtin", "c=; [ ! -f /run/systemd/container ] || c=1"]
        for name in dict.fromkeys(query.name for query in queries):
            pattern = quote("/" + name.replace("_", "[-_]") + "\\.ko")
            lines.append(
                f'if [ -n "$c" ]; then echo f {name}; '
                f"elif [ -e /sys/module/{name}/initstate ]; then echo l {name}; "
                f'elif [ -d /sys/module/{name} ] || {{ [ -r "$b" ] && grep -q {pattern} "$b"; }}; '
                f"then echo b {name}; else echo a {name}; fi"
            )
        return "\n".join(lines)

    def parse(self, frame: Frame, queries: Sequence[ModuleState]) -> Mapping[ModuleState, object]:
        """Return the state for each module."""
        states: dict[str, object] = {}
        for line in lines_of(frame):
            tag, _, name = line.partition(" ")
            if tag in _STATES:
                states[name] = _STATES[tag]
        return {query: states.get(query.name, no_answer(frame, f"module {query.name}")) for query in queries}


@dataclass(frozen=True, slots=True)
class BootLoader:
    """The boot loader: `grub`, `systemd-boot`, or `none` (a container, or a kernel given from outside)."""

    kind: ClassVar[str] = "boot-loader"


# Firmware's word first (efibootmgr), then proxmox-boot-tool's, then what is installed. The order follows
# Proxmox VE's administration guide on host boot loaders: /etc/kernel/cmdline may exist on hosts that boot by
# GRUB, and the other way round.
_LOADER_SCRIPT = r"""if [ -d /sys/firmware/efi ]; then echo 'efi|yes'; fi
if command -v efibootmgr >/dev/null 2>&1; then
  e=$(efibootmgr -v 2>/dev/null) || e=
  c=$(printf '%s\n' "$e" | sed -n 's/^BootCurrent: *//p')
  if [ -n "$c" ]; then printf '%s\n' "$e" | sed -n "s/^Boot$c/efiboot|&/p"; fi
fi
if [ -s /etc/kernel/proxmox-boot-uuids ] && command -v proxmox-boot-tool >/dev/null 2>&1; then
  proxmox-boot-tool status 2>/dev/null | sed -n 's/.*is configured with: /pbt|/p' || :
fi
if command -v update-grub >/dev/null 2>&1 && [ -d /boot/grub ]; then echo 'grub|yes'; fi
if command -v bootctl >/dev/null && [ -e /etc/kernel/cmdline ]; then echo 'sdboot|yes'; fi
echo 'done|'"""


_OTHER_LOADERS = ("zfsbootmenu", "\\zbm\\", "refind", "limine", "vmlinuz", "\\efi\\linux\\")
"""What takes the kernel line from a place of its own: a property of the pool, refind_linux.conf, limine.conf,
the firmware's entry (a kernel as EFI stub), or the image (a unified kernel)."""


def _read_loader(rows: Rows) -> str:
    if "efi" in rows:
        for row in rows.get("efiboot", ()):
            entry = "|".join(row).lower()
            if "systemd-boot" in entry:
                return "systemd-boot"
            if any(word in entry for word in _OTHER_LOADERS):
                return "none"
            if "grub" in entry or "shim" in entry:
                return "grub"
        if "pbt" in rows:
            # `uefi` means systemd-boot on the ESP, `grub` GRUB (Secure Boot).
            return "systemd-boot" if rows["pbt"][0][0].startswith("uefi") else "grub"
    if "grub" in rows:
        return "grub"
    return "systemd-boot" if "sdboot" in rows else "none"


BOOT_LOADER_KIND = HostFactKind(BootLoader, "the boot loader", _LOADER_SCRIPT, _read_loader)
