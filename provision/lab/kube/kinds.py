"""The kinds that the API serves: those of Kubernetes itself in a table, others by their CRD."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object.

    Args:
        group: API group, empty for the core one.
        version: as in `v1`.
        name: `ConfigMap`.
        plural: `configmaps`.
        namespaced: whether its objects live in a namespace.
        status: whether status is a subresource.
        generation: whether `metadata.generation` counts changes of the desired state.
        schema: of the CRD; None for kinds of Kubernetes itself.
        fields: the keys beside metadata; empty where they are not checked.
    """

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool = True
    status: bool = True
    generation: bool = True
    schema: Mapping[str, Any] | None = field(default=None, compare=False)
    fields: tuple[str, ...] = ("spec", "status")

    @property
    def api_version(self) -> str:
        """As objects spell it: `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """As messages spell it: `macvlannetworks.mellanox.com`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified(self) -> str:
        """As validation spells it: `MacvlanNetwork.mellanox.com`."""
        return f"{self.name}.{self.group}" if self.group else self.name


_DATA = ("data", "binaryData", "immutable")
_CORE = (
    Kind("", "v1", "Namespace", "namespaces", namespaced=False, generation=False),
    Kind("", "v1", "Node", "nodes", namespaced=False, generation=False),
    Kind("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False, generation=False),
    Kind("", "v1", "ConfigMap", "configmaps", status=False, generation=False, fields=_DATA),
    Kind(
        "", "v1", "Secret", "secrets", status=False, generation=False, fields=(*_DATA, "stringData", "type")
    ),
    Kind("", "v1", "Pod", "pods"),
    Kind("", "v1", "Service", "services", generation=False),
    Kind("", "v1", "ServiceAccount", "serviceaccounts", status=False, generation=False, fields=()),
    Kind("", "v1", "Event", "events", status=False, generation=False, fields=()),
    Kind("apps", "v1", "DaemonSet", "daemonsets"),
    Kind("apps", "v1", "Deployment", "deployments"),
    Kind("apps", "v1", "StatefulSet", "statefulsets"),
    Kind("apps", "v1", "ReplicaSet", "replicasets"),
    Kind("batch", "v1", "Job", "jobs"),
    Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Kind("coordination.k8s.io", "v1", "Lease", "leases", status=False, generation=False),
    Kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", namespaced=False, status=False, fields=()),
    Kind(
        "scheduling.k8s.io",
        "v1",
        "PriorityClass",
        "priorityclasses",
        namespaced=False,
        status=False,
        fields=(),
    ),
    Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False, status=False, fields=()),
    Kind("rbac.authorization.k8s.io", "v1", "Role", "roles", status=False, fields=()),
    Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", status=False, fields=()),
    Kind(
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRole",
        "clusterroles",
        namespaced=False,
        status=False,
        fields=(),
    ),
    Kind(
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        namespaced=False,
        status=False,
        fields=(),
    ),
    Kind("apiregistration.k8s.io", "v1", "APIService", "apiservices", namespaced=False),
    Kind(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
    ),
    *(
        Kind(
            "admissionregistration.k8s.io",
            "v1",
            f"{name}WebhookConfiguration",
            f"{name.lower()}webhookconfigurations",
            namespaced=False,
            status=False,
            fields=(),
        )
        for name in ("Mutating", "Validating")
    ),
)


def core_kinds() -> dict[tuple[str, str, str], Kind]:
    """Return the kinds of Kubernetes itself by group, version and plural."""
    return {(kind.group, kind.version, kind.plural): kind for kind in _CORE}


def kinds_of(definition: Mapping[str, Any]) -> Iterator[Kind]:
    """Yield the kinds that a CustomResourceDefinition declares, one for each version that it serves."""
    spec = definition["spec"]
    for version in spec["versions"]:
        if version.get("served", True):
            yield Kind(
                spec["group"],
                version["name"],
                spec["names"]["kind"],
                spec["names"]["plural"],
                namespaced=spec["scope"] == "Namespaced",
                status="status" in version.get("subresources", {}),
                schema=version["schema"]["openAPIV3Schema"],
            )
