"""The network of pods across nodes: what Ready and ping do not prove."""

from __future__ import annotations

from collections.abc import Sequence

from provision.contracts.check import NotDeclared, Site, Trials
from provision.inventory import Inventory
from provision.kube.checks.pods import HOLD, PodEnd, PodGroup, image_of, lines_after, run_pods
from provision.kube.names import is_member

BYTES = 1_048_576
"""More than a packet: a handshake passes where full packets do not."""
SECONDS = 300
MOST_NODES = 24
SERVE = (
    f"mkdir -p /tmp/w && dd if=/dev/zero of=/tmp/w/data bs={BYTES} count=1 2>/dev/null"
    ' && httpd -p 8080 -h /tmp/w && echo "address $(hostname -i)"; '
) + HOLD
LOAD = 'echo "bytes $(timeout 30 wget -q -O - http://{}:8080/data | wc -c)"'
NAME = (
    "if timeout 30 nslookup kubernetes.default.svc.{} >/tmp/said 2>&1;"
    ' then echo "name yes"; else echo "name no"; fi'
)
HINT = (
    "accept UDP 8472 between all nodes; if a ping works, checksums of VXLAN may be wrong:"
    " `ethtool -K flannel.1 tx-checksum-ip-generic off`"
)
NAME_HINT = "see the pods of CoreDNS: `kubectl -n kube-system get pods -l k8s-app=kube-dns -o wide`"


def test_pods_reach_each_other(site: Site, cluster: str, trials: Trials) -> None:
    """A pod on each node loads a megabyte from one on the next node, and finds a name of the cluster."""
    del cluster
    inventory = site.inventory
    nodes = [node.kubernetes_name for node in inventory.nodes.values() if is_member(inventory, node)]
    if not nodes:
        raise NotDeclared("no node is in the cluster")
    nodes = nodes[:MOST_NODES]
    image = image_of(site, "network")
    servers = [
        PodGroup(f"s{number}", image, SERVE, node=node, holds=True) for number, node in enumerate(nodes)
    ]
    ends: list[PodEnd] = []

    def load(serving: tuple[PodEnd, ...]) -> None:
        addresses = {end.node: next(lines_after(end.log, "address"), "") for end in serving}
        silent = [node for node in nodes if not addresses.get(node)]
        assert not silent, f"no pod serves on {', '.join(silent)}"
        clients = [
            PodGroup(f"c{number}", image, _script(inventory, addresses[to]), node=node)
            for number, (node, to) in enumerate(zip(nodes, _next(nodes), strict=True))
        ]
        ends.extend(run_pods(site, trials, "reach-c", clients, seconds=SECONDS))

    run_pods(site, trials, "reach-s", servers, seconds=2 * SECONDS, meanwhile=load)
    slow, nameless = _problems(nodes, ends)
    assert not slow, f"{'; '.join([*slow, *nameless])}: {HINT}"
    assert not nameless, f"{'; '.join(nameless)}: {NAME_HINT}"


def _script(inventory: Inventory, address: str) -> str:
    config = inventory.k3s.config if inventory.k3s is not None else {}
    domain = config.get("cluster-domain", "cluster.local")
    return f"{LOAD.format(address)}; {NAME.format(domain)}"


def _next(nodes: Sequence[str]) -> list[str]:
    return [*nodes[1:], *nodes[:1]]


def _problems(nodes: Sequence[str], ends: Sequence[PodEnd]) -> tuple[list[str], list[str]]:
    """Return which nodes did not get all bytes, and which no name; in a ring each one sends and receives."""
    logs = {end.node: end.log for end in ends}
    slow, nameless = [], []
    for node, to in zip(nodes, _next(nodes), strict=True):
        log = logs.get(node, "")
        loaded = next(lines_after(log, "bytes"), "0")
        if loaded != str(BYTES):
            slow.append(f"{node} gets {loaded} of {BYTES} bytes from {to}")
        if next(lines_after(log, "name"), "") != "yes":
            nameless.append(f"{node} finds no name of the cluster")
    return slow, nameless
