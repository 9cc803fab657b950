"""KAI Scheduler: what its chart is told, and its queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.inventory import Inventory
from provision.inventory.models.cluster import Queue, QueueCpu, QueueGpu, QueueMemory, Sharing
from provision.kube.values import laid_over
from provision.sharing.names import DEFAULT_PARENT, DEFAULT_QUEUE

UNLIMITED = -1


def kai_values(sharing: Sharing) -> Mapping[str, Any]:
    """Return the values of the chart."""
    return laid_over({"global": {"gpuSharing": bool(sharing.fractions)}}, sharing.values)


def queue_specs(sharing: Sharing) -> dict[str, dict[str, Any]]:
    """Return the spec of each queue by name, parents first.

    A queue without an amount of a resource gets none of it, so all three are always there.
    """
    specs = {name: _spec(sharing.queues[name]) for name in in_order(sharing.queues)}
    if sharing.default_queues == "unlimited":
        specs.setdefault(DEFAULT_PARENT, _spec(Queue()))
        specs.setdefault(DEFAULT_QUEUE, _spec(Queue(parent=DEFAULT_PARENT)))
    return specs


def in_order(queues: Mapping[str, Queue]) -> list[str]:
    """Return the names, parents before their children; queues of a loop are left out."""
    order: list[str] = []
    left = dict(queues)
    while left:
        ready = [name for name, queue in left.items() if queue.parent is None or queue.parent not in left]
        if not ready:
            break
        order += ready
        for name in ready:
            del left[name]
    return order


def _spec(queue: Queue) -> dict[str, Any]:
    gpu, cpu, memory = queue.gpu or QueueGpu(), queue.cpu or QueueCpu(), queue.memory or QueueMemory()
    resources = {
        "gpu": _amounts(gpu.quota, gpu.limit, gpu.weight),
        "cpu": _amounts(_millis(cpu.quota), _millis(cpu.limit), cpu.weight),
        "memory": _amounts(_megabytes(memory.quota), _megabytes(memory.limit), memory.weight),
    }
    spec: dict[str, Any] = {"resources": resources}
    spec |= {"parentQueue": queue.parent} if queue.parent is not None else {}
    spec |= {"priority": queue.priority} if queue.priority is not None else {}
    runtimes = {
        "preemptMinRuntime": queue.preempt_min_runtime,
        "reclaimMinRuntime": queue.reclaim_min_runtime,
    }
    spec |= {key: f"{seconds}s" for key, seconds in runtimes.items() if seconds is not None}
    return spec


def _millis(cores: int | None) -> int | None:
    """Return cores as KAI counts them: thousandths."""
    return cores * 1000 if cores is not None and cores >= 0 else cores


def _megabytes(mebibytes: int | None) -> int | None:
    """Return MiB as KAI counts memory: in millions of bytes, rounded up."""
    return None if mebibytes is None else -(-mebibytes * 1024 * 1024 // 1_000_000)


def _amounts(quota: int | None, limit: int | None, weight: int | None) -> dict[str, int]:
    return {
        "quota": UNLIMITED if quota is None else quota,
        "limit": UNLIMITED if limit is None else limit,
        "overQuotaWeight": 1 if weight is None else weight,
    }


def looping(inventory: Inventory) -> list[str]:
    """Return the queues that are their own ancestors, and those below them."""
    queues = inventory.sharing.queues if inventory.sharing is not None else {}
    return sorted(set(queues) - set(in_order(queues)))
