"""The datastore: who are etcd's members, and how old its last snapshot is."""

from __future__ import annotations

import json

import pytest

from provision.contracts.check import NotDeclared, Site, Trivial
from provision.inventory import Inventory
from provision.kube.names import API
from provision.values.crontab import longest_gap

OK = 200
DATA = "/var/lib/rancher/k3s/server"
SCHEDULE = "0 */12 * * *"
"""k3s's own schedule."""
GRACE = 3600
"""Seconds that a snapshot may take or be late."""


def _uses_etcd(inventory: Inventory) -> bool:
    k3s = inventory.k3s
    servers = [node for node in inventory.nodes.values() if node.k3s == "server"]
    if k3s is None or not servers or inventory.cluster.kubeconfig is not None:
        return False
    return k3s.datastore == "etcd" if k3s.datastore else len(servers) > 1


def test_etcd_snapshots(site: Site, node: str) -> None:
    """The last snapshot of etcd is not older than its schedule says."""
    inventory = site.inventory
    k3s = inventory.k3s
    if inventory.nodes[node].k3s != "server" or k3s is None or not _uses_etcd(inventory):
        raise NotDeclared("it has no datastore of etcd")
    if str(k3s.config.get("etcd-disable-snapshots", "")).lower() == "true":
        raise NotDeclared("snapshots are switched off")
    schedule = k3s.snapshots.schedule if k3s.snapshots is not None else None
    gap = longest_gap(str(schedule or k3s.config.get("etcd-snapshot-schedule-cron") or SCHEDULE))
    if gap is None:
        raise Trivial("the schedule cannot be read")
    folder = str(k3s.config.get("etcd-snapshot-dir") or f"{DATA}/db/snapshots")
    text = site.host(f"{node}/ssh").check_output(
        f"date '+now %s'; stat -c 'born %Y' -- {DATA}/tls/server-ca.crt 2>/dev/null || true;"
        f" stat -c 'taken %Y' -- {folder}/* 2>/dev/null || true"
    )
    moments: dict[str, list[int]] = {}
    for line in text.splitlines():
        word, _, number = line.partition(" ")
        moments.setdefault(word, []).append(int(number))
    now, limit = moments["now"][0], gap.total_seconds() + GRACE
    if "taken" not in moments:
        born = moments.get("born", [0])[0]
        if now - born <= limit:
            raise Trivial("it is younger than its schedule, and has no snapshot yet")
        raise AssertionError(f"there is no snapshot in {folder}")
    age = now - max(moments["taken"])
    assert age <= limit, f"the last one is {age // 3600} hours old; one is taken every {gap}"


def test_etcd_members(site: Site, cluster: str) -> None:
    """The voting members of etcd are exactly the declared servers."""
    assert cluster
    inventory = site.inventory
    if not _uses_etcd(inventory):
        raise NotDeclared("there is no datastore of etcd")
    servers = {node.kubernetes_name for node in inventory.nodes.values() if node.k3s == "server"}
    reply = site.get(API, "/api/v1/nodes")
    assert reply.status == OK, f"the API answers {reply.status}: {reply.text}"
    votes: dict[str, tuple[str, str]] = {}
    for item in json.loads(reply.text)["items"]:
        for condition in item["status"].get("conditions", ()):
            if condition["type"] == "EtcdIsVoter":
                reason = str(condition.get("reason") or "no reason")
                votes[item["metadata"]["name"]] = (str(condition["status"]), reason)
    if not votes:
        pytest.skip("unknown: this release of k3s does not say who votes")
    problems = [f"{name} is not a member" for name in sorted(servers - votes.keys())]
    problems += [
        f"{name} does not vote ({votes[name][1]})"
        for name in sorted(servers & votes.keys())
        if votes[name][0] != "True"
    ]
    problems += [
        f"{name} votes and is not a server"
        for name in sorted(votes.keys() - servers)
        if votes[name][0] == "True"
    ]
    assert not problems, "; ".join(problems)
