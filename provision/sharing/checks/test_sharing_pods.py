"""Pods that share cards: what the declared mode promises, as the pods themselves see it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence

import pytest

from provision.contracts.check import Site, Trials, Trivial
from provision.kube.checks.pods import HOLD, PodEnd, PodGroup, image_of, lines_after, run_pods
from provision.sharing.checks.card_pods import (
    RESOURCE,
    SCRIPT,
    SECONDS,
    GpuNode,
    cards_in,
    gpu_nodes,
    leaves,
    mode_of,
    only,
    only_card,
    stays_pending,
)
from provision.values.numbers import is_number

REGISTER = "hami.io/node-nvidia-register"
"""Annotation of a Node with HAMi's cards: JSON, or rows that end with a colon."""
SLOTS = {"time_slicing": 1, "mps": 1, "hami": 10}
"""Slots of a card where none are declared, by mode."""
FIELDS = 3
"""Of a row, up to the memory of the card."""
RESERVED = 1024
"""MiB of a card that GPU fractions leave to the driver."""
LIMITS = 'echo "limit $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"\necho "share $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"\n'
NAMESPACES = (
    "k3s crictl exec $(k3s crictl ps -q --name mpsd | head -n 1)"
    " nvidia-cuda-mps-control -p 3 namespace list --server=shared"
)


@pytest.fixture
def mode(site: Site, cluster: str) -> str:
    """The declared mode."""
    del cluster
    return mode_of(site)


# ------------------------------------------------------------ slots of a card


def test_slots_run_at_once(site: Site, trials: Trials, mode: str) -> None:
    """Pods hold all slots of a node at once, evenly: a card carries as many pods as are declared."""
    only(mode, *SLOTS)
    image = image_of(site, "cuda")
    sharing = site.inventory.sharing
    slots = (sharing.slots_per_card if sharing is not None else None) or SLOTS[mode]
    resources = {RESOURCE: "1"}
    if mode == "hami":
        resources["nvidia.com/gpumem-percentage"] = str(100 // slots)  # unset, it is all of a card
    for number, node in enumerate(gpu_nodes(site, trials)):
        group = PodGroup(
            "all",
            image,
            SCRIPT + HOLD,
            node=node.kube_name,
            count=node.cards * slots,
            resources=resources,
            runtime_class="nvidia",
            holds=True,
        )
        ends = run_pods(site, trials, f"slots-{number}", [group], seconds=SECONDS)
        held = Counter(only_card(end)[0] for end in ends)
        assert len(held) == node.cards, f"{node.name}: pods had {len(held)} of {node.cards} cards"
        assert set(held.values()) == {slots}, f"{node.name}: pods a card: {sorted(held.values())}"


# ------------------------------------------------------------ HAMi


def registered(node: GpuNode) -> dict[str, int]:
    """Return MiB by UUID of the cards that HAMi's plugin has registered."""
    text = str(node.body["metadata"].get("annotations", {}).get(REGISTER, ""))
    try:
        rows = json.loads(text)
        return {str(row["id"]): int(row["devmem"]) for row in rows}
    except (ValueError, KeyError, TypeError):
        fields = [row.split(",") for row in text.split(":")]
        return {row[0]: int(row[2]) for row in fields if len(row) >= FIELDS and is_number(row[2])}


def hami_group(image: str, node: GpuNode, name: str, uuids: Sequence[str], share: int) -> PodGroup:
    """Return a pod that names its cards and its share of each."""
    resources = {RESOURCE: str(len(uuids)), "nvidia.com/gpumem-percentage": str(share)}
    return PodGroup(
        name,
        image,
        SCRIPT + HOLD,
        node=node.kube_name,
        resources=resources,
        annotations={"nvidia.com/use-gpuuuid": ",".join(uuids)},
        runtime_class="nvidia",
        holds=True,
    )


def hami_cards(site: Site, trials: Trials) -> list[tuple[GpuNode, dict[str, int]]]:
    """Return the nodes and the cards that HAMi knows of each."""
    rows = [(node, registered(node)) for node in gpu_nodes(site, trials)]
    for node, cards in rows:
        assert len(cards) == node.cards, f"HAMi knows {len(cards)} of the {node.cards} cards of {node.name}"
    return rows


def test_hami_gives_the_named_cards(site: Site, trials: Trials, mode: str) -> None:
    """A pod that names a card gets that one, each card in turn, and one that names two gets both."""
    only(mode, "hami")
    image = image_of(site, "cuda")
    for number, (node, cards) in enumerate(hami_cards(site, trials)):
        uuids = list(cards)
        groups = [hami_group(image, node, f"c{place}", [uuid], 20) for place, uuid in enumerate(uuids)]
        groups += [hami_group(image, node, "pair", uuids[:2], 45)] if len(uuids) > 1 else []
        named = {group.name: set(group.annotations["nvidia.com/use-gpuuuid"].split(",")) for group in groups}
        for end in run_pods(site, trials, f"hami-named-{number}", groups, seconds=SECONDS):
            seen = {uuid for uuid, _ in cards_in(end)}
            assert seen == named[end.group], f"{end.name} named {named[end.group]}, and sees {seen}"
            scheduler = end.body["spec"].get("schedulerName")
            assert scheduler == "hami-scheduler", (
                f"{end.name} was placed by {scheduler}: HAMi's webhook is down"
            )


def test_hami_limits_memory(site: Site, trials: Trials, mode: str) -> None:
    """A pod with a quarter of a card sees a quarter of its memory; CUDA_DISABLE_CONTROL=true lifts that."""
    only(mode, "hami")
    image = image_of(site, "cuda")
    node, cards = hami_cards(site, trials)[0]
    uuid, memory = next(iter(cards.items()))
    capped = hami_group(image, node, "capped", [uuid], 25)
    lifted = PodGroup(
        "lifted",
        image,
        SCRIPT + HOLD,
        node=node.kube_name,
        resources=capped.resources,
        env={"CUDA_DISABLE_CONTROL": "true"},
        annotations=capped.annotations,
        runtime_class="nvidia",
        holds=True,
    )
    ends = run_pods(site, trials, "hami-limits", [capped, lifted], seconds=SECONDS)
    seen = {end.group: only_card(end)[1] for end in ends}
    margin = memory / 100
    for group, wanted in (("capped", memory // 4), ("lifted", memory)):
        assert abs(seen[group] - wanted) <= margin, f"{group}: {seen[group]} MiB are seen, not {wanted}"


def test_hami_refuses(site: Site, trials: Trials, mode: str) -> None:
    """A pod that wants more than a card has, or names a card of another node, finds no place."""
    only(mode, "hami")
    image = image_of(site, "cuda")
    rows = hami_cards(site, trials)
    node, cards = rows[0]
    too_much = hami_group(image, node, "much", [next(iter(cards))], 150)
    stays_pending(site, trials, "hami-much", [too_much])
    if len(rows) == 1:
        raise Trivial("more than a card has is refused; there is no second node whose card could be named")
    other = hami_group(image, node, "other", [next(iter(rows[1][1]))], 20)
    stays_pending(site, trials, "hami-other", [other])


# ------------------------------------------------------------ GPU fractions


def halves(site: Site, image: str, node: GpuNode, count: int) -> PodGroup:
    """Return pods with half a card each."""
    return PodGroup(
        "halves",
        image,
        SCRIPT + LIMITS + HOLD,
        node=node.kube_name,
        count=count,
        labels={"kai.scheduler/queue": leaves(site)[0][0]},
        annotations={"gpu-fraction": "0.5", "nvidia.com/container.main.gpu-compute.mode": "sm-sharing"},
        scheduler="kai-scheduler",
        runtime_class="nvidia",
        holds=True,
        user=1000,
    )


def test_fractions_divide_a_card(site: Site, trials: Trials, mode: str) -> None:
    """Two pods share each card with half of its memory, and the MPS server has a namespace for each."""
    only(mode, "kai_fractions")
    image = image_of(site, "cuda")
    for number, node in enumerate(gpu_nodes(site, trials)):
        label = node.body["metadata"].get("labels", {}).get("nvidia.com/gpu.memory", "")
        assert is_number(label), f"{node.name} has no label nvidia.com/gpu.memory"
        cap = f"0={(int(label) - RESERVED) // 2}M"

        def look(_ends: tuple[PodEnd, ...], node: GpuNode = node) -> None:
            host = site.host(f"{node.name}/ssh")
            for _ in site.again(f"{node.name}/ssh", NAMESPACES):
                own, default = namespaces(host.run(NAMESPACES).stdout)
                assert own >= 2 * node.cards, f"{node.name}: the MPS server lists {own} namespaces of pods"
                assert default == "10.00", f"{node.name}: the default namespace has {default or 'no share'}"

        group = halves(site, image, node, 2 * node.cards)
        ends = run_pods(site, trials, f"fractions-{number}", [group], seconds=SECONDS, meanwhile=look)
        held = Counter(only_card(end)[0] for end in ends)
        assert set(held.values()) == {2}, f"{node.name}: pods a card: {sorted(held.values())}"
        for end in ends:
            limit, share = (next(lines_after(end.log, key), "") for key in ("limit", "share"))
            assert limit == cap, f"{end.name}: the limit is {limit or 'not set'}, not {cap}"
            assert share == "50", f"{end.name}: the share is {share or 'not set'}, not 50"


def namespaces(text: str) -> tuple[int, str]:
    """Return how many namespaces of pods an MPS server lists at 50.00, and the share of the default one."""
    own = len(re.findall(r"(?m)^.*\bkai_\S*\b.*\b50\.00\b", text))
    default = re.search(r"(?m)^.*\bdefault\b.*?\b([0-9]+\.[0-9]+)", text)
    return own, default[1] if default is not None else ""


def test_fractions_leave_the_third_pod_waiting(site: Site, trials: Trials, mode: str) -> None:
    """With two halves on each card of a node, one more finds no place."""
    only(mode, "kai_fractions")
    image = image_of(site, "cuda")
    node = gpu_nodes(site, trials)[0]
    ran = stays_pending(site, trials, "fractions-more", [halves(site, image, node, 2 * node.cards + 1)])
    assert ran == 2 * node.cards, f"{ran} halves ran at once on {node.cards} cards"
