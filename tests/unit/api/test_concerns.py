"""A domain of which an inventory declares nothing is not imported: re-runs pay for what they use."""

from __future__ import annotations

import pytest

from provision.api.domains import domains
from provision.inventory import Inventory

NODE = {"address": "10.0.0.2"}
PLAIN: dict[str, object] = {"version": "1", "name": "lab", "nodes": {"n1": NODE}}


def concerned(declared: dict[str, object]) -> set[str]:
    inventory = Inventory.model_validate({**PLAIN, **declared})
    return {domain.name for domain in domains() if domain.concerns(inventory)}


def test_plain_hosts_need_their_own_domain_alone() -> None:
    assert concerned({}) - {"dynamo"} == {"hosts"}


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"k3s": {"version": "v1.35.7+k3s1"}}, {"k3s", "kube"}),
        ({"cluster": {"kubeconfig": "kubeconfig"}}, {"kube"}),
        ({"gpu": {}}, {"gpu", "kube", "sharing"}),
        ({"rdma": {"netns": "shared"}}, {"rdma", "kube"}),
        ({"sharing": {"mode": "hami"}}, {"sharing", "kube"}),
        ({"nodes": {"n1": {**NODE, "driver": {"manage": False, "minimum": "580"}}}}, {"gpu"}),
        ({"nodes": {"n1": {**NODE, "gpu_cards": {"count": 1}}}}, {"gpu"}),
        ({"nodes": {"n1": {**NODE, "rails": {"r0": {"device": "eth1"}}}}}, {"rdma"}),
    ],
)
def test_what_is_declared_brings_its_domains(declared: dict[str, object], expected: set[str]) -> None:
    assert concerned(declared) - {"dynamo"} == {"hosts", *expected}
