"""The Debian packages that a lab needs on the machine it runs on."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from provision.lab.settings import LabError

# package -> a file or command that it installs
CONTAINER = {
    "mmdebstrap": "mmdebstrap",
    "systemd-container": "systemd-nspawn",
    "iproute2": "ip",
    "openssh-client": "ssh-keygen",
    "util-linux": "nsenter",
    "qemu-utils": "qemu-img",
    "debian-archive-keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
}
QEMU = {
    **CONTAINER,
    "qemu-system-x86": "qemu-system-x86_64",
    "ovmf": "/usr/share/OVMF/OVMF_CODE_4M.fd",
    "genisoimage": "genisoimage",
    "dosfstools": "mkfs.vfat",
    "mtools": "mcopy",
    "fdisk": "sfdisk",
    "e2fsprogs": "mkfs.ext4",
    "mount": "mount",
}


def needed(driver: str) -> dict[str, str]:
    """Return package -> file or command for a driver."""
    return QEMU if driver == "qemu" else CONTAINER


def missing(driver: str) -> tuple[str, ...]:
    """Return the packages whose file or command is missing."""
    return tuple(name for name, proof in needed(driver).items() if not _present(proof))


def install(packages: tuple[str, ...], progress: Callable[[str], None]) -> None:
    """Install packages through apt.

    Raises:
        LabError: this is not a Debian machine, or apt failed; the text has its last lines.
    """
    if not packages:
        return
    words = " ".join(packages)
    by_hand = f"install these packages yourself: {words}"
    if shutil.which("apt-get") is None:
        raise LabError("the lab needs Debian packages, but this machine has no apt", by_hand)
    progress(f"installing Debian packages: {words}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "l"}
    apt = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]
    for argv in ([*apt, "update"], [*apt, "install", "-y", "--no-install-recommends", *packages]):
        completed = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        if completed.returncode != 0:
            tail = "\n".join((completed.stdout + completed.stderr).splitlines()[-8:])
            raise LabError(f"{' '.join(argv[:1] + argv[6:])} failed\n{tail}", by_hand)


def _present(proof: str) -> bool:
    return Path(proof).exists() if proof.startswith("/") else shutil.which(proof) is not None
