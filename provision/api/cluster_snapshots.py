"""Snapshots of the cluster's datastore, as its servers keep them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.contracts.query import Unknown
from provision.engine import workers
from provision.hosts import names
from provision.k3s import configuration, snapshots
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import ProvisionError, UsageError

if TYPE_CHECKING:
    from provision.api.site import Site


@dataclass(frozen=True, slots=True)
class KeptSnapshots:
    """What one server keeps.

    Args:
        server: its name.
        now: seconds since 1970 by the server's own clock, which has dated the files.
        listing: its snapshots; empty where it gave no answer.
        problem: why there is no answer, or empty.
    """

    server: str
    now: float
    listing: snapshots.SnapshotListing = field(default_factory=snapshots.SnapshotListing)
    problem: str = ""


def kept_snapshots(site: Site, now: float, cancel: Cancel) -> tuple[KeptSnapshots, ...]:
    """Ask each server for its snapshots; one that is silent is named with the reason.

    Args:
        site: whose cluster.
        now: seconds since 1970 by this machine's clock.
        cancel: ends it early.

    Raises:
        UsageError: the datastore is not etcd.
    """
    inventory = site.inventory
    if inventory.k3s is None or not configuration.uses_etcd(inventory):
        raise UsageError(
            Diagnostic(
                "SNAPSHOTS_NONE",
                f"the datastore of {inventory.name} is not etcd, so k3s takes no snapshots",
                source=inventory.source(("k3s",)),
                remedy="declare `k3s.datastore: etcd`; a copy of sqlite's file while k3s is stopped does for"
                " one server: `cp -a /var/lib/rancher/k3s/server/db COPY`",
            )
        )
    servers = [server.name for server in configuration.servers(inventory)]
    kept: dict[str, KeptSnapshots] = {}

    def ask(name: str) -> None:
        query = snapshots.EtcdSnapshots(snapshots.folder(inventory))
        try:
            snapshot = site.session.ask(names.ssh(name), (query,), cancel)
        except ProvisionError as error:
            kept[name] = KeptSnapshots(name, now, problem=error.diagnostics[0].summary)
            return
        answer = snapshot[query]
        if isinstance(answer, snapshots.SnapshotListing):
            kept[name] = KeptSnapshots(name, now + snapshot.skew, answer)
        else:
            reason = answer.reason if isinstance(answer, Unknown) else "no answer"
            kept[name] = KeptSnapshots(name, now, problem=reason)

    workers.each(servers, ask, cancel)
    return tuple(kept[name] for name in servers if name in kept)


def rows(kept: tuple[KeptSnapshots, ...]) -> Iterator[tuple[str, str, float, int, bool]]:
    """Yield server, file, age in seconds, bytes and whether a former token is needed; the newest first."""
    for server in kept:
        for file in reversed(server.listing.files):
            needs_former = server.listing.is_of_former_token(file)
            yield server.server, file.name, max(server.now - file.taken, 0.0), file.size, needs_former
