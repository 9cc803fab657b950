"""The Network Operator has done its work: policy, DaemonSets, what nodes offer, addresses and networks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from provision.contracts.snapshot import Snapshot
from provision.kube.facts import NODES, NodeFact
from provision.kube.kinds import DAEMON_SET
from provision.kube.logs import PluginLogs, PodLog
from provision.kube.queries import Listing, ListQuery, Live, ObjectQuery, list_query, object_query
from provision.kube.readiness import Conditions, State
from provision.kube.resources.stack import Problem, StackResource, daemon_set_problems, ready_nodes
from provision.rdma.network_objects import ATTACHMENT, MACVLAN, NIC_LABEL, POLICY, POLICY_NAME, POOL, PREFIX

PLUGIN = "app=rdma-shared-dp"
PLUGIN_SET = "rdma-shared-dp-ds"
POLICY_READY = Conditions((("state", "ready"),))
NETWORK_READY = Conditions((("state", "ready"),))
EXCLUSIVE = "incorrect RDMA subsystem network namespace"
"""What the plugin says when it ends at once: namespaces have RDMA devices alone."""
NO_DEVICE = "no devices in device pool, creating empty resource server for "
"""What the plugin says of a resource whose interfaces it has not found; it runs on."""
MOST_LINES = 5


@dataclass(frozen=True, slots=True)
class Offer:
    """What one node must offer to pods.

    Args:
        node: as the inventory calls it.
        kube_name: its Node, by name.
        address: its Node, by address.
        amounts: pods by resource (`ib`).
        interfaces: of these resources.
    """

    node: str
    kube_name: str
    address: str
    amounts: tuple[tuple[str, int], ...]
    interfaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NetworkStack(StackResource):
    """The policy is ready, and each node with rails that is up offers its resources and has its addresses.

    Args:
        namespace: of the operator.
        offers: what is declared, by node.
        pools: names of the pools.
        networks: name and namespace of each network.
    """

    kind: ClassVar[str] = "network-stack"
    title: ClassVar[str] = "networks of pods are"

    namespace: str
    offers: tuple[Offer, ...]
    pools: tuple[str, ...] = ()
    networks: tuple[tuple[str, str], ...] = ()

    @property
    def _policy(self) -> ObjectQuery:
        return object_query(POLICY, POLICY_NAME)

    @property
    def _daemon_sets(self) -> ListQuery:
        return list_query(DAEMON_SET, self.namespace)

    @property
    def _pools(self) -> ListQuery:
        return list_query(POOL, self.namespace)

    @property
    def _logs(self) -> PluginLogs:
        names = {f"{PREFIX}/{name}" for offer in self.offers for name, _ in offer.amounts}
        return PluginLogs(self.namespace, PLUGIN, tuple(sorted(names)))

    def queries(self) -> tuple[Any, ...]:
        """Ask for the policy, DaemonSets, nodes, logs of a plugin that does not work, and networks."""
        networks = (self._pools, list_query(MACVLAN), list_query(ATTACHMENT)) if self.networks else ()
        return (self._policy, self._daemon_sets, NODES, self._logs, *networks)

    def problems(self, snapshot: Snapshot) -> Iterator[Problem]:
        """Yield what is missing."""
        up = ready_nodes(snapshot[NODES], self.offers)
        if not up:
            return  # every node with rails is off, or has not joined: there is nothing to offer
        # A cause is named before what follows from it.
        logs: tuple[PodLog, ...] = snapshot[self._logs]
        for offer, fact in up:
            yield from self._offer_problems(offer, fact, [log for log in logs if log.node == fact.name])
        policy: Live | None = snapshot[self._policy]
        yield from self._policy_problems(policy)
        yield from self._daemon_set_problems(snapshot)
        if self.networks:
            yield from self._pool_problems(snapshot, [fact for _, fact in up])
            yield from self._network_problems(snapshot)

    def _offer_problems(self, offer: Offer, fact: NodeFact, logs: list[PodLog]) -> Iterator[Problem]:
        for log in logs:
            if any(EXCLUSIVE in line for line in log.lines):
                text = "RDMA devices are exclusive to a network namespace, and the shared device plugin exits"
                remedy = (
                    "Declare `rdma.netns: shared`, run `provision apply` with the role rdma_host, and then"
                    f" `kubectl -n {self.namespace} rollout restart daemonset {PLUGIN_SET}`."
                )
                lines = tuple(line for line in log.lines if EXCLUSIVE in line)[:MOST_LINES]
                yield Problem(
                    f"{offer.node}: plugin", "RDMA_NETNS_EXCLUSIVE", text, remedy, heals=False, lines=lines
                )
                return
        for name, pods in offer.amounts:
            offered = fact.allocatable.get(f"{PREFIX}/{name}", "0")
            if offered != str(pods):
                yield self._missing(offer, fact, logs, name, f"{offered} {PREFIX}/{name} allocatable", pods)

    def _missing(
        self, offer: Offer, fact: NodeFact, logs: list[PodLog], name: str, offered: str, pods: int
    ) -> Problem:
        path, text = f"{offer.node}: {PREFIX}/{name}", f"{offered}, {pods} are declared"
        if NIC_LABEL not in fact.labels:
            remedy = f"See Node Feature Discovery: `kubectl get node {fact.name} --show-labels`."
            return Problem(path, "RDMA_NIC_UNSEEN", f"{text}; no label {NIC_LABEL}", remedy)
        for log in logs:
            if any(NO_DEVICE + name == line.partition("Warning: ")[2].strip() for line in log.lines):
                interfaces = ", ".join(offer.interfaces)
                where = f"{text}; the plugin has found no RDMA port at {interfaces}"
                remedy = (
                    f"See whether {interfaces} is there and has an RDMA port:"
                    f" `provision verify --target {offer.node}`; after a change, restart the plugin:"
                    f" `kubectl -n {self.namespace} rollout restart daemonset {PLUGIN_SET}`."
                )
                lines = tuple(line for line in log.lines if "Warning" in line)[:MOST_LINES]
                return Problem(path, "RDMA_INTERFACE_MISSING", where, remedy, lines=lines)
        lines = next((log.lines[-MOST_LINES:] for log in logs if not log.is_ready), ())
        why = next((f"; {log.pod}: {log.reason}" for log in logs if log.reason), "")
        remedy = f"See `kubectl -n {self.namespace} logs -l {PLUGIN}` on {fact.name}."
        return Problem(path, "RDMA_ALLOCATABLE_WRONG", text + why, remedy, lines=lines)

    def _policy_problems(self, policy: Live | None) -> Iterator[Problem]:
        if policy is None:
            yield Problem("policy", "NIC_POLICY_NOT_READY", "not there", "See the operator's own log.")
            return
        verdict = POLICY_READY.of(policy.body)
        if verdict.state is not State.READY:
            states = policy.at("status", "appliedStates")
            parts = [
                f"{row.get('name')} {row.get('state')}: {row.get('message') or ''}".rstrip(": ")
                for row in (states if isinstance(states, list) else [])
                if isinstance(row, dict) and row.get("state") not in ("ready", "ignore")
            ]
            reason = policy.at("status", "reason")
            text = "; ".join((verdict.reason, *([str(reason)] if reason else []), *parts))
            remedy = f"See `kubectl -n {self.namespace} get pods`, and the events of {POLICY_NAME}."
            yield Problem("policy", "NIC_POLICY_NOT_READY", text, remedy)

    def _daemon_set_problems(self, snapshot: Snapshot) -> Iterator[Problem]:
        # The policy's status has no generation: after a change it is for a while that of before.
        listing: Listing = snapshot[self._daemon_sets]
        if any(offer.amounts for offer in self.offers) and listing.named(PLUGIN_SET) is None:
            remedy = "See the operator's own log."
            yield Problem(PLUGIN_SET, "NIC_OPERANDS_NOT_READY", "not there", remedy)
        yield from daemon_set_problems(snapshot, listing, self.namespace, "NIC_OPERANDS_NOT_READY")

    def _pool_problems(self, snapshot: Snapshot, up: list[NodeFact]) -> Iterator[Problem]:
        listing: Listing = snapshot[self._pools]
        for name in self.pools:
            live = listing.named(name)
            rows = live.at("status", "allocations") if live is not None else None
            holders = {
                row.get("nodeName")
                for row in (rows if isinstance(rows, list) else [])
                if isinstance(row, dict)
            }
            without = [fact.name for fact in up if fact.name not in holders]
            if without:
                text = f"no addresses for {', '.join(without)}" if live is not None else "not there"
                remedy = f"See `kubectl -n {self.namespace} describe ippool {name}`, and the log of nv-ipam."
                yield Problem(f"pool {name}", "RDMA_POOL_NOT_READY", text, remedy)

    def _network_problems(self, snapshot: Snapshot) -> Iterator[Problem]:
        networks: Listing = snapshot[list_query(MACVLAN)]
        attachments: Listing = snapshot[list_query(ATTACHMENT)]
        made = {(live.metadata.get("namespace"), live.name) for live in attachments.objects}
        for name, namespace in self.networks:
            live = networks.named(name)
            remedy = f"See `kubectl describe macvlannetwork {name}`."
            if live is None:
                yield Problem(f"network {name}", "RDMA_NETWORK_NOT_READY", "not there", remedy)
                continue
            verdict = NETWORK_READY.of(live.body)
            if verdict.state is not State.READY:
                reason = live.at("status", "reason")
                text = f"{verdict.reason}: {reason}" if reason else verdict.reason
                yield Problem(f"network {name}", "RDMA_NETWORK_NOT_READY", text, remedy)
            elif (namespace, name) not in made:
                text = f"no NetworkAttachmentDefinition in {namespace}"
                yield Problem(f"network {name}", "RDMA_NETWORK_NOT_READY", text, remedy)
