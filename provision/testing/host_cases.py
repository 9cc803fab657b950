"""Case tables of host resources: the same cases run on ModelHost and in real shells below a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.contracts.resource import Resource
from provision.hosts.resources.command import Command
from provision.hosts.resources.file import Directory, File, FileLine
from provision.testing.model_state import ModelFile

SYSTEM = "case/ssh"
Make = Callable[[str], Resource]


@dataclass(frozen=True, slots=True)
class Case:
    """One start, one desired state.

    Args:
        name: what it shows.
        make: the resource, below a folder.
        before: what is there at the start, by relative path.
        unchanged: it is as desired from the start.
        refused: no fix may touch it.
    """

    name: str
    make: Make
    before: Mapping[str, ModelFile] = field(default_factory=dict)
    unchanged: bool = False
    refused: bool = False


def _file(content: bytes = b"", mode: str = "0644") -> ModelFile:
    return ModelFile(content, mode)


_DIRECTORY = ModelFile(mode="0755", type="directory")
_LINK = ModelFile(mode="0777", type="link", target="target")
_ODD = b"'quotes' $HOME `id` \\n %s\ttab\n"
_BINARY = bytes(range(256)) + b"no newline at the end"


def _at_a(content: bytes | None = None, mode: str = "0644", **more: Any) -> Make:
    return lambda folder: File(SYSTEM, f"{folder}/a", content, mode, **more)


def _line(line: str) -> Make:
    return lambda folder: FileLine(SYSTEM, f"{folder}/a", line)


FILE_CASES = (
    Case("a new file", _at_a(b"one\n")),
    Case("a new file with parents", lambda d: File(SYSTEM, f"{d}/x/y/a", b"one\n")),
    Case("an empty file", _at_a(b"")),
    Case("no newline at the end", _at_a(b"one")),
    Case("shell metacharacters", _at_a(_ODD)),
    Case("binary content", _at_a(_BINARY)),
    Case("UTF-8 content", _at_a("Grüße ✓\n".encode())),
    Case("an odd name", lambda d: File(SYSTEM, f"{d}/it's a $name; -n", b"one\n")),
    Case("a name like an option", lambda d: File(SYSTEM, f"{d}/-rf", b"one\n")),
    Case("other content", _at_a(b"new\n"), {"a": _file(b"old\n")}),
    Case("longer content", _at_a(b"new\n" * 9), {"a": _file(b"new\n")}),
    Case("binary is replaced", _at_a(b"new\n"), {"a": _file(_BINARY)}),
    Case("another mode", _at_a(b"x", "0600"), {"a": _file(b"x", "0644")}),
    Case("a mode of three digits", _at_a(b"x", "755"), {"a": _file(b"x")}),
    Case("setuid", _at_a(b"x", "4755"), {"a": _file(b"x")}),
    Case("mode is kept when unset", _at_a(b"y", ""), {"a": _file(b"x", "0640")}),
    Case("only the mode is managed", _at_a(None, "0640"), {"a": _file(b"x")}),
    Case("as desired", _at_a(b"one\n"), {"a": _file(b"one\n")}, unchanged=True),
    Case("a file goes", _at_a(absent=True), {"a": _file(b"x")}),
    Case("a link goes", _at_a(absent=True), {"a": _LINK, "target": _file(b"x")}),
    Case("absent already", _at_a(absent=True), unchanged=True),
    Case("a secret", _at_a(b"s3cret\n", "0600", secret=True)),
    Case("another secret", _at_a(b"s3cret\n", "0600", secret=True), {"a": _file(b"other\n", "0600")}),
    Case(
        "the same secret",
        _at_a(b"s3cret\n", "0600", secret=True),
        {"a": _file(b"s3cret\n", "0600")},
        unchanged=True,
    ),
    Case("a link is refused", _at_a(b"new"), {"a": _LINK, "target": _file(b"x")}, refused=True),
    Case("a folder is refused", _at_a(b"new"), {"a": _DIRECTORY}, refused=True),
    Case("a folder is not removed as a file", _at_a(absent=True), {"a": _DIRECTORY}, refused=True),
    Case("a line in a new file", _line("x = 1")),
    Case("a line is added", _line("x = 1"), {"a": _file(b"y\n\nz\n", "0600")}),
    Case("a line after an open end", _line("x = 1"), {"a": _file(b"y")}),
    Case("a line is there", _line("x = 1"), {"a": _file(b"y\nx = 1\n\n")}, unchanged=True),
    Case("a line twice is left alone", _line("x"), {"a": _file(b"x\ny\nx\n")}, unchanged=True),
    Case("a line with backslashes", _line(r"a\nb\\c & 'd' $1"), {"a": _file()}),
    Case("a line through a link is refused", _line("x"), {"a": _LINK, "target": _file(b"y\n")}, refused=True),
    Case("a new folder", lambda d: Directory(SYSTEM, f"{d}/x/y", "0750")),
    Case("a folder's mode", lambda d: Directory(SYSTEM, f"{d}/x", "0700"), {"x": _DIRECTORY}),
    Case(
        "a file instead of a folder", lambda d: Directory(SYSTEM, f"{d}/x"), {"x": _file(b"x")}, refused=True
    ),
    Case("a command that creates", lambda d: Command(SYSTEM, "c", f"touch '{d}/made'", creates=f"{d}/made")),
    Case(
        "a command whose file is there",
        lambda d: Command(SYSTEM, "c", "exit 1", creates=f"{d}/made"),
        {"made": _file()},
        unchanged=True,
    ),
)
"""Files, lines, folders and commands."""

GRUB_CASES = (
    ("", ("nomodeset",), "nomodeset"),
    ("quiet", ("nomodeset", "modprobe.blacklist=a,b"), "quiet nomodeset modprobe.blacklist=a,b"),
    ("quiet nomodeset", ("nomodeset",), "quiet nomodeset"),
    ("nomodeset2", ("nomodeset",), "nomodeset2 nomodeset"),
    ("modprobe.blacklist=a", ("modprobe.blacklist=a,b",), "modprobe.blacklist=a modprobe.blacklist=a,b"),
    ("kvm_intel.nested=1", ("kvm-intel.nested=1",), "kvm_intel.nested=1"),
    ("quiet", ("memmap=4G$4G", "a=b;c"), "quiet 'memmap=4G$4G' 'a=b;c'"),
    ("", ('acpi_osi="!Windows 2015"', "acpi_osi=!"), "'acpi_osi=!Windows 2015' acpi_osi=!"),
    ("'acpi_osi=!Windows 2015'", ('"acpi_osi=!Windows 2015"',), "'acpi_osi=!Windows 2015'"),
    (
        "hugepagesz=1G hugepages=4",
        ("hugepagesz=2M", "hugepages=4"),
        "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4",
    ),
)
"""GRUB_CMDLINE_LINUX_DEFAULT, our arguments, and what GRUB hands to the kernel."""

FSTAB_CASES = (
    (b"", b""),
    (b"/dev/vda1 / ext4 defaults 0 1\n", b"/dev/vda1 / ext4 defaults 0 1\n"),
    (b"/dev/vdb none swap sw 0 0\n", b"# off by provision: /dev/vdb none swap sw 0 0\n"),
    (
        b"# Gr\xfc\xdfe\n\n  UUID=1\tnone\tswap\tsw\n/s none swap",
        b"# Gr\xfc\xdfe\n\n# off by provision:   UUID=1\tnone\tswap\tsw\n# off by provision: /s none swap\n",
    ),
    (
        b"# /dev/vdb none swap sw\n/dev/swap /swap ext4\n\n",
        b"# /dev/vdb none swap sw\n/dev/swap /swap ext4\n\n",
    ),
    (b"/swap.img\tnone\tswap\tsw\t0\t0\n", b"# off by provision: /swap.img\tnone\tswap\tsw\t0\t0\n"),
    (
        b"LABEL=S swap swap pri=5\n/dev/mapper/c1 none swap sw\n",
        b"# off by provision: LABEL=S swap swap pri=5\n# off by provision: /dev/mapper/c1 none swap sw\n",
    ),
    (
        b"UUID=1 /swap btrfs subvol=@swap 0 0\n/swap/swapfile none swap defaults 0 0\n",
        b"UUID=1 /swap btrfs subvol=@swap 0 0\n# off by provision: /swap/swapfile none swap defaults 0 0\n",
    ),
)
"""A file like /etc/fstab, and what it is without swap."""

HOSTS_CASES = (
    (
        b"127.0.1.1\told.lan old registry.lan pihole   # local services\n::1 localhost ip6-localhost\n",
        "127.0.1.1 vm-1.lan vm-1\told.lan old registry.lan pihole   # local services",
    ),
    (b"", "127.0.1.1 vm-1.lan vm-1"),
    (b"127.0.0.1 localhost", "127.0.1.1 vm-1.lan vm-1"),
    (b"127.0.1.1 vm-1\n", "127.0.1.1 vm-1.lan vm-1"),
    (b"127.0.1.1\n", "127.0.1.1 vm-1.lan vm-1"),
    (b"127.0.1.1#nothing\n", "127.0.1.1 vm-1.lan vm-1#nothing"),
    (b"127.0.1.1  # vm-1.lan\n", "127.0.1.1 vm-1.lan vm-1  # vm-1.lan"),
    (b"  127.0.1.1 image\n", "  127.0.1.1 vm-1.lan vm-1 image"),
    (b"#127.0.1.1 vm-1.lan\n127.0.1.1 a\n", "127.0.1.1 vm-1.lan vm-1 a"),
    (b"127.0.1.1 a\n127.0.1.1 b\n", "127.0.1.1 vm-1.lan vm-1 a"),
    (b"127.0.1.10 a\n127.0.1.1 VM-1 b\n", "127.0.1.1 vm-1.lan VM-1 b"),
    (b"127.0.1.1\tvm-10 xvm-1\n", "127.0.1.1 vm-1.lan vm-1\tvm-10 xvm-1"),
    (b"127.0.1.1 gr\xc3\xbcn & \\1\n", "127.0.1.1 vm-1.lan vm-1 gr\u00fcn & \\1"),
    (b"127.0.1.1 a\r\n", "127.0.1.1 vm-1.lan vm-1 a\r"),
)
"""A file like /etc/hosts, and the line that it has once it names vm-1.lan."""
