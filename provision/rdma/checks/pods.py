"""Pods of RDMA networks for checks: where they run, what they ask for, and who talks to whom."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from types import MappingProxyType
from typing import NoReturn

import pytest

from provision.contracts.check import NotDeclared, NotRun, Site, Trials
from provision.contracts.query import Unknown
from provision.inventory.models.cluster import RdmaNetwork
from provision.inventory.models.node import Node, Rail
from provision.kube.checks.pods import HOLD, PodEnd, PodGroup, held_on, image_of, run_pods
from provision.kube.names import API, is_member
from provision.rdma.measurements import pod_scripts
from provision.rdma.measurements.counters import Counters, Judgement, PortKey, Route, judge
from provision.rdma.measurements.pod_scripts import NoSecondNetwork, PodPort, parse_counted, parse_look

GPU = "nvidia.com/gpu"
OTHER_SHARE = 0.05
"""What other ports may send at the same time where `expect.rdma.other_nic_share` is unset."""
MOST_NODES = 8
"""Nodes that a check goes round at most: each pair takes its time."""
OK = 200


@dataclass(frozen=True, slots=True)
class Place:
    """A node that a network of pods reaches.

    Args:
        name: in the inventory.
        kubernetes_name: of its Node.
        rail: that carries the network.
        has_cards: whether it declares GPUs.
        cards: how many it declares; 0 where the number is not declared.
    """

    name: str
    kubernetes_name: str
    rail: Rail
    has_cards: bool
    cards: int


@dataclass(frozen=True, slots=True)
class Net:
    """A network of pods, and where it is."""

    name: str
    network: RdmaNetwork
    resource: str
    places: tuple[Place, ...]

    @property
    def annotation(self) -> dict[str, str]:
        """What a pod of any namespace writes to get it."""
        return {"k8s.v1.cni.cncf.io/networks": f"{self.network.namespaces[0]}/{self.name}"}

    @property
    def subnet(self) -> IPv4Network | None:
        """Its addresses."""
        return IPv4Network(self.network.pool.subnet) if self.network.pool is not None else None

    def pairs(self, *, cards: bool = False) -> list[tuple[Place, Place]]:
        """Return sender and receiver: each node once as either, in a ring."""
        places = [place for place in self.places if place.has_cards or not cards][:MOST_NODES]
        return list(zip(places, [*places[1:], *places[:1]], strict=True)) if len(places) > 1 else []

    def group(
        self,
        site: Site,
        place: Place,
        name: str,
        script: str,
        *,
        purpose: str = "rdma",
        cards: int = 0,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> PodGroup:
        """Return a pod on a node of the network."""
        resources = {self.resource: "1"} if self.resource else {}
        if cards:
            resources[GPU] = str(cards)
        return PodGroup(
            name,
            image_of(site, purpose),
            script,
            node=place.kubernetes_name,
            resources=resources,
            env=env,
            annotations=self.annotation,
            capabilities=("IPC_LOCK", "SYS_RESOURCE"),
            runtime_class="nvidia" if cards else "",
            shared_memory="1Gi",
        )


def nets_of(site: Site) -> list[Net]:
    """Return the networks of pods, with the nodes that they reach and the API knows."""
    inventory = site.inventory
    rdma = inventory.rdma
    if rdma is None or rdma.operator is None or not any(one.namespaces for one in rdma.networks.values()):
        raise NotDeclared("no network of pods is declared")
    reply = site.get(API, "/api/v1/nodes")
    items = json.loads(reply.text)["items"] if reply.status == OK else []
    nets = []
    for name, network in rdma.networks.items():
        if not network.namespaces:
            continue
        resource = network.resource or next(
            (key for key, one in rdma.resources.items() if one.rail == network.rail), ""
        )
        nodes = [
            node
            for node in inventory.nodes.values()
            if node.manage and network.rail in node.rails and is_member(inventory, node)
        ]
        places = tuple(
            Place(node.name, kubernetes, node.rails[network.rail], node.gpu_cards is not None, _cards(node))
            for node in nodes
            if (kubernetes := _registered(items, node)) is not None
        )
        nets.append(Net(name, network, f"rdma/{resource}" if resource else "", places))
    return nets


def _cards(node: Node) -> int:
    declared = node.gpu_cards.count if node.gpu_cards is not None else None
    return len(node.gpus) or declared or 0


def _registered(items: Sequence[dict[str, object]], node: Node) -> str | None:
    """Return the name of the node's Node, which an address knows if the name is another one."""
    address = {"type": "InternalIP", "address": node.address}
    for item in items:
        metadata, status = item.get("metadata"), item.get("status")
        if not isinstance(metadata, dict) or not isinstance(status, dict):
            continue
        if metadata.get("name") == node.kubernetes_name or address in status.get("addresses", []):
            return str(metadata.get("name"))
    return None


def look(site: Site, trials: Trials, net: Net) -> dict[str, PodPort]:
    """Run a pod on each node at once; return what each has."""
    places = net.places[:MOST_NODES]
    groups = [net.group(site, place, f"n{number}", pod_scripts.LOOK) for number, place in enumerate(places)]
    ends = {end.group: end for end in run_pods(site, trials, f"look-{net.name}"[:30], groups, seconds=300)}
    result = {}
    for number, place in enumerate(places):
        seen = parse_look(ends[f"n{number}"].log)
        if isinstance(seen, Unknown):
            _unreadable(place.name, seen)
        result[place.name] = seen[0]
    return result


def between(
    site: Site,
    trials: Trials,
    trial: str,
    server: PodGroup,
    client: Callable[[PodPort], PodGroup],
    *,
    seconds: int,
) -> PodEnd:
    """Run a pod that serves, then one that talks to its address; return how the second one ended.

    Args:
        site: under verification.
        trials: of the check.
        trial: name of both trials, at most 28 letters.
        server: ends its script with `serving`.
        client: from the server's port to the pod that talks to it.
        seconds: for each of the two.
    """
    ends: list[PodEnd] = []

    def talk(servers: tuple[PodEnd, ...]) -> None:
        (end,) = servers
        assert end.code is None, f"the serving pod on {end.node} ended: {_tail(end.log)}"
        own = pod_scripts.parse_own(end.log)
        assert not isinstance(own, Unknown), f"the serving pod on {end.node}: {own.reason}"
        ends.extend(run_pods(site, trials, f"{trial}-c", [client(own)], seconds=seconds))

    held = replace(server, holds=True)
    run_pods(site, trials, f"{trial}-s", [held], seconds=2 * seconds, meanwhile=talk)
    return ends[0]


def serving(command: str) -> str:
    """Return the script of a pod that serves: its port first, then the server, then it holds."""
    return f"{pod_scripts.FIND}\n({command}) >/tmp/server.log 2>&1 &\nsleep 1\n{HOLD}"


@dataclass(frozen=True, slots=True)
class Moved:
    """What a pod that was `counted` says of its transfer.

    Args:
        own: the pod's port.
        port: the declared one; the pod's where none is declared.
        text: what the program printed.
        before: counters before it.
        after: counters after it.
        share: of what was sent that others may send at the same time.
    """

    own: PodPort
    port: PortKey
    text: str
    before: Counters
    after: Counters
    share: float

    def judge(self, sent: int) -> Judgement:
        """Return which way bytes went that the program sent."""
        return judge(self.before, self.after, self.port, sent, self.share)

    @property
    def rate(self) -> float | None:
        """Gbit/s of the port, where the kernel says so."""
        return self.after.rates.get(self.port)


def transferred(site: Site, sender: Place, end: PodEnd) -> Moved:
    """Return what a pod that was `counted` says; a program that failed is a failed check."""
    counted = parse_counted(end.log)
    if isinstance(counted, Unknown):
        _unreadable(sender.name, counted, f": {_tail(end.log)}")
    own, before, part, after = counted
    assert part.code == 0, f"{sender.name}: status {part.code}: {_tail(part.text)}"
    expected = site.inventory.expect.rdma
    share = expected.other_nic_share if expected is not None else None
    rail = sender.rail
    port = (rail.hca, rail.port) if rail.hca is not None else (own.hca, own.port)
    return Moved(own, port, part.text, before, after, OTHER_SHARE if share is None else share)


def _unreadable(node: str, seen: Unknown, more: str = "") -> NoReturn:
    """Fail where a pod has no second network; what it printed beside that is unknown."""
    assert not isinstance(seen, NoSecondNetwork), (
        f"{node}: {seen.reason}; see `kubectl describe` of a pod there, and the pods of kube-multus-ds"
    )
    unknown(f"{node}: {seen.reason}{more}")


def require_declared(judgement: Judgement, who: str) -> None:
    """Refuse a transfer that went another way than over the declared port; unknown where nothing shows it."""
    if judgement.route is Route.UNKNOWN:
        unknown(f"{who}: {judgement.reason}")
    assert judgement.route is Route.DECLARED, f"{who}: {judgement.route}: {judgement.reason}"


def pairs_of(net: Net, *, cards: bool = False) -> list[tuple[Place, Place]]:
    """Return who sends to whom; not run with fewer than two nodes."""
    pairs = net.pairs(cards=cards)
    if not pairs:
        raise NotRun(f"{net.name} reaches fewer than two nodes{' with cards' if cards else ''}")
    return pairs


def leave_cards(trials: Trials, places: Sequence[Place]) -> None:
    """End the check where others hold all cards of a node: nobody is evicted."""
    for place in places:
        held = held_on(trials, place.kubernetes_name, GPU)
        if sum(held.values()) >= place.cards > 0:
            raise NotRun(f"others use all cards of {place.name}: {', '.join(sorted(held)[:4])}")


def unknown(reason: str) -> NoReturn:
    """End the check without evidence for or against its claim."""
    pytest.skip(f"unknown: {reason}")


def _tail(log: str) -> str:
    return " / ".join(line.strip() for line in log.splitlines()[-4:])[-300:] or "it printed nothing"
