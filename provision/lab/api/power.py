"""Starting and stopping guests, inside tasks."""

from __future__ import annotations

import time
from pathlib import Path

from provision.lab.api.changes import apply_pending, running
from provision.lab.api.cloudinit import net_keys, seed
from provision.lab.api.configs import check_lock
from provision.lab.api.core import Lab
from provision.lab.api.disks import bus_order, drive_parts
from provision.lab.api.errors import TaskError
from provision.lab.api.pci import bind_groups, reserve_cards
from provision.lab.api.schema import parse_parts
from provision.lab.api.status import cores_of, memory_of
from provision.lab.api.store import write_json
from provision.lab.api.tasks import TaskLog
from provision.lab.api.vmschema import NET
from provision.lab.contracts import GuestError, GuestSpec, Nic

STOP_SECONDS = 60
# Proxmox VE's own limit when a node stops all guests; a pulled plug loses what a guest had not written.
NODE_STOP_SECONDS = 180
BOOT_SECONDS = 900.0


def start_guest(lab: Lab, vmid: int, log: TaskLog, *, skiplock: bool = False) -> None:
    """Start a VM as Proxmox VE does: pending changes, checks, cards to vfio-pci, then the guest.

    Raises:
        TaskError: it cannot start; the text is the task's exit status.
        GuestError: the guest driver or the hypervisor VM refused.
    """
    with lab.configs.locked(vmid):
        config = lab.configs.load(vmid)
        if not skiplock:
            check_lock(config)
        if config.values.get("template") == "1":
            raise TaskError("you can't start a vm if it's a template")
        if running(lab, vmid):
            raise TaskError(f"VM {vmid} already running")
        apply_pending(lab, config)
        lab.configs.save(config)
        values = config.values
        _check_host(lab, values)
        with reserve_cards(lab, vmid, values, log) as cards:
            spec = guest_spec(lab, vmid, values, log, cards=sum(card.is_display for card in cards))
            bind_groups(lab, cards)
            addresses = [function.address for card in cards for function in card.functions]
            # Before the start: a kill between both must not lose who holds the cards.
            write_json(lab.run_file(vmid), {"started": time.time(), "pci": addresses})
            lab.guests.start(spec)


def _check_host(lab: Lab, values: dict[str, str]) -> None:
    cpus = int(str(lab.facts()["cpus"]))
    if cores_of(values) > cpus:
        raise TaskError(f"MAX {cpus} vcpus allowed per VM on this node")
    for key in net_keys(values):
        bridge = parse_parts(NET, values[key]).get("bridge")
        if bridge is not None and bridge not in lab.bridges:
            raise TaskError(f"bridge '{bridge}' does not exist")


def _image(lab: Lab, key: str, value: str) -> Path:
    volid = drive_parts(key, value)["file"]
    volume = lab.storages.find(volid)
    if volume is None:
        raise TaskError(f"volume '{volid}' does not exist")
    return volume.path


def temporary_efivars(lab: Lab, vmid: int) -> Path:
    """Return the file of firmware variables of a VM without a disk for them."""
    return lab.folder / "run" / f"{vmid}-efivars.raw"


def guest_spec(lab: Lab, vmid: int, values: dict[str, str], log: TaskLog, *, cards: int) -> GuestSpec:
    """Return what the guest driver has to run for a configuration."""
    firmware = values.get("bios", "seabios")
    efivars = None
    if firmware == "ovmf" and "efidisk0" in values:
        efivars = _image(lab, "efidisk0", values["efidisk0"])
    elif firmware == "ovmf":
        log.add_warning("no efidisk configured! Using temporary efivars disk.")
        efivars = temporary_efivars(lab, vmid)
        efivars.parent.mkdir(parents=True, exist_ok=True)
        lab.guests.create_efivars(efivars)
    nics = []
    for key in net_keys(values):
        parts = parse_parts(NET, values[key])
        nics.append(Nic(mac=parts["macaddr"].lower(), bridge=parts.get("bridge", ""), model=parts["model"]))
    return GuestSpec(
        vmid=vmid,
        name=values.get("name", f"VM{vmid}"),
        cores=cores_of(values),
        memory=memory_of(values),
        machine="q35" if "q35" in values.get("machine", "") else "pc",
        firmware=firmware,
        disks=tuple(_image(lab, key, values[key]) for key in bus_order(values)),
        efivars=efivars,
        nics=tuple(nics),
        cloud_init=seed(lab, vmid, values),
        cards=cards,
        balloon=values.get("balloon", "1") != "0",
    )


def stop_guest(lab: Lab, vmid: int, *, skiplock: bool = False) -> None:
    """Pull a VM's plug; fine when it is off."""
    with lab.configs.locked(vmid):
        config = lab.configs.load(vmid)
        if not skiplock:
            check_lock(config)
        lab.guests.stop(vmid)
        lab.run_file(vmid).unlink(missing_ok=True)


def shut_down_guest(lab: Lab, vmid: int, log: TaskLog, timeout: float, *, force: bool) -> None:
    """Ask a VM to end; with `force` pull the plug after `timeout` seconds.

    Raises:
        TaskError: it still runs.
    """
    with lab.configs.locked(vmid):
        check_lock(lab.configs.load(vmid))
        if not running(lab, vmid):
            return
        if not lab.guests.shutdown(vmid, timeout):
            if not force:
                raise TaskError("VM quit/powerdown failed - got timeout")
            log.line("VM still running - terminating now with SIGTERM")
            lab.guests.stop(vmid)
        lab.run_file(vmid).unlink(missing_ok=True)


def reboot_guest(lab: Lab, vmid: int, log: TaskLog, timeout: float) -> None:
    """Shut a VM down and start it, so that pending changes come into force."""
    with lab.configs.locked(vmid):
        shut_down_guest(lab, vmid, log, timeout, force=False)
        start_guest(lab, vmid, log)


def boot_id(lab: Lab) -> str | None:
    """Return the hypervisor's boot id, None while it cannot be reached, empty when it tells none."""
    try:
        return str(lab.hypervisor.facts().get("boot_id", ""))
    except (GuestError, OSError):
        return None


def _wait_for_boot(lab: Lab, before: str | None) -> None:
    if before == "":  # it tells no boot id: there is nothing to wait for
        return
    deadline = time.monotonic() + BOOT_SECONDS
    while boot_id(lab) in {before, None}:
        if time.monotonic() > deadline:
            raise TaskError(
                f"the hypervisor did not come back in {BOOT_SECONDS:.0f} s; its console tells more"
            )
        time.sleep(1)


def reboot_node(lab: Lab, log: TaskLog) -> None:
    """Stop all guests, reboot the hypervisor VM, and start what starts at boot."""
    for vmid in lab.configs.ids():
        if running(lab, vmid):
            log.line(f"Stopping VM {vmid}")
            shut_down_guest(lab, vmid, log, NODE_STOP_SECONDS, force=True)
    before = boot_id(lab)
    lab.hypervisor.reboot()
    _wait_for_boot(lab, before)
    for vmid in lab.configs.ids():
        if lab.configs.load(vmid).values.get("onboot") == "1":
            log.line(f"Starting VM {vmid}")
            start_guest(lab, vmid, log)
