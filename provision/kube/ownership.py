"""Whether what a role would remove is its own, and where operators are that are declared no more."""

from __future__ import annotations

from collections.abc import Mapping

from provision.contracts.role import Context, Questions
from provision.inventory import Inventory, Subject
from provision.kube.kinds import NAMESPACE
from provision.kube.names import API, MANAGED_BY, MANAGER, SUBJECT, has_cluster, labels_of
from provision.kube.queries import Listing, Live, list_query, object_query

HOME = "provision/operator"
"""Label of the namespace that an operator is installed in: its chart. Other namespaces of its role stay."""
FEATURES = "provision/node-features"
"""Label of such a namespace: whether the chart brought Node Feature Discovery, or somebody else did."""
HOMES = list_query(NAMESPACE, labels=f"{MANAGED_BY}={MANAGER}")
"""The question for all namespaces that we made, those of operators among them."""


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


def home_labels(chart: str, *, has_features: bool) -> dict[str, str]:
    """Return the labels by which an operator is found when the inventory no longer declares it.

    Args:
        chart: name of its chart.
        has_features: whether the chart brings Node Feature Discovery.
    """
    return {HOME: chart, FEATURES: str(has_features).lower()}


def homes_on(inventory: Inventory) -> Mapping[Subject, Questions]:
    """Return the cluster, which may have an operator that was declared before."""
    return {Subject("cluster", SUBJECT): {API: (HOMES,)}} if has_cluster(inventory) else {}


def left_homes(context: Context, chart: str, declared: str) -> tuple[Live, ...]:
    """Return the namespaces in which we installed a chart, without the declared one.

    Args:
        context: of a step that asks for `HOMES`.
        chart: name of the chart.
        declared: namespace of the declared operator; empty for none.

    Raises:
        NotYet: the API does not answer yet.
    """
    listing: Listing = context.require(API, HOMES, f"cannot see whether {chart} is installed")
    ours = (live for live in listing.objects if live.labels.get(HOME) == chart)
    return tuple(live for live in ours if live.name != declared)
