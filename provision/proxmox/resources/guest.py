"""First contact with a new guest: the snippet that gave it its first host key, and cloud-init's end.

The first key travels through the hypervisor's disk, so it is replaced right after first contact, before its
file is removed. Source of the keys' names: cloud-init's module `cc_ssh`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from provision.connections.contracts import KeyPair
from provision.contracts.change import Change, Op
from provision.contracts.remedy import Fix, Remedy
from provision.contracts.resource import KeyedResource
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.file import FileState
from provision.hosts.queries.shell import Shell
from provision.hosts.resources.file import File

CLOUD_INIT_SECONDS = 900.0
STATUS = """if [ -e /var/lib/cloud/instance/boot-finished ]; then echo 'status: done'
elif [ -e /etc/cloud/cloud-init.disabled ] || [ -e /run/cloud-init/disabled ]; then echo 'status: disabled'
elif command -v cloud-init >/dev/null 2>&1; then echo 'status: running'
else echo absent; fi"""
"""Looked at with every plan, so it starts no Python: `cloud-init status` takes seconds on a slow guest."""
KEPT_KEYS = "/etc/cloud/cloud.cfg.d/90-provision-host-keys.cfg"
KEEP_KEYS = b"ssh_deletekeys: false\nssh_genkeytypes: []\n"
"""Another name of the VM makes its guest a new instance, and cloud-init then replaces its host keys.

Source: Proxmox VE's instance-id is the SHA-1 of user data and network data, and user data has the name.
"""
_UNDER_WAY = "status: running"


def snippet_mark(inventory: str) -> str:
    """Return how the last line of a snippet of ours begins; the node's name and its number follow."""
    return f"# provision inventory={inventory} node="


def vendor_data(key: KeyPair, inventory: str, node: str, vmid: int) -> bytes:
    """Return the vendor snippet that gives a guest exactly this host key; JSON is YAML.

    Its last line says whose it is: a run that died may leave it without any VM, or with an unfinished one.
    """
    config = {
        "ssh_deletekeys": True,
        "ssh_genkeytypes": [],
        "ssh_keys": {"ed25519_private": key.private.get_secret_value(), "ed25519_public": key.public.strip()},
    }
    last = f"{snippet_mark(inventory)}{node} vmid={vmid}"
    return f"#cloud-config\n{json.dumps(config, indent=1)}\n{last}\n".encode()


@dataclass(frozen=True, slots=True)
class SnippetGone(KeyedResource):
    """The vendor snippet is not on the hypervisor any more.

    It has its own kind because the step that creates a VM first writes this file and then removes it.
    """

    kind: ClassVar[str] = "snippet-gone"

    path: str

    def _key_name(self) -> str:
        return self.path

    @property
    def _file(self) -> File:
        return File(self.system, self.path, absent=True, secret=True, source=self.source)

    def queries(self) -> tuple[FileState, ...]:
        """Ask whether it is there."""
        return (self._file.query,)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return its removal, if it is there."""
        return self._file.changes(snapshot)

    def fix(self, snapshot: Snapshot, /) -> Remedy:
        """Remove it."""
        return self._file.fix(snapshot)


@dataclass(frozen=True, slots=True)
class CloudInitDone(KeyedResource):
    """A new guest has finished its first boot; recoverable errors of cloud-init do not count as failure."""

    kind: ClassVar[str] = "cloud-init"

    def _key_name(self) -> str:
        return "first-boot"

    def queries(self) -> tuple[Shell, ...]:
        """Ask whether cloud-init has finished a boot of this instance."""
        return first_boot()

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return the wait, as long as cloud-init works."""
        if Shell(STATUS) not in snapshot:  # the guest does not exist yet
            return (Change(Op.CREATE, "cloud-init", None, "done"),)
        if _UNDER_WAY not in snapshot[Shell(STATUS)].stdout.decode(errors="replace"):
            return ()
        return (Change(Op.UPDATE, "cloud-init", "running", "done"),)

    def fix(self, snapshot: Snapshot, /) -> Fix:
        """Wait for it; exit status 2 means that it recovered from an error."""
        del snapshot
        script = (
            "set +e\ncloud-init status --wait\nrc=$?\nset -e\n"
            'if [ "$rc" -ne 0 ] && [ "$rc" -ne 2 ]; then cloud-init status --long >&2 || :; exit "$rc"; fi'
        )
        return Fix(script, timeout=CLOUD_INIT_SECONDS)


def first_boot() -> tuple[Shell, ...]:
    """Return the query about a guest's first boot."""
    return (Shell(STATUS),)
