"""Tasks of Proxmox VE: identifiers, results, and the messages that distinguish failures.

Source: pve-common `PVE/RESTEnvironment.pm`; an exit status is `OK`, `WARNINGS: n`, `unexpected status`, or
the error text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

_UPID = re.compile(r"UPID:([^:]+):[0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+:([^:]*):([^:]*):([^:]*):")
_LOCKED = re.compile(
    r"can't lock file '[^']*' - got timeout|VM is locked \(|unable to lock|cfs-lock .* timeout"
)
_NO_TASK = re.compile(r"no such task|unknown task|unexpected status", re.IGNORECASE)
_ALREADY = (re.compile(r"VM [0-9]+ already running"), re.compile(r"VM [0-9]+ not running"))


@dataclass(frozen=True, slots=True)
class Upid:
    """A task's identifier and the node that runs it."""

    text: str
    node: str

    @property
    def path(self) -> str:
        """API path of the task."""
        return f"/nodes/{self.node}/tasks/{quote(self.text, safe=':@!')}"


def upid_of(answer: object) -> Upid | None:
    """Return the task that a request began, or None when it answered at once."""
    match = _UPID.fullmatch(answer) if isinstance(answer, str) else None
    return Upid(match[0], match[1]) if match is not None else None


def is_success(exit_status: str) -> bool:
    """Whether a task did its work; warnings are success."""
    return exit_status == "OK" or exit_status.startswith("WARNINGS:")


def is_lost(exit_status: str) -> bool:
    """Whether Proxmox VE does not know the result of a task: its log was cut off."""
    return bool(_NO_TASK.search(exit_status))


def is_locked(text: str) -> bool:
    """Whether another task is at work: nothing was done and the same request may be sent again."""
    return bool(_LOCKED.search(text))


def is_there_already(path: str, text: str) -> bool:
    """Whether a start or stop failed because the VM is in that state already."""
    if path.endswith("/status/start"):
        return bool(_ALREADY[0].search(text))
    if path.endswith(("/status/stop", "/status/shutdown")):
        return bool(_ALREADY[1].search(text))
    return False


def start_timeout(memory: int, passthrough: bool, nics: int = 1) -> float:
    """Return the seconds that PVE gives a VM to start.

    Args:
        memory: MiB.
        passthrough: whether devices are passed to it: all of its memory is pinned at start.
        nics: network devices.

    Source: qemu-server, `PVE/QemuServer/Helpers.pm` config_aware_timeout.
    """
    seconds = max(30.0, memory / 1024 if memory > 30720 else 30.0)  # noqa: PLR2004 - PVE's own limit in MiB
    return seconds * (4 if passthrough else 1) + 5 * nics
