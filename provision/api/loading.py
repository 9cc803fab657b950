"""From a file to a site."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from provision.api.collections import fewer_collections
from provision.api.defaults import OpenDriver
from provision.api.domains import load_inventory
from provision.api.site import Site
from provision.api.wiring import read_playbook


@fewer_collections()
def load(
    path: str | Path,
    *,
    playbook: str | None = None,
    state: Path | None = None,
    open_driver: OpenDriver | None = None,
    overlays: Sequence[Path] = (),
) -> Site:
    """Read an inventory and its playbook; opens nothing.

    Args:
        path: the inventory file.
        playbook: name of a shipped playbook, or a file; `site` if None.
        state: folder of caches and the journal; `state_folder()` if None.
        open_driver: how systems are opened; SSH and HTTPS if None.
        overlays: files laid over the inventory, the last one wins.

    Raises:
        UsageError: inventory or playbook are wrong.
    """
    inventory = load_inventory(Path(path), overlays=overlays)
    site = Site(inventory, playbook or "site", state, open_driver)
    read_playbook(site.playbook)
    return site
