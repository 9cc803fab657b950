"""Storages as Proxmox VE keeps them: /etc/pve/storage.cfg, read by root over SSH.

Source: pve-storage, `PVE/SectionConfig.pm`: sections `TYPE: NAME` with indented keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from provision.resources.contracts import CannotTell
from provision.resources.host.query_file import FileText

STORAGES = FileText("/etc/pve/storage.cfg")
_HEAD = re.compile(r"([a-z0-9]+):\s+(\S+)\s*")


def storages_of(answer: object) -> Mapping[str, Mapping[str, str]] | CannotTell:
    """Return the keys of each storage by its name, `type` among them.

    Args:
        answer: what the host said to STORAGES.
    """
    if isinstance(answer, CannotTell):
        return answer
    if not isinstance(answer, bytes):
        return CannotTell("there is no /etc/pve/storage.cfg")
    found: dict[str, dict[str, str]] = {}
    section: dict[str, str] = {}
    for line in answer.decode(errors="replace").splitlines():
        head = _HEAD.fullmatch(line)
        if head is not None:
            section = found.setdefault(head[2], {"type": head[1]})
        elif line[:1] in {"\t", " "} and line.strip():
            key, _, value = line.strip().partition(" ")
            section[key] = value.strip()
    return found
