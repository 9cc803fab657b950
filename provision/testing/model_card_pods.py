"""What pods of checks see of shared cards: the schedulers and limits of each mode, and their faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.lab.kube.store import Object, Store
from provision.testing.model_gpu_operator import GpuOperator
from provision.testing.model_pods import TRIAL, Run, unschedulable

RESOURCE = "nvidia.com/gpu"
QUEUE = "kai.scheduler/queue"
HAMI_WEBHOOK = "hami-webhook"
WHOLE = 100
"""Percent of a card."""
MEMORY = 24576
"""MiB of a card where the model does not say it."""
_MODES = ("slots", "hami", "kai", "fractions")
_NO_PLACE = unschedulable("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")


@dataclass
class CardPods:
    """A behaviour of PodRunner: it answers the trials of GPU sharing alone.

    Args:
        store: with the nodes, queues and Jobs.
        gpus: which Node has how many cards.
        faults: what is broken: `one-card`, `all-cards`, `no-cap`, `no-webhook`, `any-card`, `no-gang`,
            `no-limit`, `no-env`, `no-reclaim`, `no-preemption`, `no-card`.
    """

    store: Store
    gpus: GpuOperator
    faults: set[str] = field(default_factory=set)
    _trial: str = ""
    _used: int = 0
    _given: dict[str, str] = field(default_factory=dict)

    def __call__(self, pod: Object) -> Run | None:
        """Return what a pod prints, or that it finds no place."""
        trial = pod["metadata"]["labels"].get(TRIAL, "")
        mode = trial.partition("-")[0]
        if mode not in _MODES:
            return None
        if trial != self._trial:
            self._trial, self._used = trial, 0
        cards = self._cards(pod)
        if mode == "hami":
            return self._hami(pod, cards)
        if mode == "kai":
            return self._kai(pod, cards)
        if self._used >= self._room(mode, cards):
            return _NO_PLACE
        card = 0 if "one-card" in self.faults else self._used % len(cards)
        self._used += 1
        log = self._lines([cards[card]] if "all-cards" not in self.faults else cards, self._memory)
        return Run(log + (self._limits() if mode == "fractions" else ""), None)

    @property
    def _memory(self) -> int:
        return self.gpus.memory or MEMORY

    def _cards(self, pod: Object) -> list[str]:
        """Return the cards of the node that a pod names, else of all nodes that are up."""
        terms: Any = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
        terms = terms.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
        names = terms[0]["matchFields"][0]["values"] if terms else self.gpus.cards
        up = [name for name in names if self._is_up(name)]
        return [uuid for name in up for uuid in uuids_of(name, self.gpus.cards.get(name, 0))]

    def _is_up(self, name: str) -> bool:
        node = self.store.get(self.store.kind("Node"), ("", name))
        rows = node["status"]["conditions"] if node is not None else []
        return any((row["type"], row["status"]) == ("Ready", "True") for row in rows)

    def _room(self, mode: str, cards: list[str]) -> int:
        """Return how many pods of the trial find a place."""
        if mode == "fractions":
            return 2 * len(cards) + ("no-limit" in self.faults)
        name = next(name for name in self.gpus.cards if uuids_of(name, 1)[0] in cards)
        node = self.store.get(self.store.kind("Node"), ("", name))
        return int(node["status"]["allocatable"][RESOURCE]) if node is not None else 0

    def _kai(self, pod: Object, cards: list[str]) -> Run:
        """Place a pod as KAI does: a whole gang or none, up to its queue's limit, and by taking a card."""
        running = self._running()
        queue = pod["metadata"]["labels"][QUEUE]
        own = [held for held in running if held["metadata"]["labels"].get(QUEUE) == queue]
        most = min(len(cards), self._most(queue))
        job = pod["metadata"]["labels"]["job-name"]
        others = sum(held["metadata"]["labels"].get("job-name") != job for held in running)
        if self._gang(pod) > min(most, len(cards) - others) and "no-gang" not in self.faults:
            return _NO_PLACE
        if len(running) >= len(cards) or len(own) >= most:
            victim = self._victim(pod, own, running)
            if victim is None:
                return _NO_PLACE
            place = (victim["metadata"]["namespace"], victim["metadata"]["name"])
            self.store.delete(self.store.kind("Pod"), place)
            running.remove(victim)
        taken = {self._given.get(held["metadata"]["name"]) for held in running}
        free = [card for card in cards if card not in taken] if "one-card" not in self.faults else cards
        self._given[pod["metadata"]["name"]] = free[0]
        return Run(self._lines(free[:1], self._memory), None)

    def _running(self) -> list[Object]:
        """Return the pods that hold a card, of whomever."""
        pods = self.store.listed(self.store.kind("Pod"))
        return [
            pod
            for pod in pods
            if pod["spec"].get("nodeName")
            and pod["spec"]["containers"]
            and pod["spec"]["containers"][0].get("resources", {}).get("limits", {}).get(RESOURCE)
        ]

    def _gang(self, pod: Object) -> int:
        place = (pod["metadata"]["namespace"], pod["metadata"]["labels"]["job-name"])
        job = self.store.get(self.store.kind("Job"), place)
        notes = job["metadata"].get("annotations", {}) if job is not None else {}
        return int(notes.get("kai.scheduler/batch-min-member", 0))

    def _victim(self, pod: Object, own: list[Object], running: list[Object]) -> Object | None:
        """Return the pod that has to go: one of less priority in its queue, or one that its queue lent."""
        priority = self._priority(pod)
        lower = [held for held in own if self._priority(held) < priority]
        if lower and "no-preemption" not in self.faults:
            return lower[0]
        queue = pod["metadata"]["labels"][QUEUE]
        if len(own) >= self._amount(queue, "quota") or "no-reclaim" in self.faults:
            return None
        for held in running:
            lender = held["metadata"]["labels"].get(QUEUE, "")
            count = sum(other["metadata"]["labels"].get(QUEUE) == lender for other in running)
            if lender not in {"", queue} and 0 <= self._amount(lender, "quota") < count:
                return held
        return None

    def _priority(self, pod: Object) -> int:
        name = pod["spec"].get("priorityClassName", "")
        held = self.store.get(self.store.kind("PriorityClass"), ("", name))
        return int(held["value"]) if held is not None else 0

    def _amount(self, queue: str, key: str) -> int:
        held = self.store.get(self.store.kind("Queue"), ("", queue))
        return int(held["spec"]["resources"]["gpu"][key]) if held is not None else -1

    def _most(self, queue: str) -> int:
        limit = self._amount(queue, "limit")
        return 1000 if limit < 0 or "no-limit" in self.faults else limit

    def _hami(self, pod: Object, cards: list[str]) -> Run:
        limits: Mapping[str, str] = pod["spec"]["containers"][0]["resources"]["limits"]
        named = pod["metadata"]["annotations"]["nvidia.com/use-gpuuuid"].split(",")
        share = int(limits["nvidia.com/gpumem-percentage"])
        hooks = self.store.kind("MutatingWebhookConfiguration")
        if "no-webhook" not in self.faults and self.store.get(hooks, ("", HAMI_WEBHOOK)) is not None:
            pod["spec"]["schedulerName"] = "hami-scheduler"
        if "no-limit" not in self.faults and (share > WHOLE or not set(named) <= set(cards)):
            return unschedulable("0/2 nodes are available: 1 CardUuidMismatch, 1 CardInsufficientMemory.")
        env = {row["name"]: row["value"] for row in pod["spec"]["containers"][0]["env"]}
        is_lifted = env.get("CUDA_DISABLE_CONTROL") == "true" or "no-cap" in self.faults
        visible = cards[: len(named)] if "any-card" in self.faults else named
        return Run(self._lines(visible, self._memory if is_lifted else self._memory * share // 100), None)

    def _lines(self, uuids: list[str], memory: int) -> str:
        seen = uuids if "no-card" not in self.faults else []
        return "".join(f"card {uuid}, {memory}\n" for uuid in seen) + "provision: done\n"

    def _limits(self) -> str:
        if "no-env" in self.faults:
            return "limit \nshare \n"
        return f"limit 0={(self._memory - 1024) // 2}M\nshare 50\n"


def uuids_of(node: str, count: int) -> list[str]:
    """Return the UUIDs of a node's cards."""
    return [f"GPU-{node}-{number}" for number in range(count)]
