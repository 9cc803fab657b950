"""What the next boot of ModelHost reads: the merged files of sysctl.d, units that start swap."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatch

from provision.hosts.operations.basic import sysctl_file
from provision.hosts.queries.boot_line import GRUB_DROP_IN, OURS, BootLineStatus
from provision.hosts.queries.boot_swap import NO_UNIT, SCRIPT_LINE, SCRIPTS, SERVICES, SWAPON, UNITS, SwapUnit
from provision.hosts.queries.boot_sysctl import BootSetting
from provision.inventory.kernel_line import line_of_grub, missing_arguments
from provision.testing.model_state import HostState, resolved

_GENERATOR = "/usr/lib/systemd/system-generators/zram-generator"
_ZRAM = "/etc/systemd/zram-generator.conf"
_ADDITION = re.compile(r'(?m)^  \*\) GRUB_CMDLINE_LINUX_DEFAULT="\$GRUB_CMDLINE_LINUX_DEFAULT "(.*) ;;$')
_ASSIGNMENT = re.compile(r'(?m)^GRUB_CMDLINE_LINUX_DEFAULT="(.*)"$')
_VARIABLE = "$GRUB_CMDLINE_LINUX_DEFAULT"


def grub_defaults(state: HostState, *, ours: bool = True) -> str:
    """Return GRUB_CMDLINE_LINUX_DEFAULT as the kernel reads it, after all files that are sourced."""
    line = line_of_grub(state.grub)
    for path in _drop_ins(state):
        if path == GRUB_DROP_IN:
            for match in _ADDITION.finditer(state.text(path)) if ours else ():
                words = line_of_grub(shlex.split(match[1])[0])
                if missing_arguments(line, [words]):
                    line = f"{line} {words}"
        else:
            for match in _ASSIGNMENT.finditer(state.text(path)):
                line = line_of_grub(match[1]).replace(_VARIABLE, line)
    return line


def _drop_ins(state: HostState) -> list[str]:
    return sorted({*state.below("/etc/default/grub.d/", ".cfg"), GRUB_DROP_IN})


def boot_line(state: HostState) -> BootLineStatus:
    """Return what the boot loader has, and which file drops what ours adds to GRUB's defaults."""
    overriding, line, later = "", OURS, []
    for path in _drop_ins(state)[_drop_ins(state).index(GRUB_DROP_IN) + 1 :]:
        for match in _ASSIGNMENT.finditer(state.text(path)):
            if _VARIABLE not in match[1]:
                overriding = path
            line = line_of_grub(match[1]).replace(_VARIABLE, line)
        later.append((path, line if OURS in line else f"{line} {OURS}"))
    files = {"grub": "/boot/grub/grub.cfg", "systemd-boot": "/boot/loader/entries/pve.conf"}
    lines = ((state.loader, files[state.loader], state.boot_line),) if state.loader in files else ()
    return BootLineStatus(lines, grub_defaults(state, ours=False), overriding, tuple(later))


def boot_settings(state: HostState, file: str) -> tuple[BootSetting, ...]:
    """Return what sets a file of /proc/sys at the next boot, the last one winning."""
    settings: list[BootSetting] = []
    for path in state.merged("sysctl.d"):
        target = resolved(state, path)
        for line in state.text(target).split("\n"):
            key, equals, value = line.partition("=")
            name = key.strip().lstrip("-")
            written = f"/proc/sys/{name}" if "." not in name.partition("/")[0] else sysctl_file(name)
            if equals and line.strip()[:1] not in ("#", ";") and written == file:
                settings.append(BootSetting(path.rpartition("/")[2], target, " ".join(value.split())))
    return tuple(settings)


def boot_swap(state: HostState) -> tuple[SwapUnit, ...]:
    """Return the units that start swap at the next boot."""
    units: dict[str, SwapUnit] = {}
    if _GENERATOR in state.files:
        for device in re.findall(r"(?m)^\[(zram\d+)\]", state.text(_ZRAM)):
            units[f"dev-{device}.swap"] = SwapUnit(f"dev-{device}.swap", _ZRAM)
    links: dict[str, list[str]] = {}
    for path, entry in state.files.items():
        if entry.type == "link" and re.search(r"\.(wants|requires)/", path):
            links.setdefault(path.rpartition("/")[2], []).append(path)
    for path, entry in state.files.items():
        folder, _, name = path.rpartition("/")
        if entry.type != "file" or name not in links:
            continue
        by_service = name in SERVICES or (
            name.endswith(".service") and re.search(SWAPON, state.text(path), re.MULTILINE)
        )
        if not (name.endswith(".swap") or by_service):
            continue
        source = re.search(r"(?m)^SourcePath=(.*)$", state.text(path))
        if source is None or source[1] != "/etc/fstab":
            own = tuple(link for link in links[name] if link.startswith(f"{UNITS}/"))
            origin = source[1] if source is not None else path
            units.setdefault(name, SwapUnit(name, origin, own if folder == UNITS else ()))
    units |= _swap_scripts(state)
    return tuple(units[name] for name in sorted(units) if not _is_masked(state, name))


def _swap_scripts(state: HostState) -> dict[str, SwapUnit]:
    scripts = {}
    for path, entry in state.files.items():
        if entry.type == "file" and any(fnmatch(path, pattern) for pattern in SCRIPTS):
            lines = [line for line in state.text(path).split("\n") if re.search(SCRIPT_LINE, line)]
            if lines and (path != SCRIPTS[0] or int(entry.mode, 8) & 0o111):
                scripts[path] = SwapUnit(path, lines[0].strip())
    return scripts


def _is_masked(state: HostState, name: str) -> bool:
    entry = state.files.get(f"{UNITS}/{name}")
    return entry is not None and entry.type == "link" and entry.target == NO_UNIT
