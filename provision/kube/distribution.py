"""Which distribution of Kubernetes a role supports."""

from __future__ import annotations

from provision.contracts.role import Context
from provision.kube.names import API
from provision.kube.queries import ServerVersion
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent

NAMES = {
    "-eks-": "Amazon EKS",
    "-gke.": "Google GKE",
    "+rke2": "RKE2",
    "+k0s": "k0s",
    "+vmware": "VMware Tanzu",
    "-tke.": "Tencent TKE",
    "-aliyun": "Alibaba ACK",
}
"""Marks of versions by which distributions are known; kubeadm, Talos, AKS and MicroK8s have none."""


def distribution_of(version: str) -> str:
    """Return what a cluster is, as messages name it."""
    name = next((name for mark, name in NAMES.items() if mark in version), "another Kubernetes than k3s")
    return f"{name} ({version})"


def require_k3s(context: Context, key: str) -> str:
    """Return the version of a cluster that is k3s, with its Helm controller and its paths.

    Args:
        context: of a step that asks for the version.
        key: of the inventory, without which the step would not be.

    Raises:
        Permanent: it is another distribution.
        NotYet: the API does not answer yet.
    """
    version = str(context.require(API, ServerVersion(), "cannot read the version of the cluster"))
    if "+k3s" in version:
        return version
    raise Permanent(
        Diagnostic(
            "KUBE_DISTRIBUTION_UNSUPPORTED",
            f"the cluster is {distribution_of(version)}, and this role was run on k3s only",
            context.subject.name,
            untouched="Nothing was changed in the cluster.",
            remedy=f"Leave it out with `--step`, or remove {key}.",
        )
    )
