"""Pods under KAI Scheduler: cards by queue, gangs, and who gets a card back from whom.

Only pods of checks lose a card: what takes one away is not run while somebody else has pods under KAI.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from provision.contracts.check import NotRun, Site, Trials, Trivial
from provision.inventory.models.cluster import Queue
from provision.kube.checks.pods import HOLD, PodEnd, PodGroup, image_of, run_pods, uses
from provision.kube.checks.trial_space import LONGEST
from provision.sharing.checks.card_pods import (
    RESOURCE,
    SCRIPT,
    SECONDS,
    gpu_nodes,
    is_ready,
    items,
    leaves,
    mode_of,
    only,
    only_card,
    stays_pending,
)
from provision.values.numbers import is_number

KAI = "kai-scheduler"
TAKING = 120
"""Seconds in which KAI takes a card back, once the pods that have it may go."""


@pytest.fixture
def mode(site: Site, cluster: str) -> str:
    """The declared mode."""
    del cluster
    return mode_of(site)


def free_cards(trials: Trials) -> int:
    """Return how many cards of all nodes that are up nobody holds."""
    pods, count = items(trials, "/api/v1/pods"), 0
    for node in items(trials, "/api/v1/nodes"):
        offered = str(node["status"].get("allocatable", {}).get(RESOURCE, "0"))
        if is_ready(node) and is_number(offered):
            count += int(offered) - sum(uses(pods, node["metadata"]["name"], RESOURCE).values())
    return count


def idle_cards(trials: Trials) -> int:
    """Return how many cards there are; not run while somebody has pods that could lose theirs."""
    for pod in items(trials, "/api/v1/pods"):
        is_over = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        name = f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
        if not is_over and (pod["spec"].get("schedulerName") == KAI or _has_card(pod)):
            raise NotRun(f"{name} could lose its card, and nobody is evicted")
    count = free_cards(trials)
    if not count:
        raise NotRun(f"no {RESOURCE} is allocatable")
    return count


def _has_card(pod: Mapping[str, Any]) -> bool:
    rows = pod["spec"].get("containers", [])
    return any(row.get("resources", {}).get("limits", {}).get(RESOURCE) for row in rows)


def kai_group(image: str, queue: str, count: int, name: str = "all", gang: int = 0) -> PodGroup:
    """Return pods of a queue with a card each."""
    return PodGroup(
        name,
        image,
        SCRIPT + HOLD,
        count=count,
        resources={RESOURCE: "1"},
        labels={"kai.scheduler/queue": queue},
        scheduler=KAI,
        runtime_class="nvidia",
        holds=True,
        job_annotations={"kai.scheduler/batch-min-member": str(gang)} if gang else {},
    )


def test_kai_gives_cards(site: Site, trials: Trials, mode: str) -> None:
    """KAI places a pod on each free card that its queue may have, and no two on one."""
    only(mode, "kai")
    image = image_of(site, "cuda")
    queue, limit = leaves(site)[0]
    cards = sum(node.cards for node in gpu_nodes(site, trials))
    number = cards if limit < 0 else min(cards, limit)
    if not number:
        raise Trivial(f"the limit of queue {queue} is 0")
    ends = run_pods(site, trials, "kai-cards", [kai_group(image, queue, number)], seconds=SECONDS)
    held = Counter(only_card(end)[0] for end in ends)
    assert len(held) == number, f"{number} pods had {len(held)} cards"


def test_kai_places_a_gang_whole_or_not(site: Site, trials: Trials, mode: str) -> None:
    """Of pods that must run together, none starts as long as one finds no card."""
    only(mode, "kai")
    image = image_of(site, "cuda")
    queue, _ = leaves(site)[0]
    number = free_cards(trials) + 1
    group = kai_group(image, queue, number, gang=number)
    ran = stays_pending(site, trials, "kai-gang", [group])
    assert ran == 0, f"{ran} of {number} pods that must run together ran alone"


def test_kai_limits_a_queue(site: Site, trials: Trials, mode: str) -> None:
    """A queue gets as many cards as its limit allows, and its next pod waits."""
    only(mode, "kai")
    cards_free = free_cards(trials)
    limited = [(name, limit) for name, limit in leaves(site) if 0 <= limit < cards_free]
    if not limited:
        raise Trivial("no queue has a limit below the number of cards")
    queue, limit = limited[0]
    ran = stays_pending(site, trials, "kai-limit", [kai_group(image_of(site, "cuda"), queue, limit + 1)])
    assert ran == limit, f"{ran} pods of queue {queue} ran at once, its limit is {limit}"


def lenders(queues: Mapping[str, Queue], cards: int) -> Iterator[tuple[str, str]]:
    """Yield queues below one parent: the first may have all cards on loan, the second one is owed some."""
    parents = {queue.parent for queue in queues.values()}
    for lender, lending in queues.items():
        lent = lending.gpu
        if lent is None or lent.quota is None or not 0 <= lent.quota < cards or lender in parents:
            continue
        if lent.limit is not None and 0 <= lent.limit < cards:
            continue
        for owner, owning in queues.items():
            owed = owning.gpu
            if owner in {lender, *parents} or owning.parent != lending.parent or owed is None:
                continue
            if (owed.quota or 0) > 0 and owed.limit != 0:
                yield lender, owner


def protected(queues: Mapping[str, Queue], name: str, key: str) -> int:
    """Return the seconds that pods of a queue keep their cards, by itself or a queue above it."""
    most, seen = 0, set[str]()
    while name in queues and name not in seen:
        seen.add(name)
        most = max(most, getattr(queues[name], key) or 0)
        name = queues[name].parent or ""
    return most


def takes_a_card(site: Site, trials: Trials, holding: PodGroup, taking: PodGroup, protected: int) -> None:
    """Run pods that hold all that they may; one more pod must get the card of one of them.

    Args:
        site: under verification.
        trials: of the check.
        holding: pods that run first.
        taking: the pod that comes later.
        protected: seconds that the first ones keep their cards.
    """
    seconds = protected + TAKING
    if 2 * seconds + SECONDS > LONGEST:
        raise NotRun(f"its pods keep their cards for {protected} s: longer than a check may take")

    def take(_ends: tuple[PodEnd, ...]) -> None:
        (end,) = run_pods(site, trials, "kai-taking", [taking], seconds=seconds + SECONDS, patience=seconds)
        only_card(end)

    run_pods(site, trials, "kai-holding", [holding], seconds=2 * seconds + SECONDS, meanwhile=take)


def test_kai_takes_back_what_a_queue_lent(site: Site, trials: Trials, mode: str) -> None:
    """A queue gets a card of its quota back from a queue that has more than its own: reclaim."""
    only(mode, "kai")
    image, cards = image_of(site, "cuda"), idle_cards(trials)
    queues = site.inventory.sharing.queues if site.inventory.sharing is not None else {}
    pair = next(lenders(queues, cards), None)
    if pair is None:
        raise Trivial("no queue may have all cards while one beside it has a quota")
    lender, owner = pair
    holding, taking = kai_group(image, lender, cards), kai_group(image, owner, 1)
    takes_a_card(site, trials, holding, taking, protected(queues, lender, "reclaim_min_runtime"))


def test_kai_puts_urgent_pods_first(site: Site, trials: Trials, mode: str) -> None:
    """A pod of a higher priority gets the card of a pod of its queue that has a lower one: preemption."""
    only(mode, "kai")
    image, cards = image_of(site, "cuda"), idle_cards(trials)
    queues = site.inventory.sharing.queues if site.inventory.sharing is not None else {}
    queue, limit = leaves(site)[0]
    number = cards if limit < 0 else min(cards, limit)
    if not number:
        raise Trivial(f"the limit of queue {queue} is 0")
    holding = kai_group(image, queue, number)
    taking = replace(kai_group(image, queue, 1), is_urgent=True)
    takes_a_card(site, trials, holding, taking, protected(queues, queue, "preempt_min_runtime"))
