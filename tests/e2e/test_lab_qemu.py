"""The lab's machines, QEMU driver: real kernels, IOMMU groups, firmware, disks, cloud-init and reboots."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from provision.lab import keys, netns, record, site
from provision.lab.contracts import CloudInit, GuestSpec, Nic, PciDevice
from provision.lab.daemon import make_guests
from provision.lab.hypervisor import SshHypervisor, ssh_command
from provision.lab.settings import Card, LabSettings, namespace
from tests.e2e.evidence import watch
from tests.e2e.site import eventually

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and virtual machines"),
]
SETTINGS = LabSettings(
    "e2e-qemu", "qemu", {"pve": "198.18.0.5"}, cards=(Card("gpu0"), Card("gpu1", shares_group=True))
)
BOOT = 900.0


@pytest.fixture(scope="module")
def hypervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHypervisor]:
    before = os.environ.get("PROVISION_LAB_DIR")
    labs = tmp_path_factory.mktemp("labs")
    os.environ["PROVISION_LAB_DIR"] = str(labs)
    watch(labs)
    try:
        site.up(SETTINGS, print)
        yield site.hypervisor(SETTINGS.name)
    finally:
        site.down(SETTINGS.name)
        if before is None:
            del os.environ["PROVISION_LAB_DIR"]
        else:
            os.environ["PROVISION_LAB_DIR"] = before


def cards(hypervisor: SshHypervisor) -> list[PciDevice]:
    return [device for device in hypervisor.pci_devices() if device.vendor == "1234"]


def test_one_card_is_alone_in_its_group_and_the_other_is_not(hypervisor: SshHypervisor) -> None:
    devices = hypervisor.pci_devices()
    alone, shared = cards(hypervisor)
    members = {
        card.address: {
            device.address
            for device in devices
            if device.iommu_group == card.iommu_group and not device.cls.startswith("06")
        }
        for card in (alone, shared)
    }
    assert members[alone.address] == {alone.address}
    assert len(members[shared.address]) > 1
    assert hypervisor.facts()["boot_mode"] == "efi"


def test_the_native_driver_binds_first_and_vfio_takes_over_one_card(hypervisor: SshHypervisor) -> None:
    alone, _ = cards(hypervisor)
    assert alone.driver == "bochs-drm"
    hypervisor.bind_vfio((alone.address,))
    hypervisor.bind_vfio((alone.address,))
    alone, shared = cards(hypervisor)
    assert (alone.driver, shared.driver) == ("vfio-pci", "bochs-drm")


def say(address: str, script: str) -> str:
    folder = SETTINGS.folder
    argv = ssh_command(folder, address, "debian")
    argv[argv.index("-i") + 1] = str(folder / "keys/guest")
    argv[argv.index(f"UserKnownHostsFile={folder / 'keys/known_hosts'}")] = (
        f"UserKnownHostsFile={folder / 'guest_hosts'}"
    )
    result = subprocess.run(
        netns.inside(namespace(SETTINGS.folder), argv),
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout


def guest(vmid: int) -> GuestSpec:
    folder = SETTINGS.folder
    public = keys.ensure_ssh_key(folder / f"first-{vmid}", "first")
    private = "".join(f"    {line}\n" for line in (folder / f"first-{vmid}").read_text().splitlines())
    vendor = f"#cloud-config\nssh_keys:\n  ed25519_private: |\n{private}  ed25519_public: {public}\n"
    seed = CloudInit(f"vm-{vmid}", "debian", (folder / "keys/guest.pub").read_text(), "iid-1", vendor)
    nics = (Nic(f"BC:24:11:00:00:{vmid % 100:02X}", "vmbr0"),)
    disk = folder / f"{vmid}.qcow2"
    return GuestSpec(vmid, f"vm-{vmid}", 1, 1024, "pc", "seabios", (disk,), None, nics, seed)


def lease(mac: str) -> str | None:
    argv = netns.inside(namespace(SETTINGS.folder), ssh_command(SETTINGS.folder, SETTINGS.gateway))
    script = "cat /var/lib/misc/dnsmasq.leases"
    result = subprocess.run(argv, input=script, capture_output=True, text=True, check=False)
    rows = [line.split() for line in result.stdout.splitlines()]
    return next((row[2] for row in rows if row[1] == mac.lower()), None)


def test_guests_boot_both_firmwares_with_seed_card_and_room_to_grow(hypervisor: SshHypervisor) -> None:
    assert hypervisor.facts()
    lab = record.load(SETTINGS.folder)
    guests = make_guests(lab)
    plain = guest(101)
    card = replace(
        guest(102),
        machine="q35",
        firmware="ovmf",
        efivars=SETTINGS.folder / "efivars.fd",
        cards=1,
        balloon=False,
    )
    guests.create_efivars(SETTINGS.folder / "efivars.fd")
    for spec in (plain, card):
        guests.import_disk(lab.images.served[0].path, spec.disks[0], 8)
        guests.start(spec)
    for spec in (plain, card):
        address = str(eventually(partial(lease, spec.nics[0].mac), BOOT))
        public = (SETTINGS.folder / f"first-{spec.vmid}.pub").read_text().split()
        (SETTINGS.folder / "guest_hosts").write_text(f"{address} {public[0]} {public[1]}\n")
        script = "hostname; cloud-init status --wait | tail -1; lsblk -dbno SIZE /dev/sda; lspci -n"
        said = str(eventually(partial(say, address, script), BOOT)).splitlines()
        assert said[:3] == [spec.name, "status: done", str(8 << 30)]
        assert any("1234:1111" in line for line in said[3:]) == bool(spec.cards)
    assert guests.shutdown(101, 300)
    assert guests.pid(101) is None
    guests.stop(102)
    assert guests.pid(102) is None


VICTIMS = {"hypervisor": "-name pve ", "daemon": "provision.lab", "guest": "-name vm-103 ", "everything": ""}


@pytest.mark.usefixtures("hypervisor")
@pytest.mark.parametrize("victims", VICTIMS)
def test_down_leaves_nothing_also_after_kills(victims: str) -> None:
    if not site.status(SETTINGS.name).up:
        site.up(SETTINGS, print)
    lab = record.load(SETTINGS.folder)
    guests = make_guests(lab)
    spec = guest(103)
    guests.import_disk(lab.images.served[0].path, spec.disks[0], 8)
    guests.start(spec)  # amid its boot: it holds one of the two slots
    found = processes_of(SETTINGS.folder)
    killed = [pid for pid, words in found.items() if VICTIMS[victims] in words]
    assert killed, found
    for pid in killed:
        with suppress(ProcessLookupError):  # some go with the one that was killed before
            os.kill(pid, signal.SIGKILL)
    site.down(SETTINGS.name)
    assert site.leftovers(SETTINGS.name) == ()
    assert processes_of(SETTINGS.folder) == {}


def processes_of(folder: Path) -> dict[int, str]:
    """Return the processes that name a lab's folder."""
    found = {}
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = each.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in words:
                found[int(each.parent.name)] = words
    return found
