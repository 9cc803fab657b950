"""Writes of PCI and USB mappings that several nodes of one cluster share: each node writes its own entries.

A mapping is one section of one file of the cluster, written as a whole with a digest (pve-guest-common,
`PVE/Mapping/PCI.pm`; pve-manager, `PVE/API2/Cluster/Mapping/PCI.pm`). Two hypervisors that are set up at
the same time find it missing, or read one digest: the second write is refused, and made again over the first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from provision.contracts.remedy import Request
from provision.proxmox import formats
from provision.proxmox.queries import PciMap

_PATHS = ("/cluster/mapping/pci", "/cluster/mapping/usb")
_RACE = re.compile(r"detected modified configuration|already defined|no such resource|does not exist")


def is_race(request: Request, text: str) -> bool:
    """Whether a write of a mapping was refused because somebody else has written or removed it meanwhile."""
    return request.path.startswith(_PATHS) and request.method != "GET" and bool(_RACE.search(text))


def path_of(request: Request) -> str:
    """Return the path of all mappings of the kind that a request writes."""
    return next(path for path in _PATHS if request.path.startswith(path))


def again(request: Request, mappings: Sequence[PciMap], node: str) -> Request | None:
    """Return a refused write over the present mapping: our node's entries are ours, the others stay.

    None if there is nothing left to write: the mapping is gone, and we had no entry for it.

    Args:
        request: POST, PUT or DELETE of a mapping.
        mappings: all mappings as they are now.
        node: our node.
    """
    base = path_of(request)
    name = str(request.data.get("id") or request.path.removeprefix(f"{base}/"))
    present = next((mapping for mapping in mappings if mapping.name == name), None)
    sent = request.data.get("map")
    own = [str(entry) for entry in sent if _is_of(str(entry), node)] if isinstance(sent, list) else []
    if present is None and not own:
        return None
    if present is None:
        data = {"id": name, "description": request.data.get("description", ""), "map": own}
        return replace(request, method="POST", path=base, data=data)
    entries = [entry for entry in present.entries if not _is_of(entry, node)] + own
    path = f"{base}/{name}"
    if not entries:
        return replace(request, method="DELETE", path=path, data={})
    digest = {"digest": present.digest} if present.digest else {}
    return replace(request, method="PUT", path=path, data={"map": entries, **digest})


def _is_of(entry: str, node: str) -> bool:
    return formats.parse(entry).get("node") == node
