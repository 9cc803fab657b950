"""Chooses the accelerator of QEMU. /dev/kvm may open and KVM still hang or abort, so a short boot tests it.

The test boots the image's own kernel with an initramfs of one program, which prints a line and powers off.
The verdict is cached until the machine reboots.
"""

from __future__ import annotations

import contextlib
import struct
import subprocess
import tempfile
from pathlib import Path

from provision.lab.locks import exclusive
from provision.lab.settings import cache_root

TCG = ("-accel", "tcg,thread=multi", "-cpu", "max")
KVM = ("-accel", "kvm", "-cpu", "host")
PROOF = b"userland runs\n"
KVM_DEVICE = Path("/dev/kvm")
_DEADLINE = 20.0


def choose(kernel: Path) -> tuple[str, ...]:
    """Return QEMU's arguments for accelerator and processor.

    Args:
        kernel: a Linux kernel with a serial console.
    """
    if not KVM_DEVICE.exists():
        return TCG
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    verdict = cache_root() / f"kvm-{boot_id}"
    with exclusive(cache_root() / ".kvm.lock"):
        if not verdict.exists():
            for old in cache_root().glob("kvm-*"):
                old.unlink()
            verdict.write_text("yes" if prove(kernel, KVM) else "no")
        return KVM if verdict.read_text() == "yes" else TCG


def prove(kernel: Path, accelerator: tuple[str, ...]) -> bool:
    """Boot once with an accelerator; return whether userland ran and the machine powered off by itself."""
    with tempfile.TemporaryDirectory() as folder:
        initrd = Path(folder) / "initrd"
        initrd.write_bytes(proof_initramfs())
        argv = [
            "qemu-system-x86_64", "-machine", "q35", *accelerator, "-m", "512",
            "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio",
            "-kernel", str(kernel), "-initrd", str(initrd),
            "-append", "console=ttyS0 panic=-1",
        ]  # fmt: skip
        with contextlib.suppress(subprocess.TimeoutExpired, OSError):
            completed = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_DEADLINE, check=False
            )
            return completed.returncode == 0 and PROOF.strip() in completed.stdout
    return False


def proof_initramfs() -> bytes:
    """Return a cpio archive (newc) with /init and /dev/console."""
    return b"".join(
        (
            _cpio("init", 0o100755, _proof_program()),
            _cpio("dev", 0o40755, b""),
            _cpio("dev/console", 0o20600, b"", 5, 1),
            _cpio("TRAILER!!!", 0, b""),
        )
    )


def _proof_program() -> bytes:
    """Return a static x86-64 ELF program: write(1, PROOF), then reboot(POWER_OFF)."""
    base, headers = 0x400000, 0x78
    write, reboot, stay = b"\xb8\x01\x00\x00\x00\x0f\x05", b"\xb8\xa9\x00\x00\x00\x0f\x05", b"\xeb\xfe"
    before = b"\xbf\x01\x00\x00\x00" + b"\x48\xbe"  # edi = 1; rsi = address of the text, follows
    after = (
        b"\xba" + struct.pack("<I", len(PROOF)) + write
        + b"\xbf" + struct.pack("<I", 0xFEE1DEAD) + b"\xbe" + struct.pack("<I", 672274793)
        + b"\xba" + struct.pack("<I", 0x4321FEDC) + reboot + stay
    )  # fmt: skip
    text = base + headers + len(before) + 8 + len(after)
    code = before + struct.pack("<Q", text) + after + PROOF
    size = headers + len(code)
    elf = b"\x7fELF\x02\x01\x01" + bytes(9)
    elf += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, base + headers, 0x40, 0, 0, 0x40, 0x38, 1, 0, 0, 0)
    return elf + struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x1000) + code


def _cpio(name: str, mode: int, data: bytes, major: int = 0, minor: int = 0) -> bytes:
    raw = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(raw), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + raw
    head += bytes(-len(head) % 4)
    return head + data + bytes(-len(data) % 4)
