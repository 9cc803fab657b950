"""What is in the lab's images. Every byte of this module and of the assets counts for the images' digest."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from provision.lab.settings import LabError

SUITE = "bookworm"
ASSETS = Path(__file__).parent / "assets"

BASE_PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "udev", "iproute2", "iputils-ping", "openssh-server", "procps", "kmod",
    "sudo", "chrony", "dnsmasq", "pciutils", "lvm2", "cloud-guest-utils", "e2fsprogs", "fdisk",
    "ca-certificates", "curl", "less", "python3", "cron", "tzdata",
)  # fmt: skip
VM_PACKAGES = (
    "linux-image-amd64", "initramfs-tools", "cloud-init", "grub2-common", "grub-pc-bin", "grub-efi-amd64-bin",
    "efibootmgr", "qemu-guest-agent", "dosfstools",
)  # fmt: skip

# Slow or useless in a rehearsal; a masked unit costs nothing at boot.
_MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer",
    "e2scrub_reap.service", "systemd-networkd-wait-online.service", "systemd-pstore.service",
    "lvm2-lvmpolld.socket", "dm-event.socket", "lvm2-monitor.service", "blk-availability.service",
    "systemd-rfkill.socket", "systemd-binfmt.service", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
    "sys-kernel-config.mount", "sys-fs-fuse-connections.mount", "dev-mqueue.mount", "hwclock-save.service",
)  # fmt: skip
_VM_MASKED = ("cloud-config.service", "cloud-init-hotplugd.socket")
_DISABLED = ("dnsmasq.service",)

_FILES = {
    "etc/systemd/network/90-default.network": "[Match]\nName=en* eth*\n\n[Network]\nDHCP=ipv4\n",
    "etc/systemd/system/lab-time-sources.service": (
        "[Unit]\nDescription=Hand DHCP's time servers to chrony\n"
        "After=chrony.service lab-time-sources.path\n\n"
        "[Service]\nType=oneshot\nExecStart=/usr/local/lib/lab-time-sources\n"
    ),
    "etc/systemd/system/lab-time-sources.path": (
        "[Unit]\nDescription=Watch DHCP leases for time servers\n\n"
        "[Path]\nPathChanged=/run/systemd/netif/leases\n\n[Install]\nWantedBy=multi-user.target\n"
    ),
    "etc/chrony/conf.d/lab.conf": "makestep 1 3\n",
    "etc/ssh/sshd_config.d/lab.conf": "UseDNS no\nPasswordAuthentication no\n",
    "etc/machine-id": "",  # "uninitialized" would make systemd enable every unit at the first boot
    "etc/hostname": "localhost\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/fstab": "",
    "etc/resolv.conf": "",
}

KERNEL_LINE = "console=ttyS0 loglevel=5 no_timer_check panic=5"
"""A busy machine without hardware virtualisation fails the timer check; a panic boots again by itself."""

_VM_FILES = {
    "etc/cloud/cloud.cfg.d/90-lab.cfg": (
        "datasource_list: [NoCloud, None]\n"
        "growpart: { mode: 'off' }\nresize_rootfs: false\n"
        "preserve_hostname: false\n"
        "system_info: { default_user: { name: debian, lock_passwd: true, "
        "sudo: ['ALL=(ALL) NOPASSWD:ALL'], shell: /bin/bash } }\n"
        "cloud_init_modules: [migrator, seed_random, bootcmd, write-files, set_hostname, update_hostname, "
        "update_etc_hosts, users-groups, ssh]\n"
        # One start of Python less: the unit of the middle stage is masked, what is used of it runs last.
        "cloud_config_modules: []\n"
        "cloud_final_modules: [runcmd, scripts-vendor, scripts-user, final-message]\n"
    ),
    "etc/default/grub": (
        "GRUB_DEFAULT=0\nGRUB_TIMEOUT=0\nGRUB_DISTRIBUTOR=Debian\n"
        'GRUB_CMDLINE_LINUX_DEFAULT=""\nGRUB_CMDLINE_LINUX="' + KERNEL_LINE + '"\n'
        "GRUB_TERMINAL=serial\nGRUB_DISABLE_OS_PROBER=true\nGRUB_DISABLE_RECOVERY=true\n"
    ),
    "etc/initramfs-tools/conf.d/lab": "MODULES=list\nCOMPRESS=gzip\nCOMPRESSLEVEL=1\nRESUME=none\n",
    "etc/initramfs-tools/modules": "virtio_pci\nvirtio_blk\nvirtio_scsi\nsd_mod\next4\n",
    "usr/sbin/policy-rc.d": "#!/bin/sh\nexit 101\n",
}

Progress = Callable[[str], None]


def build_base(target: Path, progress: Progress) -> None:
    """Make the root filesystem that containers run from and VM images start from.

    Raises:
        LabError: mmdebstrap failed (with its last lines).
    """
    progress("building the base root filesystem (about a minute)")
    root = target / "rootfs"
    trim = [
        f"--dpkgopt=path-exclude=/usr/share/{kind}/*" for kind in ("man", "locale", "doc", "info", "lintian")
    ]
    argv = ["mmdebstrap", "--variant=minbase", "--format=directory", f"--include={','.join(BASE_PACKAGES)}"]
    run(["unshare", "-m", *argv, *trim, "--aptopt=Apt::Install-Recommends false", SUITE, str(root)])
    for name in _MASKED:
        link(root, f"etc/systemd/system/{name}", "/dev/null")
    for name in _DISABLED:
        (root / "etc/systemd/system/multi-user.target.wants" / name).unlink(missing_ok=True)
    wants = "etc/systemd/system/multi-user.target.wants"
    link(root, f"{wants}/systemd-networkd.service", "/lib/systemd/system/systemd-networkd.service")
    # The service too: the lease may have come before the watch for it began.
    for unit in ("lab-time-sources.path", "lab-time-sources.service"):
        link(root, f"{wants}/{unit}", f"/etc/systemd/system/{unit}")
    write_files(root, _FILES)
    install_asset(root, "lab-time-sources", "usr/local/lib/lab-time-sources")
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()


def build_vm_root(base: Path, root: Path, progress: Progress) -> None:
    """Make the root filesystem of a VM: the base with kernel, boot loader and cloud-init.

    Raises:
        LabError: apt failed in the new root (with its last lines).
    """
    progress("adding kernel, boot loader and cloud-init (about a minute)")
    run(["cp", "-a", str(base), str(root)])
    write_files(root, _VM_FILES, executable=("usr/sbin/policy-rc.d",))
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    script = (
        'set -e; root=$1; shift; mount -t proc proc "$root/proc"; mount -t sysfs sysfs "$root/sys"; '
        'mount --bind /dev "$root/dev"; export DEBIAN_FRONTEND=noninteractive LC_ALL=C; '
        'chroot "$root" apt-get -qq -o Acquire::Retries=3 update; '
        'chroot "$root" apt-get -qq -o Acquire::Retries=3 install -y --no-install-recommends '
        '-o Dpkg::Options::=--force-confold "$@"; chroot "$root" apt-get clean'
    )
    run(["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", str(root), *VM_PACKAGES])
    (root / "usr/sbin/policy-rc.d").unlink()
    for name in _VM_MASKED:
        link(root, f"etc/systemd/system/{name}", "/dev/null")
    (root / "etc/resolv.conf").write_text("")
    (root / "etc/machine-id").write_text("")
    shutil.rmtree(root / "var/lib/apt/lists", ignore_errors=True)
    (root / "var/lib/apt/lists/partial").mkdir(parents=True)
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()


def write_files(root: Path, files: dict[str, str], executable: tuple[str, ...] = ()) -> None:
    """Write small files below a root filesystem."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755 if name in executable else 0o644)


def install_asset(root: Path, asset: str, name: str) -> None:
    """Copy a shipped script below a root filesystem, executable."""
    write_files(root, {name: (ASSETS / asset).read_text()}, executable=(name,))


def link(root: Path, name: str, target: str) -> None:
    """Make a symbolic link below a root filesystem."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def run(argv: list[str], stdin: str = "") -> str:
    """Run a command and return what it printed.

    Raises:
        LabError: with the last lines of its output.
    """
    env = {**os.environ, "LC_ALL": "C", "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    process = subprocess.run(argv, env=env, input=stdin, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        tail = "\n".join((process.stdout + process.stderr).splitlines()[-12:])
        remedy = "correct what the message says, then run the command again"
        raise LabError(f"{argv[0]} failed ({process.returncode}):\n{tail}", remedy)
    return process.stdout
