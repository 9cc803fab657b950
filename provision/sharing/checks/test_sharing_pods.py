"""Pods that share cards: what the declared mode promises, as the pods themselves see it.

A pod prints the cards that its driver shows. Cards that others hold are left to them: the check is not run.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from provision.contracts.check import NotDeclared, NotRun, Site, Trials, Trivial
from provision.contracts.query import ApiReply
from provision.kube.checks.pods import HOLD, PodEnd, PodGroup, image_of, lines_after, run_pods, uses
from provision.kube.names import API

T = TypeVar("T")
RESOURCE = "nvidia.com/gpu"
REGISTER = "hami.io/node-nvidia-register"
"""Annotation of a Node with HAMi's cards: JSON, or rows that end with a colon."""
SLOTS = {"time_slicing": 1, "mps": 1, "hami": 10}
"""Slots of a card where none are declared, by mode."""
FIELDS = 3
"""Of a row, up to the memory of the card."""
SECONDS = 300
OK = 200
RESERVED = 1024
"""MiB of a card that GPU fractions leave to the driver."""
QUERY = "nvidia-smi --query-gpu=uuid,memory.total --format=csv,noheader,nounits"
SCRIPT = f"{QUERY} | sed 's/^/card /'\n"
LIMITS = 'echo "limit $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"\necho "share $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"\n'
NAMESPACES = (
    "k3s crictl exec $(k3s crictl ps -q --name mpsd | head -n 1)"
    " nvidia-cuda-mps-control -p 3 namespace list --server=shared"
)


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
            items = json.loads(reply.text).get("items", [])
            placed = sum(item.get("status", {}).get("phase") in {"Running", "Succeeded"} for item in items)
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


@pytest.fixture
def mode(site: Site, cluster: str) -> str:
    """The declared mode."""
    del cluster
    sharing = site.inventory.sharing
    if sharing is None:
        raise NotDeclared("no sharing is declared")
    return sharing.mode


def only(mode: str, *modes: str) -> None:
    """End the check where another mode is declared."""
    if mode not in modes:
        raise NotDeclared("another sharing mode")


def gpu_nodes(site: Site, trials: Trials) -> list[GpuNode]:
    """Return the nodes with cards that are up and whose cards nobody holds; without one it is not run."""
    nodes = _items(trials, "/api/v1/nodes")
    pods = _items(trials, "/api/v1/pods")
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
            rows = {row["type"]: row["status"] for row in item["status"].get("conditions", [])}
            if rows.get("Ready") == "True":
                node = GpuNode(declared.name, item["metadata"]["name"], cards, item)
                (busy if uses(pods, node.kube_name, RESOURCE) else free).append(node)
    if not free:
        raise NotRun("others hold the cards" if busy else "no node with a declared number of cards is up")
    return free


def _items(trials: Trials, path: str) -> list[dict[str, Any]]:
    reply = trials.send(API, "GET", path)
    if reply.status != OK:
        pytest.skip(f"unknown: GET {path}: {reply.status} {reply.text}")
    items: list[dict[str, Any]] = json.loads(reply.text)["items"]
    return items


def cards_in(end: PodEnd) -> list[tuple[str, int]]:
    """Return UUID and MiB of the cards that a pod has seen."""
    rows = [row.split(",") for row in lines_after(end.log, "card")]
    cards = [(row[0].strip(), int(row[1])) for row in rows if len(row) > 1 and row[1].strip().isdigit()]
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
        return {row[0]: int(row[2]) for row in fields if len(row) >= FIELDS and row[2].isdigit()}


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


# ------------------------------------------------------------ KAI


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


def kai_group(image: str, queue: str, count: int, name: str = "all", gang: int = 0) -> PodGroup:
    """Return pods of a queue with a card each."""
    return PodGroup(
        name,
        image,
        SCRIPT + HOLD,
        count=count,
        resources={RESOURCE: "1"},
        labels={"kai.scheduler/queue": queue},
        scheduler="kai-scheduler",
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
    number = sum(node.cards for node in gpu_nodes(site, trials)) + 1
    group = kai_group(image, queue, number, gang=number)
    ran = stays_pending(site, trials, "kai-gang", [group])
    assert ran == 0, f"{ran} of {number} pods that must run together ran alone"


def test_kai_limits_a_queue(site: Site, trials: Trials, mode: str) -> None:
    """A queue gets as many cards as its limit allows, and its next pod waits."""
    only(mode, "kai")
    cards_free = sum(node.cards for node in gpu_nodes(site, trials))
    limited = [(name, limit) for name, limit in leaves(site) if 0 <= limit < cards_free]
    if not limited:
        raise Trivial("no queue has a limit below the number of cards")
    queue, limit = limited[0]
    ran = stays_pending(site, trials, "kai-limit", [kai_group(image_of(site, "cuda"), queue, limit + 1)])
    assert ran == limit, f"{ran} pods of queue {queue} ran at once, its limit is {limit}"


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
        assert label.isdigit(), f"{node.name} has no label nvidia.com/gpu.memory"
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
