"""Whether what a role would remove is its own."""

from __future__ import annotations

from provision.contracts.role import Context
from provision.kube.kinds import NAMESPACE
from provision.kube.names import API, labels_of
from provision.kube.queries import Live, object_query


def is_ours(context: Context, namespace: str, role: str) -> bool:
    """Whether a namespace has the labels of a role: what somebody else has installed there is not removed.

    Args:
        context: of a step that asks for the namespace.
        namespace: that the role made before all else, and removes last.
        role: which would remove it.

    Raises:
        NotYet: the API does not answer yet.
    """
    query = object_query(NAMESPACE, namespace)
    home: Live | None = context.require(
        API, query, f"cannot see who made the namespace {namespace}", may_be_absent=True
    )
    return home is not None and labels_of(role).items() <= home.labels.items()
