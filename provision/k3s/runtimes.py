"""The container runtime of NVIDIA on a node: where it is installed, and whether containerd has read it.

k3s looks for it only when its service starts, first in the folder of the GPU Operator's toolkit, then on its
PATH, and writes what it found into containerd's configuration. Sources: pkg/agent/containerd/runtimes.go of
k3s; the installer of nvidia-container-toolkit, which writes its configuration after all executables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from provision.hosts.resources.base import HostFactKind, Rows
from provision.k3s import paths

TOOLKIT: Final = "/usr/local/nvidia/toolkit"
"""Where the GPU Operator's toolkit container installs."""
RUNTIME: Final = "nvidia-container-runtime"
INSTALLED_LAST: Final = f"{TOOLKIT}/.config/{RUNTIME}/config.toml"
CONTAINERD_FOLDER: Final = f"{paths.DATA}/agent/etc/containerd"
CONTAINERD: Final = f"{CONTAINERD_FOLDER}/config.toml"
SOCKET: Final = "/run/k3s/containerd/containerd.sock"
NRI: Final = "/var/run/nri/nri.sock"


@dataclass(frozen=True, slots=True)
class NvidiaRuntime:
    """NVIDIA's container runtime on a host that runs k3s."""

    kind: ClassVar[str] = "nvidia-runtime"


@dataclass(frozen=True, slots=True)
class RuntimeStatus:
    """What is installed, and what containerd works with.

    Args:
        installed: the runtime that k3s takes at its next start; empty for none.
        configured: the runtime that containerd has read; empty for none.
        runs: whether containerd runs.
        has_nri: whether it serves the Node Resource Interface.
    """

    installed: str = ""
    configured: str = ""
    runs: bool = False
    has_nri: bool = False


# The operator's toolkit may edit the configuration under the running containerd, which does not read it: the
# socket is as old as the process. Quotes of TOML keys differ between versions of containerd.
_SCRIPT = f"""b=
if [ -x {TOOLKIT}/{RUNTIME} ] && [ -e {INSTALLED_LAST} ]; then b={TOOLKIT}/{RUNTIME}
elif [ ! -d {TOOLKIT} ] && command -v {RUNTIME} >/dev/null 2>&1; then b=$(command -v {RUNTIME})
fi
printf 'installed|%s\\n' "$b"
c={CONTAINERD}; s={SOCKET}; r=
if [ -r "$c" ] && ! {{ [ -e "$s" ] && [ "$c" -nt "$s" ]; }}; then
  r=$(sed -n "/runtimes\\.[\\"']\\{{0,1\\}}nvidia[\\"']\\{{0,1\\}}\\.options\\]/,/^ *\\[plug/\\
s/^ *BinaryName *= *[\\"']\\([^\\"']*\\)[\\"'].*/\\1/p" "$c" | sed -n 1p)
fi
printf 'configured|%s\\n' "$r"
n=no; if [ -e "$s" ]; then n=yes; fi
printf 'runs|%s\\n' "$n"
n=no; if [ -S {NRI} ]; then n=yes; fi
printf 'nri|%s\\n' "$n"
echo 'done|'
"""


def _read(rows: Rows) -> RuntimeStatus:
    runs, has_nri = rows["runs"][0][0] == "yes", rows["nri"][0][0] == "yes"
    return RuntimeStatus(rows["installed"][0][0], rows["configured"][0][0], runs, has_nri)


NVIDIA_RUNTIME_KIND = HostFactKind(NvidiaRuntime, "NVIDIA's container runtime", _SCRIPT, _read)
