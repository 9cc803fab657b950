"""Questions about the kernel: modules, boot loader, arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.query import Frame
from provision.hosts.operations.basic import quote
from provision.hosts.queries.file import FileText
from provision.hosts.resources.base import why

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
        for name in dict.fromkeys(each.name for each in queries):
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
        seen: dict[str, str] = {}
        lines = [] if frame.dropped else frame.stdout.decode("utf-8", "replace").split("\n")[:-1]
        for line in lines:
            tag, _, name = line.partition(" ")
            if tag in _STATES:
                seen[name] = _STATES[tag]
        return {each: seen.get(each.name, why(frame, f"module {each.name}")) for each in queries}


@dataclass(frozen=True, slots=True)
class BootLoader:
    """The boot loader: `grub`, `systemd-boot`, or `none` (a container, or a kernel given from outside)."""

    kind: ClassVar[str] = "boot-loader"


class BootLoaderKind:
    """Firmware's word first (efibootmgr), then proxmox-boot-tool's, then what is installed.

    The order follows Proxmox VE's administration guide on host boot loaders: /etc/kernel/cmdline may exist on
    hosts that boot by GRUB, and the other way round.
    """

    query = BootLoader

    def script(self, queries: Sequence[BootLoader]) -> str:
        """Return the fragment."""
        del queries
        return (
            "if [ -d /sys/firmware/efi ]; then echo 'efi|yes'; fi\n"
            "if command -v efibootmgr >/dev/null 2>&1; then\n"
            "  e=$(efibootmgr -v 2>/dev/null) || e=\n"
            "  c=$(printf '%s\\n' \"$e\" | sed -n 's/^BootCurrent: *//p')\n"
            '  if [ -n "$c" ]; then printf \'%s\\n\' "$e" | sed -n "s/^Boot$c/efiboot|&/p"; fi\n'
            "fi\n"
            "if [ -s /etc/kernel/proxmox-boot-uuids ] && command -v proxmox-boot-tool >/dev/null 2>&1; then\n"
            "  proxmox-boot-tool status 2>/dev/null | sed -n 's/.*is configured with: /pbt|/p' || :\n"
            "fi\n"
            "if command -v update-grub >/dev/null 2>&1 && [ -d /boot/grub ]; then echo 'grub|yes'; fi\n"
            "if command -v bootctl >/dev/null && [ -e /etc/kernel/cmdline ]; then echo 'sdboot|yes'; fi\n"
            "echo 'done|'"
        )

    def parse(self, frame: Frame, queries: Sequence[BootLoader]) -> Mapping[BootLoader, object]:
        """Return the boot loader's name."""
        fields: dict[str, list[str]] = {}
        for line in frame.stdout.decode("utf-8", "replace").split("\n"):
            tag, found, value = line.partition("|")
            if found:
                fields.setdefault(tag, []).append(value)
        if "done" not in fields or frame.dropped:
            return dict.fromkeys(queries, why(frame, "the boot loader"))
        return dict.fromkeys(queries, _loader(fields))


def _loader(fields: Mapping[str, list[str]]) -> str:
    if "efi" in fields:
        for line in fields.get("efiboot", ()):
            low = line.lower()
            if "systemd-boot" in low:
                return "systemd-boot"
            if "grub" in low or "shim" in low:
                return "grub"
        for line in fields.get("pbt", ()):
            # `uefi` means systemd-boot on the ESP, `grub` GRUB (Secure Boot).
            return "systemd-boot" if line.startswith("uefi") else "grub"
    if "grub" in fields:
        return "grub"
    return "systemd-boot" if "sdboot" in fields else "none"


def unsafe_argument(argument: str) -> bool:
    """Whether a kernel argument holds what a shell or boot loader would take apart."""
    return not argument or not all(char.isalnum() or char in "_.,=:+@/-*!" for char in argument)


def split_list(argument: str) -> tuple[str, frozenset[str]] | None:
    """Return key and members of an argument that is a comma list of modules, else None."""
    name, found, value = argument.partition("=")
    if found and name in ("modprobe.blacklist", "module_blacklist"):
        return name, frozenset(filter(None, value.split(",")))
    return None


def missing_arguments(line: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return what a kernel command line lacks; of comma lists only the missing members."""
    present = line.split()
    members: dict[str, set[str]] = {}
    for each in present:
        pair = split_list(each)
        if pair is not None:
            members.setdefault(pair[0], set()).update(map(module_name, pair[1]))
    lacking: list[str] = []
    for argument in wanted:
        pair = split_list(argument)
        if pair is None:
            if argument not in present:
                lacking.append(argument)
            continue
        rest = [
            each
            for each in argument.partition("=")[2].split(",")
            if module_name(each) not in members.get(pair[0], set())
        ]
        if rest:
            lacking.append(f"{pair[0]}={','.join(rest)}")
    return tuple(lacking)


def united_arguments(line: str, wanted: Sequence[str]) -> str:
    """Return a command line with what it lacked: comma lists are united in place, nothing comes twice."""
    parts = line.split()
    for argument in missing_arguments(line, wanted):
        pair = split_list(argument)
        index = -1
        if pair is not None:
            same = [at for at, each in enumerate(parts) if each.startswith(f"{pair[0]}=")]
            index = same[-1] if same else -1
        if index < 0:
            parts.append(argument)
        else:
            parts[index] += "," + argument.partition("=")[2]
    return " ".join(parts)


def without_arguments(line: str, unwanted: Sequence[str]) -> str:
    """Return a command line without some arguments; of comma lists only the members go."""
    plain = {each for each in unwanted if split_list(each) is None}
    members: dict[str, set[str]] = {}
    for each in unwanted:
        pair = split_list(each)
        if pair is not None:
            members.setdefault(pair[0], set()).update(map(module_name, pair[1]))
    kept: list[str] = []
    for each in line.split():
        pair = split_list(each)
        if pair is not None and pair[0] in members:
            names = each.partition("=")[2].split(",")
            rest = [name for name in names if name and module_name(name) not in members[pair[0]]]
            kept += [f"{pair[0]}={','.join(rest)}"] if rest else []
        elif each not in plain:
            kept.append(each)
    return " ".join(kept)
