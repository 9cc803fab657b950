"""What pods of checks see of shared cards: the schedulers and limits of each mode, and their faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.lab.kube.store import Object, Store
from provision.testing.model_gpu_operator import GpuOperator
from provision.testing.model_pods import TRIAL, Run, unschedulable

RESOURCE = "nvidia.com/gpu"
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
            `no-limit`, `no-env`.
    """

    store: Store
    gpus: GpuOperator
    faults: set[str] = field(default_factory=set)
    _trial: str = ""
    _used: int = 0

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
        if self._used >= self._room(mode, pod, cards):
            return _NO_PLACE
        card = 0 if "one-card" in self.faults else self._used % len(cards)
        self._used += 1
        log = self._lines([cards[card]] if "all-cards" not in self.faults else cards, self._memory)
        return Run(log + (self._limits() if mode == "fractions" else ""), None)

    @property
    def _memory(self) -> int:
        return self.gpus.memory or MEMORY

    def _cards(self, pod: Object) -> list[str]:
        """Return the cards of the node that a pod names, else of all nodes."""
        terms: Any = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
        terms = terms.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
        names = terms[0]["matchFields"][0]["values"] if terms else self.gpus.cards
        return [uuid for name in names for uuid in uuids_of(name, self.gpus.cards.get(name, 0))]

    def _room(self, mode: str, pod: Object, cards: list[str]) -> int:
        """Return how many pods of the trial find a place."""
        if mode == "fractions":
            return 2 * len(cards) + ("no-limit" in self.faults)
        if mode == "slots":
            name = next(name for name in self.gpus.cards if uuids_of(name, 1)[0] in cards)
            node = self.store.get(self.store.kind("Node"), ("", name))
            return int(node["status"]["allocatable"][RESOURCE]) if node is not None else 0
        job = self.store.get(
            self.store.kind("Job"), (pod["metadata"]["namespace"], pod["metadata"]["labels"]["job-name"])
        )
        notes = job["metadata"].get("annotations", {}) if job is not None else {}
        gang = int(notes.get("kai.scheduler/batch-min-member", 0))
        room = min(len(cards), self._limit(pod["metadata"]["labels"]["kai.scheduler/queue"]))
        return 0 if gang > room and "no-gang" not in self.faults else room

    def _limit(self, queue: str) -> int:
        held = self.store.get(self.store.kind("Queue"), ("", queue))
        limit = held["spec"]["resources"]["gpu"]["limit"] if held is not None else -1
        return 1000 if limit < 0 or "no-limit" in self.faults else int(limit)

    def _hami(self, pod: Object, cards: list[str]) -> Run:
        limits: Mapping[str, str] = pod["spec"]["containers"][0]["resources"]["limits"]
        named = pod["metadata"]["annotations"]["nvidia.com/use-gpuuuid"].split(",")
        share = int(limits["nvidia.com/gpumem-percentage"])
        if "no-webhook" not in self.faults:
            pod["spec"]["schedulerName"] = "hami-scheduler"
        if "no-limit" not in self.faults and (share > WHOLE or not set(named) <= set(cards)):
            return unschedulable("0/2 nodes are available: 1 CardUuidMismatch, 1 CardInsufficientMemory.")
        env = {row["name"]: row["value"] for row in pod["spec"]["containers"][0]["env"]}
        is_lifted = env.get("CUDA_DISABLE_CONTROL") == "true" or "no-cap" in self.faults
        seen = cards[: len(named)] if "any-card" in self.faults else named
        return Run(self._lines(seen, self._memory if is_lifted else self._memory * share // 100), None)

    def _lines(self, uuids: list[str], memory: int) -> str:
        return "".join(f"card {uuid}, {memory}\n" for uuid in uuids) + "provision: done\n"

    def _limits(self) -> str:
        if "no-env" in self.faults:
            return "limit \nshare \n"
        return f"limit 0={(self._memory - 1024) // 2}M\nshare 50\n"


def uuids_of(node: str, count: int) -> list[str]:
    """Return the UUIDs of a node's cards."""
    return [f"GPU-{node}-{number}" for number in range(count)]
