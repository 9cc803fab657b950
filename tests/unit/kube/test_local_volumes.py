"""Volumes that one node alone has: by any label, and never guessed where nobody can tell."""

from __future__ import annotations

from typing import Any

import pytest

from provision.kube.local_volumes import only_on
from provision.kube.queries import Listing, Live


def volume(*terms: Any, key: str = "matchExpressions") -> Listing:
    rows = [{key: [{"key": label, "operator": how, "values": nodes}]} for label, how, nodes in terms]
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": rows}}} if terms else {}
    return Listing((Live.of({"metadata": {"name": "v"}, "spec": spec}),))


def both(node: str, zone: str) -> Listing:
    labels = {"kubernetes.io/hostname": node, "topology.kubernetes.io/zone": zone}
    rows = [{"key": label, "operator": "In", "values": [value]} for label, value in labels.items()]
    terms = [{"matchExpressions": rows}]
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    return Listing((Live.of({"metadata": {"name": "v"}, "spec": spec}),))


@pytest.mark.parametrize(
    ("volumes", "is_held"),
    [
        (volume(("kubernetes.io/hostname", "In", ["n"])), True),
        (volume(("topology.topolvm.io/node", "In", ["n"])), True),
        (volume(("metadata.name", "In", ["n"]), key="matchFields"), True),
        (both("n", "home"), True),
        (both("m", "home"), False),
        (volume(("kubernetes.io/hostname", "In", ["m"])), False),
        (volume(("kubernetes.io/hostname", "In", ["n", "m"])), False),
        (volume(("kubernetes.io/hostname", "In", ["n"]), ("kubernetes.io/hostname", "In", ["m"])), False),
        (volume(("kubernetes.io/hostname", "NotIn", ["n"])), False),
        (volume(("topology.kubernetes.io/zone", "In", ["home"])), False),
        (volume(), False),
    ],
)
def test_a_volume_of_one_node_alone(volumes: Listing, *, is_held: bool) -> None:
    assert bool(only_on(volumes, "n")) is is_held
