"""Kinds of objects by name, with the path under which an API serves them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class KubeKind:
    """One kind of object.

    Args:
        api: group and version, as manifests spell it.
        name: as manifests spell it.
        plural: as paths spell it.
        namespaced: whether its objects live in a namespace.
    """

    api: str
    name: str
    plural: str
    namespaced: bool = True


def collection_path(api: str, plural: str, namespace: str = "") -> str:
    """Return the path of all objects of a kind."""
    root = f"/apis/{api}" if "/" in api else f"/api/{api}"
    inner = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{inner}/{plural}"


def object_path(api: str, plural: str, namespace: str, name: str) -> str:
    """Return the path of an object."""
    return f"{collection_path(api, plural, namespace)}/{quote(name, safe='')}"


NAMESPACE = KubeKind("v1", "Namespace", "namespaces", namespaced=False)
NODE = KubeKind("v1", "Node", "nodes", namespaced=False)
POD = KubeKind("v1", "Pod", "pods")
VOLUME = KubeKind("v1", "PersistentVolume", "persistentvolumes", namespaced=False)
CONFIG_MAP = KubeKind("v1", "ConfigMap", "configmaps")
SECRET = KubeKind("v1", "Secret", "secrets")
EVENT = KubeKind("v1", "Event", "events")
DAEMON_SET = KubeKind("apps/v1", "DaemonSet", "daemonsets")
DEPLOYMENT = KubeKind("apps/v1", "Deployment", "deployments")
JOB = KubeKind("batch/v1", "Job", "jobs")
BUDGET = KubeKind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
LEASE = KubeKind("coordination.k8s.io/v1", "Lease", "leases")
RUNTIME_CLASS = KubeKind("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", namespaced=False)
CRD = KubeKind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
HELM_CHART = KubeKind("helm.cattle.io/v1", "HelmChart", "helmcharts")
API_SERVICE = KubeKind("apiregistration.k8s.io/v1", "APIService", "apiservices", namespaced=False)
