"""Creates the hypervisor: a VM with an emulated IOMMU and display cards, or a container instead."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from provision.lab import keys, netns
from provision.lab.api.storages import LOCAL, LOCAL_DISKS
from provision.lab.disk import MIB, ROOT_START_MIB
from provision.lab.nspawn import Container
from provision.lab.qemu import FIRMWARE, VARIABLES, Machine
from provision.lab.recipe import ASSETS, run, write_files
from provision.lab.router import lay_ssh, mac, static_network
from provision.lab.settings import API_PORT, BRIDGE, IMAGE, Card, LabSettings

KEY = "hypervisor"


def files(settings: LabSettings) -> dict[str, str]:
    """Return the files of VM and container: the API's proxy, and files of a Proxmox host that roles read."""
    name, address = settings.hypervisor
    proxy = f"/lib/systemd/systemd-socket-proxyd {settings.host_address}:{API_PORT}"
    return {
        "etc/hostname": f"{name}\n",
        "etc/hosts": f"127.0.0.1 localhost\n{address} {name}\n",
        "etc/systemd/system/pveproxy.socket": (
            "[Unit]\nDescription=API of the lab, as long as this hypervisor is up\n\n"
            f"[Socket]\nListenStream={API_PORT}\n\n[Install]\nWantedBy=sockets.target\n"
        ),
        "etc/systemd/system/pveproxy.service": (
            "[Unit]\nDescription=Hands the API's connections to the lab\nRequires=pveproxy.socket\n"
            f"After=pveproxy.socket network.target\n\n[Service]\nExecStart={proxy}\n"
        ),
        "etc/pve/storage.cfg": storage_cfg(),
        "var/lib/vz/snippets/.keep": "",
        "var/lib/vz/import/.keep": "",
        "var/lib/vz/template/iso/.keep": "",
        "etc/default/grub.d/.keep": "",
        "etc/chrony/conf.d/lab-router.conf": f"server {settings.gateway} iburst\n",
    }


def storage_cfg() -> str:
    """Return storage.cfg with the storages that the API serves."""
    locations = {"dir": "path /var/lib/vz", "lvmthin": "thinpool data\n\tvgname pve"}
    return "\n".join(
        f"{storage.kind}: {storage.name}\n"
        f"\t{locations[storage.kind]}\n"
        f"\tcontent {','.join(storage.content)}\n"
        for storage in (LOCAL, LOCAL_DISKS)
    )


def container(settings: LabSettings, rootfs: Path) -> Container:
    """Return the container that stands in for the hypervisor."""
    name = settings.hypervisor[0]
    return Container(settings.folder, KEY, name, rootfs, (mac(settings.name, KEY),))


def prepare_container(settings: LabSettings, machine: Container) -> None:
    """Write the container's files once."""
    if machine.read("etc/lab-stand-in") is not None:
        return
    lay_ssh(settings, machine)
    for path, text in files(settings).items():
        machine.write(path, text)
    machine.write("etc/systemd/network/10-lab.network", static_network(settings, settings.hypervisor[1]))
    machine.lay_clock()
    machine.write("etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n')
    machine.write("boot/vmlinuz-stand-in", "no kernel: the lab's container hypervisor\n")
    for name in ("update-initramfs", "update-grub"):
        machine.write(f"usr/sbin/{name}", (ASSETS / name).read_text(), 0o755)
    machine.enable("pveproxy.socket", "sockets.target")
    machine.folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ASSETS / "before-boot", machine.folder / "before-boot")
    (machine.folder / "before-boot").chmod(0o755)
    machine.write(
        "etc/lab-stand-in", "This container stands in for a hypervisor; it has no kernel of its own.\n"
    )


def vm(settings: LabSettings) -> Machine:
    """Return the hypervisor VM's machine."""
    return Machine(settings.folder, KEY, settings.hypervisor[0])


def prepare_vm(settings: LabSettings, machine: Machine, images: Path) -> None:
    """Create the VM's disk once: the guests' image with the hypervisor's files."""
    machine.folder.mkdir(parents=True, exist_ok=True)
    disk = machine.folder / "disk.raw"
    if disk.exists():
        return
    shutil.copyfile(VARIABLES, machine.folder / "efivars.fd")
    fresh = machine.folder / "disk.new"
    run(["qemu-img", "convert", "-O", "raw", str(images / f"{IMAGE}.qcow2"), str(fresh)])
    with tempfile.TemporaryDirectory() as laid:
        root = Path(laid)
        _lay_vm(settings, root)
        for folder in (root, *(path for path in root.rglob("*") if path.is_dir())):
            folder.chmod(0o755)
        # In a mount namespace of its own, so that mount and loop device end with the process after a kill.
        script = (
            'set -e; mount -o "loop,offset=$1" "$2" /mnt; cp -rT --preserve=mode,links "$3" /mnt; '
            "mkdir -p /mnt/etc/systemd/system/sockets.target.wants; "
            "ln -sf /etc/systemd/system/pveproxy.socket /mnt/etc/systemd/system/sockets.target.wants/; "
            "chmod 700 /mnt/root /mnt/root/.ssh; umount /mnt"
        )
        offset = str(ROOT_START_MIB * MIB)
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", offset]
        run([*argv, str(fresh), str(root)])
    fresh.rename(disk)


def _lay_vm(settings: LabSettings, root: Path) -> None:
    address = settings.hypervisor[1]
    nic = mac(settings.name, KEY)
    folder = settings.folder / "keys"
    host = folder / f"{KEY}-host"
    public = keys.ensure_ssh_key(host, settings.hypervisor[0])
    authorized = keys.ensure_ssh_key(folder / "site", "provision lab")
    write_files(
        root,
        {
            **files(settings),
            "etc/cloud/cloud-init.disabled": "the hypervisor has no seed\n",
            "etc/ssh/ssh_host_ed25519_key": host.read_text(),
            "etc/ssh/ssh_host_ed25519_key.pub": public + "\n",
            "root/.ssh/authorized_keys": authorized + "\n",
            "etc/systemd/network/10-nic.network": (
                f"[Match]\nMACAddress={nic}\nKind=!bridge\n\n[Network]\nBridge={BRIDGE}\n"
            ),
            f"etc/systemd/network/10-{BRIDGE}.netdev": (
                f"[NetDev]\nName={BRIDGE}\nKind=bridge\nMACAddress={nic}\n\n[Bridge]\nSTP=no\nForwardDelaySec=0\n"
            ),
            f"etc/systemd/network/10-{BRIDGE}.network": static_network(settings, address).replace(
                "Name=eth0", f"Name={BRIDGE}"
            ),
        },
    )
    for secret in ("etc/ssh/ssh_host_ed25519_key", "root/.ssh/authorized_keys"):
        (root / secret).chmod(0o600)


def vm_command(settings: LabSettings, accelerator: tuple[str, ...], tap: str) -> list[str]:
    """Return the hypervisor VM's part of QEMU's command line.

    A card behind its own root port is alone in its IOMMU group. A card and a USB controller behind one
    PCIe-to-PCI bridge share a group, because the bridge does not distinguish their requests.
    """
    argv = [
        "-machine", "q35,kernel-irqchip=split,smm=off", *accelerator, "-smp", "2",
        "-m", str(settings.hypervisor_memory_mib), "-device", "intel-iommu,intremap=on,caching-mode=on",
        "-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={FIRMWARE}",
        "-drive", "if=pflash,unit=1,format=raw,file=efivars.fd",
    ]  # fmt: skip
    # Cards come first, so that a first card alone in its group is always 0000:01:00.0.
    for index, card in enumerate(settings.cards, 1):
        argv += _card(index, card)
    disk, nic = len(settings.cards) + 1, len(settings.cards) + 2
    return [
        *argv,
        "-device", f"pcie-root-port,id=port{disk},chassis={disk},slot={disk}",
        "-drive", "file=disk.raw,if=none,id=disk0,format=raw,cache=unsafe,discard=unmap",
        "-device", f"virtio-blk-pci,drive=disk0,bus=port{disk},bootindex=100",
        "-device", f"pcie-root-port,id=port{nic},chassis={nic},slot={nic}",
        "-netdev", f"tap,id=net0,ifname={tap},script=no,downscript=no",
        "-device", f"virtio-net-pci,netdev=net0,bus=port{nic},romfile=,mac={mac(settings.name, KEY)}",
        "-device", "virtio-rng-pci",
    ]  # fmt: skip


def _card(index: int, card: Card) -> list[str]:
    port = ["-device", f"pcie-root-port,id=port{index},chassis={index},slot={index}"]
    if not card.shares_group:
        return [*port, "-device", f"secondary-vga,bus=port{index}"]
    return [
        *port,
        "-device", f"pcie-pci-bridge,id=bridge{index},bus=port{index}",
        "-device", f"secondary-vga,bus=bridge{index},addr=1",
        "-device", f"usb-ehci,bus=bridge{index},addr=2",
    ]  # fmt: skip


def start_vm(settings: LabSettings, machine: Machine, accelerator: tuple[str, ...]) -> None:
    """Start the hypervisor VM with its processors running. Raises GuestError."""
    tap = netns.add_tap(settings.folder, KEY, 0)
    machine.start(vm_command(settings, accelerator, tap), paused=False)
