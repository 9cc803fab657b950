"""How the cluster's API is reached: by a kubeconfig, or by whoever serves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from provision.connections.contracts import Endpoint, KubeEndpoint
from provision.contracts.domain import Opening
from provision.contracts.driver import Driver
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import NotThere, SystemSpec, Way
from provision.inventory import Inventory
from provision.kube.names import API, SUBJECT
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError

KIND = "cluster"


def cluster_system(ways: Sequence[Way]) -> SystemSpec:
    """Return the cluster's API as a system that is reached by any of several ways.

    A domain whose nodes serve the API calls this with one way for each of them. The endpoint of a way is made
    by `connections.kubeconfig.endpoint_of` from a kubeconfig, which is a secret answer of the node.
    """
    first, *others = ways
    return SystemSpec(
        API, KIND, SUBJECT, first.questions, first.endpoint, guard=API, alternatives=tuple(others)
    )


def systems(inventory: Inventory) -> tuple[SystemSpec, ...]:
    """Return the API of an existing cluster; that of our own comes from the domain of its nodes."""
    path = inventory.cluster.kubeconfig
    if path is None:
        return ()

    def endpoint(_snapshots: Mapping[str, Snapshot]) -> Endpoint | NotThere:
        return _read(inventory, path)

    return (cluster_system((Way({}, endpoint),)),)


def _read(inventory: Inventory, path: Path) -> KubeEndpoint:
    from provision.connections.kubeconfig import endpoint_of  # noqa: PLC0415 - needs yaml, late

    try:
        text = path.expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(
            Diagnostic(
                "KUBECONFIG_MISSING",
                f"{path} cannot be read: {reason}",
                SUBJECT,
                source=inventory.source(("cluster", "kubeconfig")),
                remedy="Name the kubeconfig of the cluster in cluster.kubeconfig.",
            )
        ) from None
    return endpoint_of(text, where=str(path), context=inventory.cluster.context or "")


def open_api(opening: Opening) -> Driver:
    """Return the driver of the cluster's API."""
    from provision.connections.helm import LocalHelm  # noqa: PLC0415 - late: most runs need none
    from provision.connections.kube import HttpsKubeConnection  # noqa: PLC0415 - late: most runs need none
    from provision.connections.kubeconfig import merged  # noqa: PLC0415 - the same
    from provision.kube.driver import KubeDriver  # noqa: PLC0415 - the same

    endpoint = opening.endpoint
    if not isinstance(endpoint, KubeEndpoint):
        raise TypeError(f"{opening.spec.name}: a Kubernetes API is reached by HTTPS")
    secrets = [secret for secret in (endpoint.key, endpoint.token) if secret is not None]
    opening.redactor.add(*secrets)

    def connect() -> HttpsKubeConnection:
        return HttpsKubeConnection(endpoint, SUBJECT)

    helm = LocalHelm(endpoint, lambda one: merged("", one, SUBJECT, SUBJECT))
    return KubeDriver(opening.spec.name, connect(), connect, opening.who, helm)
