"""The cluster as a whole: who is in it."""

from __future__ import annotations

import json
from collections import Counter

from provision.contracts.check import NotDeclared, Site
from provision.kube.names import API, is_member

OK = 200


def test_cluster_members(site: Site, cluster: str) -> None:
    """The cluster has exactly the declared nodes, and each is a machine of its own."""
    assert cluster
    inventory = site.inventory
    declared = {node.kubernetes_name for node in inventory.nodes.values() if is_member(inventory, node)}
    if inventory.k3s is None or not declared:
        raise NotDeclared("the cluster is not ours")
    reply = site.get(API, "/api/v1/nodes")
    assert reply.status == OK, f"the API answers {reply.status}: {reply.text}"
    items = json.loads(reply.text)["items"]
    names = {item["metadata"]["name"] for item in items}
    problems = [f"{name} is missing" for name in sorted(declared - names)]
    problems += [f"{name} is not declared" for name in sorted(names - declared)]
    machines = Counter(str(item["status"].get("nodeInfo", {}).get("machineID") or "") for item in items)
    problems += [
        f"{count} nodes are one machine ({name})" for name, count in machines.items() if name and count > 1
    ]
    assert not problems, "; ".join(problems)
