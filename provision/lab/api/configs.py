"""VM configurations as files like Proxmox VE's `qemu-server/<vmid>.conf`.

A file has the description as comment lines, `key: value` lines, a section `[PENDING]` with what waits
for a power cycle, and a section for each snapshot (facts: the qm.conf manual page).
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

from provision.lab.api.errors import failed
from provision.lab.api.store import write_text

LOCK_SECONDS = 10
PENDING = "[PENDING]"


@dataclass(slots=True)
class VmConfig:
    """One VM's configuration: what is in force, what waits, which keys wait for removal, its snapshots."""

    vmid: int
    values: dict[str, str] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    snapshots: dict[str, dict[str, str]] = field(default_factory=dict)

    def text(self) -> str:
        """Print the file."""
        lines = []
        if "description" in self.values:
            lines += [f"#{quote(line, safe=' /.,=@+-_')}" for line in self.values["description"].split("\n")]
        lines += [f"{key}: {value}" for key, value in sorted(self.values.items()) if key != "description"]
        if self.pending or self.deleted:
            lines += ["", PENDING]
            if self.deleted:
                lines.append(f"delete: {','.join(sorted(self.deleted))}")
            lines += [f"{key}: {quote(value, safe=_PLAIN)}" for key, value in sorted(self.pending.items())]
        for name, values in sorted(self.snapshots.items()):
            lines += ["", f"[{name}]", *(f"{key}: {value}" for key, value in sorted(values.items()))]
        return "\n".join(lines) + "\n"

    def digest(self) -> str:
        """Return the file's SHA-1, as hex."""
        return hashlib.sha1(self.text().encode(), usedforsecurity=False).hexdigest()

    def merged(self) -> dict[str, str]:
        """Return the values after a power cycle."""
        kept = {key: value for key, value in self.values.items() if key not in self.deleted}
        return kept | self.pending

    def apply_pending(self) -> None:
        """Let what waits come into force."""
        self.values = self.merged()
        self.pending = {}
        self.deleted = set()

    def forget_equal(self) -> None:
        """Drop pending entries that change nothing."""
        self.pending = {key: value for key, value in self.pending.items() if self.values.get(key) != value}
        self.deleted = {key for key in self.deleted if key in self.values and key not in self.pending}


_PLAIN = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"


def parse(vmid: int, text: str) -> VmConfig:
    """Read a configuration file."""
    config = VmConfig(vmid)
    description: list[str] = []
    in_pending, taken = False, None
    for line in text.split("\n"):  # no other character ends a line
        if line == PENDING:
            in_pending = True
        elif section := re.fullmatch(r"\[([A-Za-z][\w-]*)\]", line):
            in_pending, taken = False, config.snapshots.setdefault(section[1], {})
        elif line.startswith("#") and taken is None:
            description.append(unquote(line[1:]))
        elif match := re.fullmatch(r"([a-z0-9-]+): (.*)", line):
            key, value = match.groups()
            if taken is not None:
                taken[key] = value
            elif in_pending and key == "delete":
                config.deleted = set(value.split(","))
            elif in_pending:
                config.pending[key] = unquote(value)
            else:
                config.values[key] = value
    if description:
        config.values["description"] = "\n".join(description)
    return config


class Configs:
    """The folder of configuration files.

    Args:
        folder: where they are.
        node: the node's name, for error texts.
    """

    def __init__(self, folder: Path, node: str) -> None:
        self._folder = folder
        self._node = node
        self._locks: dict[int, threading.RLock] = {}
        self._guard = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def _path(self, vmid: int) -> Path:
        return self._folder / f"{vmid}.conf"

    def ids(self) -> list[int]:
        """Return all VM numbers."""
        return sorted(int(path.stem) for path in self._folder.glob("[1-9]*.conf"))

    def exists(self, vmid: int) -> bool:
        """Say whether a VM is there."""
        return self._path(vmid).exists()

    def load(self, vmid: int) -> VmConfig:
        """Read a VM's configuration; 500 when there is none."""
        try:
            text = self._path(vmid).read_bytes().decode()
        except FileNotFoundError:
            where = f"nodes/{self._node}/qemu-server/{vmid}.conf"
            raise failed(f"Configuration file '{where}' does not exist") from None
        return parse(vmid, text)

    def save(self, config: VmConfig) -> None:
        """Write a VM's configuration."""
        write_text(self._path(config.vmid), config.text(), 0o640)

    def remove(self, vmid: int) -> None:
        """Remove a VM's configuration."""
        self._path(vmid).unlink(missing_ok=True)

    @contextmanager
    def locked(self, vmid: int) -> Iterator[None]:
        """Hold a VM's lock; after 10 s without it, fail as the real one does."""
        with self._guard:
            lock = self._locks.setdefault(vmid, threading.RLock())
        if not lock.acquire(timeout=LOCK_SECONDS):
            raise failed(f"can't lock file '/var/lock/qemu-server/lock-{vmid}.conf' - got timeout")
        try:
            yield
        finally:
            lock.release()


def check_lock(config: VmConfig) -> None:
    """Raise when something else has locked the VM."""
    if "lock" in config.values:
        raise failed(f"VM is locked ({config.values['lock']})")
