"""What ModelHost answers to questions about a hypervisor's host, from its files: it runs no guests."""

from __future__ import annotations

import re
from fnmatch import fnmatch

from provision.testing.model_state import HostState

WHOLE = ("/etc/pve/.members", "/etc/pve/ha/manager_status")
LINKS = ("/etc/systemd/network/", "/run/systemd/network/", "/usr/local/lib/systemd/network/")
NETWORK = "/etc/network/interfaces"
NICS = "/sys/class/net/"
_NAMES = r"^[ \t]*(?:iface|bridge[-_]ports|ovs_(?:ports|bonds)|bond[-_](?:slaves|master)|slaves)[ \t].*$"
_VOTES = r"^[ \t]*(?:device[ \t]*\{|quorum_votes:).*$"
_PROPERTIES = r"^E:(?:ID_PATH|ID_NET_DRIVER|ID_NET_NAME_[A-Z_]*)=.*$"
KERNELS = "/boot/vmlinuz-"


def reboot_text(state: HostState) -> tuple[int, str]:
    """Return the parts that the host has."""
    network = [path for path in (f"{NETWORK}.new", NETWORK) if path in state.files]
    network += state.below(f"{NETWORK}.d/")
    text = "".join(_whole(state, path) for path in WHOLE if path in state.files)
    text += "".join(f"== {path}\n{_lines(_NAMES, state.text(path))}" for path in network)
    text += "".join(_whole(state, path) for folder in LINKS for path in state.below(folder, ".link"))
    text += "== nics\n"
    for path in state.below(NICS, "/address"):
        folder = path.removesuffix("/address")
        if f"{folder}/device" in state.files:
            own = f"{folder}/bonding_slave/perm_hwaddr"
            name = folder.removeprefix(NICS)
            text += f"{name} {state.text(own if own in state.files else path).strip()}\n"
            database = state.text(f"/run/udev/data/n{state.text(f'{folder}/ifindex').strip()}")
            rows = (f"{line}\n" for line in re.findall(_PROPERTIES, database, re.MULTILINE))
            text += "".join(f"{name} {row}" for row in rows)
    text += f"== kernels\nrunning {state.text('/proc/sys/kernel/osrelease').strip()}\n"
    text += "".join(f"{path.removeprefix(KERNELS)}\n" for path in state.below(KERNELS))
    words = state.text("/proc/cmdline").split()
    named = [word for word in words if word.startswith(("net.ifnames=", "net.naming-scheme="))]
    text += "".join(f"{line}\n" for line in ("== naming", *named))
    return 0, f"{text}== guests\n== votes\n{_lines(_VOTES, state.text('/etc/pve/corosync.conf'))}== end\n"


GUIDE_FILES = ("/etc/modprobe.d/*.conf", "/etc/modules", "/etc/modules-load.d/*.conf")
"""Files that guides change, without those of boot loaders."""


def guide_text(state: HostState) -> tuple[int, str]:
    """Return the lines about passing cards, as grep(1) prints them."""
    rows = [
        f"{path}:{number}:{line}\n"
        for path in sorted(state.files)
        if any(fnmatch(path, pattern) for pattern in GUIDE_FILES)
        for number, line in enumerate(state.text(path).splitlines(), start=1)
        if re.search("vfio|iommu", line)
    ]
    return 0, "".join(rows)


def _whole(state: HostState, path: str) -> str:
    return f"== {path}\n{state.text(path)}\n"


def _lines(pattern: str, text: str) -> str:
    return "".join(f"{line}\n" for line in re.findall(pattern, text, re.MULTILINE))
