"""Names of the cluster's system, and the labels by which our objects are known."""

from __future__ import annotations

API = "cluster/api"
"""The cluster's API, however it is reached."""
SUBJECT = "cluster"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "provision"
ROLE = "provision/role"
"""Label with the role that declared an object: what it declares no more is found by it."""


def labels_of(role: str) -> dict[str, str]:
    """Return the labels of the objects of a role."""
    return {MANAGED_BY: MANAGER, ROLE: role}


def selector_of(role: str) -> str:
    """Return the label selector that finds the objects of a role."""
    return ",".join(f"{key}={value}" for key, value in labels_of(role).items())
