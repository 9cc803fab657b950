"""Disk images: GPT with BIOS boot partition, ESP and root, for SeaBIOS and OVMF, made without loop devices.

The GRUB image of the BIOS boot partition is placed as `grub-bios-setup` places it: boot.img in sector 0 names
the sector of core.img, whose first sector names the next one (GRUB 2.06, `grub-core/boot/i386/pc`).
"""

from __future__ import annotations

import hashlib
import shutil
import struct
import uuid
from pathlib import Path

from provision.lab.recipe import KERNEL_LINE, run, write_files

SECTOR = 512
MIB = 1024 * 1024
DISK_MIB = 3072
BIOS_MIB, ESP_MIB = 1, 64
ROOT_START_MIB = 1 + BIOS_MIB + ESP_MIB
ROOT_MIB = DISK_MIB - ROOT_START_MIB - 1
LVM_ROOT_MIB = 1536
_PE_START_MIB = 1
_NAMESPACE = uuid.UUID("5f0d3bbb-6f6e-4b54-9d0d-1d6a3d2b6f10")
_ROOT_TYPE = "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709"
_LVM_TYPE = "E6D6D379-F507-44C2-A23C-238F2A3DF928"
_BOOT_KERNEL_SECTOR = 0x5C
_CORE_NEXT_SECTOR = 0x1F4
_MODULES = (
    "part_gpt", "ext2", "fat", "lvm", "normal", "linux", "configfile", "search", "search_fs_uuid", "serial",
    "terminal", "gzio", "echo", "test", "minicmd",
)  # fmt: skip


def build_stand_in(folder: Path, names: tuple[str, ...]) -> None:
    """Make the images that container guests "import": valid, empty qcow2 files."""
    for name in names:
        run(["qemu-img", "create", "-q", "-f", "qcow2", str(folder / f"{name}.qcow2"), f"{DISK_MIB}M"])
        _write_digest(folder, name)


def build_disks(folder: Path, root: Path, names: tuple[str, ...]) -> None:
    """Make the disk images of a VM root filesystem, and lay kernel and initramfs beside them."""
    shutil.copyfile(next((root / "boot").glob("vmlinuz-*")), folder / "vmlinuz")
    shutil.copyfile(next((root / "boot").glob("initrd.img-*")), folder / "initrd")
    for name in names:
        raw = folder / f"{name}.raw"
        _build_raw(raw, folder, root, name)
        run(["qemu-img", "convert", "-O", "qcow2", str(raw), str(folder / f"{name}.qcow2")])
        raw.unlink()
        _write_digest(folder, name)


def _build_raw(raw: Path, folder: Path, root: Path, name: str) -> None:
    fs_uuid = str(uuid.uuid5(_NAMESPACE, name))
    lvm = name.endswith("-lvm")
    kernel_root = "/dev/mapper/vg0-root" if lvm else f"UUID={fs_uuid}"
    version = next((root / "boot").glob("vmlinuz-*")).name.removeprefix("vmlinuz-")
    for platform in ("i386-pc", "x86_64-efi"):
        target = root / "boot/grub" / platform
        shutil.copytree(root / "usr/lib/grub" / platform, target, dirs_exist_ok=True)
    write_files(
        root,
        {
            "boot/grub/grub.cfg": _grub_cfg(fs_uuid, kernel_root, version),
            "etc/fstab": (
                f"UUID={fs_uuid} / ext4 errors=remount-ro 0 0\n"
                "LABEL=ESP /boot/efi vfat umask=0077,noauto,x-systemd.automount 0 0\n"
            ),
        },
    )
    (root / "boot/efi").mkdir(exist_ok=True)
    with raw.open("wb") as out:
        out.truncate(DISK_MIB * MIB)
    table = (
        "label: gpt\n"
        f"start=1MiB, size={BIOS_MIB}MiB, type=21686148-6449-6E6F-744E-656564454649\n"
        f"size={ESP_MIB}MiB, type=uefi\n"
        f"size={ROOT_MIB}MiB, type={_LVM_TYPE if lvm else _ROOT_TYPE}\n"
    )
    run(["sfdisk", "-q", str(raw)], stdin=table)
    ext4, esp = folder / "root.part", folder / "esp.part"
    with ext4.open("wb") as out:
        out.truncate((LVM_ROOT_MIB if lvm else ROOT_MIB) * MIB)
    run(
        [
            "mkfs.ext4",
            "-q",
            "-F",
            "-L",
            "root",
            "-U",
            fs_uuid,
            "-E",
            "lazy_itable_init=1",
            "-d",
            str(root),
            str(ext4),
        ]
    )
    with esp.open("wb") as out:
        out.truncate(ESP_MIB * MIB)
    run(["mkfs.vfat", "-n", "ESP", str(esp)])
    config = folder / "load.cfg"
    config.write_text(
        f"search --no-floppy --fs-uuid --set=root {fs_uuid}\n"
        "set prefix=($root)/boot/grub\nconfigfile $prefix/grub.cfg\n"
    )
    efi, core = folder / "BOOTX64.EFI", folder / "core.img"
    _grub_image(root, config, efi, "x86_64-efi", ())
    _grub_image(root, config, core, "i386-pc", ("biosdisk",))
    for made in ("::/EFI", "::/EFI/BOOT", "::/EFI/debian"):
        run(["mmd", "-i", str(esp), made])
    for place in ("::/EFI/BOOT/BOOTX64.EFI", "::/EFI/debian/grubx64.efi"):
        run(["mcopy", "-i", str(esp), str(efi), place])
    _place(esp, raw, (1 + BIOS_MIB) * MIB)
    if lvm:
        _make_volume_group(raw, root)
    _place(ext4, raw, (ROOT_START_MIB + (_PE_START_MIB if lvm else 0)) * MIB)
    _write_bios_loader(raw, root / "usr/lib/grub/i386-pc/boot.img", core)
    for part in (ext4, esp, efi, core, config):
        part.unlink()


def _make_volume_group(raw: Path, root: Path) -> None:
    """Write LVM's metadata for volume group `vg0` with `root` in its first extents, by the image's own LVM.

    Nothing is activated, so no device mapper is needed. Half of the group stays free, as Ubuntu's installer
    leaves it.
    """
    script = (
        'set -e; root=$1; loop=$(losetup --find --show --offset "$2" --sizelimit "$3" "$4"); '
        "trap 'losetup -d \"$loop\"' EXIT; "
        'mount -t proc proc "$root/proc"; mount -t sysfs sysfs "$root/sys"; '
        'mount --bind /dev "$root/dev"; mount -t tmpfs tmpfs "$root/run"; chroot "$root" sh -ec "'
        "pvcreate -q --dataalignment 1m $loop; vgcreate -q vg0 $loop; "
        f'lvcreate -q --driverloaded n -an -Zn -Wn -L {LVM_ROOT_MIB}m -n root vg0"'
    )
    sizes = [str(ROOT_START_MIB * MIB), str(ROOT_MIB * MIB)]
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(root), *sizes]
    run([*argv, str(raw)])


def _grub_cfg(fs_uuid: str, kernel_root: str, version: str) -> str:
    """The first boot's menu; `update-grub` on the machine replaces it."""
    return (
        "serial --unit=0 --speed=115200\nterminal_input serial\nterminal_output serial\nset timeout=0\n"
        "menuentry Debian {\n"
        f"  search --no-floppy --fs-uuid --set=root {fs_uuid}\n"
        f"  linux /boot/vmlinuz-{version} root={kernel_root} ro {KERNEL_LINE}\n"
        f"  initrd /boot/initrd.img-{version}\n}}\n"
    )


def _grub_image(root: Path, config: Path, target: Path, platform: str, extra: tuple[str, ...]) -> None:
    """Make a GRUB core image with the image's own GRUB."""
    inside = root / "boot"
    shutil.copyfile(config, inside / "load.cfg")
    argv = ["grub-mkimage", "-O", platform, "-c", "/boot/load.cfg", "-p", "/boot/grub", "-o", "/boot/out"]
    run(["chroot", str(root), *argv, *_MODULES, *extra])
    shutil.move(inside / "out", target)
    (inside / "load.cfg").unlink()


def _write_bios_loader(raw: Path, boot: Path, core: Path) -> None:
    start = MIB // SECTOR
    first = bytearray(boot.read_bytes())
    first[_BOOT_KERNEL_SECTOR : _BOOT_KERNEL_SECTOR + 8] = struct.pack("<Q", start)
    image = bytearray(core.read_bytes())
    image[_CORE_NEXT_SECTOR : _CORE_NEXT_SECTOR + 8] = struct.pack("<Q", start + 1)
    with raw.open("r+b") as disk:
        disk.write(first[:440])  # what follows is the protective MBR
        disk.seek(start * SECTOR)
        disk.write(image)


def _place(part: Path, raw: Path, offset: int) -> None:
    block = f"bs={MIB}"
    run(
        [
            "dd",
            f"if={part}",
            f"of={raw}",
            block,
            f"seek={offset // MIB}",
            "conv=notrunc,sparse",
            "status=none",
        ]
    )


def _write_digest(folder: Path, name: str) -> None:
    with (folder / f"{name}.qcow2").open("rb") as file:
        (folder / f"{name}.sha256").write_text(hashlib.file_digest(file, "sha256").hexdigest() + "\n")
