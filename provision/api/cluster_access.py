"""Writes how the cluster's API is reached into a kubeconfig."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from provision.connections.contracts import KubeEndpoint
from provision.contracts.system import NotThere
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, UsageError
from provision.values.whole_file import write_whole

if TYPE_CHECKING:
    from provision.api.site import Site

SYSTEM = "cluster/api"
OWN = 0o600


def write_kubeconfig(site: Site, path: Path, name: str, cancel: Cancel) -> str:
    """Put the cluster into a kubeconfig, beside what is there; return the address of its API.

    Args:
        site: whose cluster.
        path: of the kubeconfig.
        name: of cluster, user and context there.
        cancel: ends it early.

    Raises:
        UsageError: the inventory has no cluster, or the file cannot be written.
        Permanent: the cluster is not there yet, or the file is no kubeconfig.
    """
    from provision.connections.kubeconfig import merged  # noqa: PLC0415 - needs yaml, late

    if SYSTEM not in site.environment.systems:
        summary = f"{site.inventory.name} declares no cluster"
        raise UsageError(Diagnostic("CLUSTER_MISSING", summary, remedy="declare it, or cluster.kubeconfig"))
    endpoint = site.endpoint(SYSTEM, cancel)
    if isinstance(endpoint, NotThere):
        remedy = f"bring it up first: `provision apply {site.inventory.file}`"
        raise Permanent(Diagnostic("CLUSTER_AWAY", endpoint.reason, "cluster", remedy=remedy))
    if not isinstance(endpoint, KubeEndpoint):
        raise TypeError(f"{SYSTEM} is not reached by a kubeconfig")
    try:
        text = path.read_text() if path.exists() else ""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, merged(text, endpoint, name, str(path)), OWN)
        path.chmod(OWN)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(Diagnostic("FILE_NOT_WRITTEN", f"{path} cannot be written: {reason}")) from error
    return endpoint.url
