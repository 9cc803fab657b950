"""A VM begins again from its image, and is never destroyed: only its system disk is exchanged.

So its number, MAC addresses, data disks and every setting that nobody declares stay, and nothing has to be
detached and attached again. The token of `provision rebuild` goes with the request that brings the new disk:
after a kill anywhere before it the next run does the same again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from provision.proxmox import formats
from provision.proxmox.queries import VmState

_SLOTS = (*(f"ide{number}" for number in range(4)), *(f"sata{number}" for number in range(6)))
"""Where a cloud-init drive may be."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What replaces a VM's system disk.

    Args:
        slot: its key.
        disk: the property string that makes the new one.
        fixed: disks whose kind changes (EFI variables, TPM), by key; they are made again, too.
        settings: further keys of the configuration; None deletes one.
        cloud_init: what the guest gets at its first boot.
    """

    slot: str
    disk: str
    fixed: Mapping[str, str]
    settings: Mapping[str, str | None]
    cloud_init: Mapping[str, object]

    def gone(self, state: VmState) -> tuple[str, ...]:
        """Return the keys whose disks are deleted before the new ones are made."""
        return tuple(key for key in (self.slot, *self.fixed) if state.next_value(key))

    def data(self, state: VmState) -> dict[str, object]:
        """Return the parameters of the request that brings the new disks."""
        cloud_init = dict(self.cloud_init)
        if any("cloudinit" in state.next_value(slot) for slot in _SLOTS):
            cloud_init.pop("ide2", None)  # Proxmox VE writes the drive again at each start
        removed = sorted(key for key, value in self.settings.items() if value is None)
        # A disk that is deleted leaves the boot order (qemu-server, PVE/API2/Qemu.pm, update_vm_api).
        order = formats.parse(state.next_value("boot")).get("order", "").split(";")
        boot = order if self.slot in order else [self.slot, *filter(None, order)]
        return {
            **{key: value for key, value in self.settings.items() if value is not None},
            **({"delete": ",".join(removed)} if removed else {}),
            **cloud_init,
            **self.fixed,
            self.slot: self.disk,
            "boot": f"order={';'.join(boot)}",
        }
