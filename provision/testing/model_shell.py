"""What ModelHost answers to the read-only commands of checks, from the same state by other means.

Each command is known by its form; one that is not known ends with status 1, as a guard of the inventory does.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable
from fnmatch import fnmatch

from provision.hosts.commands import LOADED_MODULES
from provision.hosts.operations.basic import sysctl_file
from provision.hosts.queries.kernel import module_name
from provision.hosts.queries.shell import ShellResult
from provision.testing import model_k3s
from provision.testing.model_apt import dpkg_text, policy_text, simulation_text, uris_text
from provision.testing.model_boot import boot_line, boot_swap, grub_defaults
from provision.testing.model_gpu import (
    fabric_log_text,
    kernel_log_text,
    link_text,
    mps_text,
    next_module_text,
    pci_text,
    smi_text,
)
from provision.testing.model_pve_host import guide_text, reboot_text
from provision.testing.model_rdma import address_rows, gid_table
from provision.testing.model_state import HostState, ModelFile, resolved, virtual_content

Answer = tuple[int, str]
"""Exit status and standard output."""

BOOTED = 1_700_000_000
"""When every host has booted: seconds since the epoch."""
_TYPES = {"file": "regular file", "directory": "directory", "link": "symbolic link"}
_NUMBERS = {"root": 0}
"""User and group numbers; others get 1000."""


def run_command(state: HostState, command: str) -> ShellResult:
    """Return what a command of a check answers."""
    if command in state.probes:
        return ShellResult(state.probes[command], b"", b"")
    for pattern, answer in _COMMANDS:
        match = re.fullmatch(pattern, command, re.DOTALL)
        if match is not None:
            code, text = answer(state, *match.groups())
            return ShellResult(code, text.encode(), b"")
    return ShellResult(1, b"", b"")


def _content(state: HostState, path: str) -> bytes | None:
    content = virtual_content(state, path)
    if content is not None:
        return content
    file = state.files.get(resolved(state, path))
    return file.content if file is not None and file.type == "file" else None


def _peers(state: HostState, addresses: str) -> Answer:
    codes = {"": "0 0", "route": "2 1", "answer": "0 1", "program": "0 127"}
    peers = shlex.split(addresses)
    return 0, "".join(f"peer {peer} {codes[state.unreached.get(peer, '')]}\n" for peer in peers)


def _cat(state: HostState, words: str) -> Answer:
    paths = [path for word in shlex.split(words) for path in _expanded(state, word)]
    contents = [_content(state, path) for path in paths]
    return int(None in contents), b"".join(content or b"" for content in contents).decode(errors="replace")


def _cat_all(state: HostState, words: str) -> Answer:
    return 0, _cat(state, words)[1]


def _expanded(state: HostState, word: str) -> list[str]:
    return sorted(path for path in state.files if fnmatch(path, word)) if "*" in word else [word]


def _stat(state: HostState, form: str, path: str) -> Answer:
    (path,) = shlex.split(path)
    file = state.files.get(path)
    if file is None and not state.folder(path):
        return 1, ""
    file = file or ModelFile(mode="0755", type="directory")
    values = {
        "F": _TYPES[file.type],
        "a": file.mode.lstrip("0"),
        "U": file.owner,
        "u": str(_NUMBERS.get(file.owner, 1000)),
        "G": file.group,
        "g": str(_NUMBERS.get(file.group, 1000)),
    }
    return 0, re.sub("%(.)", lambda match: values[match[1]], form) + "\n"


def _salted(state: HostState, words: str) -> Answer:
    path = shlex.split(words)[0]
    content = _content(state, path) or b""
    return 0, hashlib.sha256(path.encode() + content).hexdigest() + "  -\n"


def _line(state: HostState, words: str) -> Answer:
    line, _, path = shlex.split(words)
    rows = (_content(state, path) or b"").decode(errors="replace").split("\n")
    return int(line not in rows), ""


def _exists(state: HostState, word: str) -> Answer:
    (path,) = shlex.split(word)
    return int(not (path in state.files or state.folder(path))), ""


def _dpkg(state: HostState, words: str) -> Answer:
    names = shlex.split(words)
    rows = [f"{'h' if name in state.held else 'i'}i  {name}\n" for name in names if state.packages.get(name)]
    return int(len(rows) < len(names)), "".join(rows)


def _provided(state: HostState) -> Answer:
    rows = [f"ii  {', '.join(state.provides.get(name, ()))}\n" for name in state.packages]
    return 0, "".join(rows)


def _unit(state: HostState, word: str) -> Answer:
    unit = state.units.get(word)
    if unit is None:
        return 0, "ActiveState=inactive\nSubState=dead\nUnitFileState=\n"
    active, sub = ("active", "running") if unit.active else ("inactive", "dead")
    if unit.waiting:
        active, sub = "activating", "auto-restart"
    if unit.failed:
        active, sub = "failed", "failed"
    return 0, f"ActiveState={active}\nSubState={sub}\nUnitFileState={unit.file}\n"


def _failed(state: HostState) -> Answer:
    names = [name for name, unit in state.units.items() if unit.failed]
    return 0, "".join(f"{name} loaded failed failed x\n" for name in names)


def _sysctl(state: HostState, word: str) -> Answer:
    value = state.sysctls.get(sysctl_file(word))
    return int(value is None), f"{value}\n"


def _settings(state: HostState, folder: str) -> Answer:
    """Return the files of /etc/FOLDER as `systemd-analyze cat-config` shows them."""
    return 0, "".join(f"# {path}\n{state.text(resolved(state, path))}\n" for path in state.merged(folder))


def _modprobe(state: HostState) -> Answer:
    rows = [row for path in state.below("/etc/modprobe.d/", ".conf") for row in state.text(path).split("\n")]
    return 0, "".join(f"{row}\n" for row in rows if row.startswith(("options ", "blacklist ", "install ")))


def _modules(state: HostState) -> Answer:
    return 0, "".join(f"{name} 16384 0 - Live 0x0\n" for name in sorted(state.modules))


def _builtin(state: HostState, word: str) -> Answer:
    name = word.replace("[-_]", "_")
    return int(name not in {module_name(module) for module in state.builtin}), ""


def _in_sys(state: HostState, name: str) -> Answer:
    return int(name not in {module_name(module) for module in state.modules}), ""


def _swap_units(state: HostState) -> Answer:
    return 0, "".join(f"{unit.name}\n" for unit in boot_swap(state) if not unit.is_script)


def _swap_scripts(state: HostState) -> Answer:
    return 0, "".join(f"{unit.name}\n" for unit in boot_swap(state) if unit.is_script)


def _link(state: HostState, path: str) -> Answer:
    file = state.files.get(path)
    return (0, f"{file.target}\n") if file is not None and file.type == "link" else (1, "")


def _cni_version(state: HostState, path: str) -> Answer:
    file = state.files.get(resolved(state, path))
    if file is None or file.content != b"program":
        return 127, ""
    return 0, '{"cniVersion":"1.0.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0"]}'


def _home(_state: HostState, user: str) -> Answer:
    return 0, "/root\n" if user == "root" else f"/home/{user}\n"


def _functions(state: HostState, prefix: str) -> Answer:
    rows = [
        f"{function.pci.address} 0x{function.pci.cls} {function.driver or 'none'}\n"
        for function in state.functions
        if function.pci.address.startswith(f"{prefix}.")
    ]
    return 0, "".join(rows)


def _group(state: HostState, prefix: str) -> Answer:
    groups = {each.pci.group for each in state.functions if each.pci.address.startswith(f"{prefix}.")}
    slots = {each.pci.slot for each in state.functions if each.pci.group in groups}
    return 0, "".join(_functions(state, slot)[1] for slot in sorted(slots))


def _drivers(state: HostState, prefix: str, operator: str) -> Answer:
    functions = [
        each
        for each in state.functions
        if each.pci.address.startswith(f"{prefix}.") and bool(each.override) == (operator == "&&")
    ]
    names = [name for each in functions if each.pci.cls.startswith("03") for name in each.modules]
    return 0, "".join(f"{name}\n" for name in names)


def _ids(state: HostState) -> Answer:
    return 0, "".join(f"{each.pci.vendor}:{each.pci.device}\n" for each in state.functions)


def _storage_paths(state: HostState) -> Answer:
    return 0, "\n".join(re.findall(r"(?m)^\s*path\s+(\S+)", state.text("/etc/pve/storage.cfg")))


def _listing(state: HostState, folder: str) -> Answer:
    names = {path.removeprefix(f"{folder}/").split("/")[0] for path in state.below(f"{folder}/")}
    return 0, "".join(f"{name}\n" for name in sorted(names))


def _boot_lines(state: HostState) -> Answer:
    rows = boot_line(state).lines
    return 0, "".join(f"{file}|{line}\n" for _, file, line in rows)


_W = r"('[^']*'|\S+)"
"""One word of a command, quoted or not."""
_COMMANDS: tuple[tuple[str, Callable[..., Answer]], ...] = (
    (r"true", lambda _: (0, "")),
    (r"for f in /sys/bus/pci/devices/\*; do \[ -r .*", pci_text),
    (r"nvidia-smi --query-gpu=(\S+) --format=.*", smi_text),
    (r"awk '/\^btime / \{print \$2\}' /proc/stat", lambda _state: (0, f"{BOOTED}\n")),
    (r"l=\$\(journalctl -k -b .*", kernel_log_text),
    (r"part\(\) \{ for f; .*== guests.*", reboot_text),
    (r"command -v ip .*for n in /sys/class/net/\*; do.*nic .*", lambda state: (0, state.nics)),
    (r"z=.*for d in /sys/bus/usb/devices/\*; do.*", lambda state: (0, state.usb)),
    (r"grep -sHnE 'vfio\|iommu.*", guide_text),
    (r"for f in /dev/nvidia\[0-9\]\* .*", link_text),
    (r"k=\$\(journalctl -k -b .*", fabric_log_text),
    (r"for d in /run/nvidia/mps/.*", mps_text),
    (r"n=\$\(ls /boot/vmlinuz-.*modinfo .*", next_module_text),
    (
        r"command -v nvidia-container-runtime",
        lambda state: (int(not state.packages.get("nvidia-container-toolkit")), ""),
    ),
    (r"apt-get update --print-uris", uris_text),
    (r"apt-mark showhold", lambda state: (0, "".join(f"{name}\n" for name in sorted(state.held)))),
    (r"dpkg-query -W -f='\$\{db:Status-Abbrev\}\|.*", dpkg_text),
    (r"apt-cache policy; echo @packages; apt-cache policy -- (.*)", policy_text),
    (r"apt-get -s .* install -- (.*)", simulation_text),
    *model_k3s.COMMANDS,
    (r"ip -4 -o addr show", lambda state: (0, address_rows(state.rdma))),
    (
        r"for g in /sys/class/infiniband/([^/]+)/ports/([0-9]+)/gids/\*; do .*",
        lambda state, device, port: (0, gid_table(state.rdma, device, port)),
    ),
    (r"\{ for p in ([^;]*); do \( ip -4 route get .*", _peers),
    (r"CNI_COMMAND=VERSION (\S+) </dev/null", _cni_version),
    (r"uname -n", lambda state: (0, f"{state.hostname}\n")),
    (r"cat ([^|>]+) 2>/dev/null \|\| true", _cat_all),
    (re.escape(LOADED_MODULES), _modules),
    (r"cat (?:-- )?([^|>&]+)", _cat),
    (rf"stat -c '([^']*)' -- {_W}", _stat),
    (r"\{ printf %s (.*); cat -- .*; \} \| sha256sum", _salted),
    (r"grep -sxF -e (.* -- .*)", _line),
    (r"grep -s manage_etc_hosts (\S+)", lambda state, path: (int("manage_etc" not in state.text(path)), "")),
    (rf"test -e {_W}(?: \|\| test -L .*)?", _exists),
    (r"dpkg-query -W -f .* -- (.*)", _dpkg),
    (r"dpkg-query -W -f .*Provides.*", _provided),
    (r"systemctl show -p \S+ -- (\S+)", _unit),
    (r"systemctl list-units --state=failed .*", _failed),
    (r"sysctl -n (\S+)", _sysctl),
    (r"systemd-analyze cat-config (\S+)(?: \|.*)?", _settings),
    (r"modprobe -c \|.*", _modprobe),
    (r"test -d /sys/module/(\S+)", _in_sys),
    (r"grep -qs -e '/(.*)\\\.ko' .*modules\.builtin\"", _builtin),
    (r"systemd-detect-virt -c \|\| true", lambda state: (0, state.clock.container or "none")),
    (r"for f in /etc/systemd/system/\*\.wants/\* .* \| sort -u", _swap_units),
    (r"for f in /etc/rc.local /etc/crontab .*", _swap_scripts),
    (r"readlink (\S+)", _link),
    (r"getent passwd (\S+) \| cut -d : -f 6", _home),
    (r"df -kP -- \S+ \|.*", lambda state: (0, f"{state.free * 1024}\n")),
    (r"df -kP / \|.*", lambda state: (0, f"{state.root.size // 1024}\n")),
    (
        r"timedatectl show -p NTPSynchronized --value",
        lambda state: (0, "yes" if state.clock.synchronised else "no"),
    ),
    (r"chronyc -n tracking .*", lambda _: (0, "")),
    (r"for f in /sys/bus/pci/devices/\*; do read .*", _ids),
    (r'for f in /sys/bus/pci/devices/([^*]*)\.\*; do \[ -e "\$f" \] .*', _functions),
    (r"for f in /sys/bus/pci/devices/([^*]*)\.\*/iommu_group/.*", _group),
    (r"for f in /sys/bus/pci/devices/([^*]*)\.\*; do case .* (\|\||&&) modprobe .*", _drivers),
    (r"sed -n 's/.*' /etc/pve/storage.cfg", _storage_paths),
    (r"ls (\S+) 2>/dev/null \|\| true", _listing),
    (r"if \[ -s /etc/kernel/proxmox-boot-uuids \]; then.*", _boot_lines),
    (r"if \[ -e /etc/default/grub \] && .*", lambda state: (0, grub_defaults(state))),
)
