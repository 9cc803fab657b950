"""The cluster's API, reached through any living server with the admin's kubeconfig."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import SecretStr

from provision.connections.contracts import Endpoint
from provision.contracts.query import Unknown
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import NotThere, SystemSpec, Way
from provision.hosts import names
from provision.inventory import Inventory
from provision.inventory.models.node import Node
from provision.k3s import configuration, paths
from provision.kube.systems import cluster_system


def systems(inventory: Inventory) -> tuple[SystemSpec, ...]:
    """Return the API of our own cluster: a server with k3s that runs, one way each."""
    servers = configuration.servers(inventory) if inventory.k3s is not None else ()
    if not servers or inventory.cluster.kubeconfig is not None:
        return ()
    return (cluster_system([_way(server) for server in servers]),)


def _way(server: Node) -> Way:
    system = names.ssh(server.name)

    def endpoint(snapshots: Mapping[str, Snapshot]) -> Endpoint | NotThere:
        from provision.connections.kubeconfig import endpoint_of  # noqa: PLC0415 - needs yaml, late

        snapshot = snapshots.get(system)
        answer = snapshot.answers.get(paths.ADMIN) if snapshot is not None else None
        if isinstance(answer, Unknown):
            return NotThere(f"the kubeconfig of {server.name} cannot be read: {answer.reason}")
        if not isinstance(answer, SecretStr):
            return NotThere(f"k3s has not started on {server.name} yet", absent=True)
        # The file names loopback; the server's certificate has the node's own address.
        url = f"https://{server.address}:{configuration.PORT}"
        return endpoint_of(answer.get_secret_value(), where=f"{server.name}:{paths.KUBECONFIG}", server=url)

    return Way({system: (paths.ADMIN,)}, endpoint)
