"""Pods that look at cards for checks of GPU sharing: where they run, and what they have seen.

A pod prints the cards that its driver shows. Cards that others hold are left to them: the check is not run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from provision.contracts.check import NotDeclared, NotRun, Site, Trials
from provision.contracts.query import ApiReply
from provision.kube.checks.pods import PodEnd, PodGroup, lines_after, run_pods, uses
from provision.kube.names import API
from provision.values.numbers import is_number

T = TypeVar("T")
RESOURCE = "nvidia.com/gpu"
SECONDS = 300
OK = 200
QUERY = "nvidia-smi --query-gpu=uuid,memory.total --format=csv,noheader,nounits"
SCRIPT = f"{QUERY} | sed 's/^/card /'\n"


@dataclass(frozen=True, slots=True)
class GpuNode:
    """A node with cards that is up.

    Args:
        name: as the inventory calls it.
        kube_name: its Node.
        cards: how many it has.
        body: the Node.
    """

    name: str
    kube_name: str
    cards: int
    body: Mapping[str, Any] = field(repr=False, default_factory=dict)


@dataclass
class Counting:
    """Trials that count how many pods of a trial ran at once."""

    inner: Trials
    most: int = 0

    @property
    def run(self) -> str:
        """Identifies this verification."""
        return self.inner.run

    def send(self, system: str, method: str, path: str, body: Mapping[str, object] | None = None) -> ApiReply:
        """Send a request, and look at the phases in a list of pods."""
        reply = self.inner.send(system, method, path, body)
        if method == "GET" and "/pods?" in path and reply.status == OK:
            pods = json.loads(reply.text).get("items", [])
            placed = sum(pod.get("status", {}).get("phase") in {"Running", "Succeeded"} for pod in pods)
            self.most = max(self.most, placed)
        return reply

    def pause(self, seconds: float, *, final: bool = False) -> None:
        """Wait."""
        self.inner.pause(seconds, final=final)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what was made the first time for this name."""
        return self.inner.once(name, make)

    def at_end(self, name: str, remove: Callable[[], None]) -> None:
        """Call this after all checks."""
        self.inner.at_end(name, remove)


def mode_of(site: Site) -> str:
    """Return the declared mode."""
    sharing = site.inventory.sharing
    if sharing is None:
        raise NotDeclared("no sharing is declared")
    return sharing.mode


def only(mode: str, *modes: str) -> None:
    """End the check where another mode is declared."""
    if mode not in modes:
        raise NotDeclared("another sharing mode")


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether a Node is up."""
    rows = node["status"].get("conditions", [])
    return any((row["type"], row["status"]) == ("Ready", "True") for row in rows)


def gpu_nodes(site: Site, trials: Trials) -> list[GpuNode]:
    """Return the nodes with cards that are up and whose cards nobody holds; without one it is not run."""
    nodes, pods = items(trials, "/api/v1/nodes"), items(trials, "/api/v1/pods")
    free: list[GpuNode] = []
    busy: list[GpuNode] = []
    for declared in site.inventory.nodes.values():
        counted = declared.gpu_cards.count if declared.gpu_cards is not None else None
        cards = len(declared.gpus) or (counted or 0)
        if not declared.manage or not cards:
            continue
        address = {"type": "InternalIP", "address": declared.address}
        for item in nodes:
            named = item["metadata"]["name"] == declared.kubernetes_name
            if not named and address not in item["status"].get("addresses", []):
                continue
            if is_ready(item):
                node = GpuNode(declared.name, item["metadata"]["name"], cards, item)
                (busy if uses(pods, node.kube_name, RESOURCE) else free).append(node)
    if not free:
        raise NotRun("others hold the cards" if busy else "no node with a declared number of cards is up")
    return free


def items(trials: Trials, path: str) -> list[dict[str, Any]]:
    """Return the objects of a list; the check is unknown without it."""
    reply = trials.send(API, "GET", path)
    if reply.status != OK:
        pytest.skip(f"unknown: GET {path}: {reply.status} {reply.text}")
    rows: list[dict[str, Any]] = json.loads(reply.text)["items"]
    return rows


def cards_in(end: PodEnd) -> list[tuple[str, int]]:
    """Return UUID and MiB of the cards that a pod has seen."""
    rows = [row.split(",") for row in lines_after(end.log, "card")]
    cards = [(row[0].strip(), int(row[1])) for row in rows if len(row) > 1 and is_number(row[1].strip())]
    assert cards, f"{end.name} sees no card: {end.log.strip()[:200]}"
    return cards


def only_card(end: PodEnd) -> tuple[str, int]:
    """Return the card of a pod that must see one."""
    cards = cards_in(end)
    assert len(cards) == 1, f"{end.name} sees {len(cards)} cards, and asked for one"
    return cards[0]


def stays_pending(site: Site, trials: Trials, name: str, groups: Sequence[PodGroup]) -> int:
    """Return how many pods of a trial ran at once; one of them at least must find no place."""
    counting = Counting(trials)
    try:
        run_pods(site, counting, name, groups, seconds=SECONDS)
    except AssertionError as error:
        if "stays Pending" not in str(error):
            raise
        return counting.most
    raise AssertionError(f"all {sum(group.count for group in groups)} pods of {name} ran")


def leaves(site: Site) -> list[tuple[str, int]]:
    """Return the queues without children and the cards that each may have; -1 is no limit."""
    sharing = site.inventory.sharing
    queues = sharing.queues if sharing is not None else {}
    parents = {queue.parent for queue in queues.values()}
    rows = []
    for name in queues:
        limits, place, seen = [], name, set[str]()
        while place in queues and place not in seen:
            seen.add(place)
            gpu = queues[place].gpu
            limits += [gpu.limit] if gpu is not None and gpu.limit is not None and gpu.limit >= 0 else []
            place = queues[place].parent or ""
        if name not in parents:
            rows.append((name, min(limits, default=-1)))
    return rows or [("default-queue", -1)]
