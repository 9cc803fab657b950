"""GPUs in pods: each card computes in a pod of its own, and no pod gets a card without asking."""

from __future__ import annotations

import calendar
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from provision.contracts.check import Figure, NotDeclared, NotRun, Site, Trials
from provision.inventory import Inventory
from provision.kube.checks.pods import (
    HOLD,
    MOST_PODS,
    PodEnd,
    PodGroup,
    held_on,
    image_of,
    lines_after,
    run_pods,
)
from provision.kube.checks.reads import get
from provision.kube.names import API, has_cluster, is_member
from provision.values.numbers import is_number

RESOURCE = "nvidia.com/gpu"
SECONDS = 900
"""For all CUDA pods of a node, with the download of their image."""
DCGM_SECONDS = {1: 600, 2: 1200, 3: 3600}
"""By level, with the download of the image."""
UUIDS = "nvidia-smi --query-gpu=uuid --format=csv,noheader"
LOOK = (
    f"{UUIDS} 2>/dev/null | sed 's/^/uuid /';"
    ' for f in /dev/nvidia[0-9]*; do if [ -e "$f" ]; then echo "device $f"; fi; done;'
    ' echo "memlock $(ulimit -l)"'
)
COMPUTE = f'{LOOK}; /cuda-samples/vectorAdd; echo "vectoradd $?"; {HOLD}'
DIAGNOSE = (
    "nv-hostengine -n >/dev/null 2>&1 & n=0;"
    " until dcgmi discovery -l >/dev/null 2>&1; do n=$((n+1)); [ $n -lt 30 ] || break; sleep 1; done;"
    ' dcgmi diag -r {} -j; echo "dcgmi $?"'
)
BOOT_TIME = "awk '/^btime / {print $2}' /proc/stat"
PLUGIN = "nvidia-device-plugin-daemonset"
RUNTIME_CLASS = "nvidia"


@dataclass(frozen=True, slots=True)
class CudaPods:
    """Pods that looked at the cards of a node.

    Args:
        ends: what they have printed.
        held_by: pods of others that had cards before.
    """

    ends: Sequence[PodEnd]
    held_by: tuple[str, ...]


@pytest.fixture
def offering_node(site: Site, node: str) -> dict[str, Any]:
    """The Node object of a node whose cards the plugin of the GPU Operator offers."""
    inventory, declared = site.inventory, site.inventory.nodes[node]
    if inventory.gpu is None or inventory.gpu.operator is None or not declared.wants_gpu:
        raise NotDeclared("no cards for pods")
    if inventory.sharing is not None and inventory.sharing.mode in {"hami", "kai_fractions"}:
        raise NotDeclared("what shares the cards offers them")
    if not has_cluster(inventory) or site.is_away(API):
        raise NotRun("there is no cluster that can be reached")
    address = {"type": "InternalIP", "address": declared.address}
    for item in get(site, "/api/v1/nodes")["items"]:
        is_named = item["metadata"]["name"] == declared.kubernetes_name
        if is_named or address in item["status"].get("addresses", []):
            if ("Ready", "True") not in _conditions(item):
                pytest.skip(f"unknown: {item['metadata']['name']} is not Ready")
            return dict(item)
    if not is_member(inventory, declared):
        raise NotDeclared("it is not in the cluster")
    raise NotRun("it has not joined the cluster")


@pytest.fixture
def own_uuids(site: Site, node: str, offering_node: dict[str, Any]) -> frozenset[str]:
    """The UUIDs that the node's own driver lists; none where nvidia-smi is not on the host."""
    del offering_node
    if site.is_away(f"{node}/ssh"):
        return frozenset()
    lines = site.host(f"{node}/ssh").run(f"{UUIDS} 2>/dev/null || true").stdout.split()
    return frozenset(line for line in lines if line.startswith("GPU-"))


@pytest.fixture
def cuda_pods(site: Site, node: str, offering_node: dict[str, Any], trials: Trials) -> CudaPods:
    """What pods have printed: one on each card that is free, and one that asks for none; run once."""
    image, name = image_of(site, "cuda"), offering_node["metadata"]["name"]

    def run() -> CudaPods:
        scheduler, labels, most = _queue(site.inventory)
        held = held_on(trials, name, RESOURCE)
        count = min(_offered(offering_node) - sum(held.values()), most, MOST_PODS - 1)
        groups = [PodGroup("none", image, LOOK, name)]
        if count > 0:
            card = PodGroup(
                "card",
                image,
                COMPUTE,
                name,
                count=count,
                resources={RESOURCE: "1"},
                labels=labels,
                scheduler=scheduler,
                runtime_class=_runtime_class(site),
                holds=True,
            )
            groups.append(card)
        ends = run_pods(site, trials, trial_name("cuda", node), groups, seconds=SECONDS)
        return CudaPods(ends, tuple(sorted(held)))

    return trials.once(f"cuda {node}", run)


def _seconds(text: str) -> int | None:
    """Return a time of the API as seconds since the epoch; None for what is none."""
    try:
        return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        return None


def _conditions(item: dict[str, Any]) -> set[tuple[str, str]]:
    return {(row["type"], row["status"]) for row in item["status"].get("conditions", [])}


def trial_name(prefix: str, node: str) -> str:
    """Return the name of a node's trial; labels and names of Jobs take 63 characters."""
    return f"{prefix}-{node}"[:40].rstrip("-.").replace(".", "-").lower()


def _offered(item: dict[str, Any]) -> int:
    text = str(item["status"].get("allocatable", {}).get(RESOURCE, "0"))
    return int(text) if is_number(text) else 0


def _runtime_class(site: Site) -> str:
    """Return the class by which pods get cards, where there is one: without it CDI or NRI gives them."""
    items = get(site, "/apis/node.k8s.io/v1/runtimeclasses")["items"]
    return RUNTIME_CLASS if any(item["metadata"]["name"] == RUNTIME_CLASS for item in items) else ""


def _queue(inventory: Inventory) -> tuple[str, dict[str, str], int]:
    """Return scheduler, labels and the most cards: under KAI those of the widest queue without children."""
    sharing = inventory.sharing
    if sharing is None or sharing.mode != "kai":
        return "", {}, MOST_PODS
    parents = {queue.parent for queue in sharing.queues.values()}
    limits = {
        name: MOST_PODS if queue.gpu is None or queue.gpu.limit in {None, -1} else int(queue.gpu.limit or 0)
        for name, queue in sharing.queues.items()
        if name not in parents
    }
    name = max(sorted(limits), key=lambda queue: limits[queue], default="default-queue")
    return "kai-scheduler", {"kai.scheduler/queue": name}, limits.get(name, MOST_PODS)


def test_cards_compute_in_pods(
    site: Site,
    offering_node: dict[str, Any],
    own_uuids: frozenset[str],
    cuda_pods: CudaPods,
    measured: Callable[[Figure], None],
) -> None:
    """Each card of the node computes in a pod that asks for one: vectorAdd, and the UUIDs are the node's own.

    It does not prove bandwidth, nor transfers between cards.
    """
    shares = slots_of(site.inventory)
    ends = [end for end in cuda_pods.ends if end.group == "card"]
    offered = _offered(offering_node)
    cards = len(own_uuids) or offered // shares
    problems, uuids = judged(ends, own_uuids, shares)
    if not offered:
        raise NotRun(f"no {RESOURCE} is allocatable")
    measured(Figure("cards that computed", len(uuids), "", float(cards)))
    assert not problems, "; ".join(problems)
    if len(ends) < offered:
        why = f"held by {', '.join(cuda_pods.held_by)}" if cuda_pods.held_by else "more than a check may take"
        raise NotRun(f"{offered - len(ends)} of {offered} {RESOURCE} are {why}; the others computed")
    assert len(uuids) == cards, f"{len(uuids)} of {cards} cards computed"


def slots_of(inventory: Inventory) -> int:
    """Return as how many a card is offered."""
    sharing = inventory.sharing
    if sharing is None or sharing.mode not in {"time_slicing", "mps"}:
        return 1
    return sharing.slots_per_card or 1


def judged(ends: Sequence[PodEnd], own: frozenset[str], shares: int) -> tuple[list[str], set[str]]:
    """Return what is wrong with pods that asked for one card each, and the UUIDs that they saw.

    Args:
        ends: of the pods.
        own: UUIDs that the node itself lists; empty where it cannot be asked.
        shares: how many pods may have a card at the same time.
    """
    problems: list[str] = []
    seen: list[str] = []
    for end in ends:
        uuids = [uuid for uuid in lines_after(end.log, "uuid") if uuid.startswith("GPU-")]
        code = next(lines_after(end.log, "vectoradd"), "missing")
        if len(uuids) != 1:
            problems.append(f"{end.name} sees {len(uuids)} cards, not one")
        if code != "0":
            reason = next((line for line in end.log.splitlines() if "rror" in line or "ailed" in line), "")
            problems.append(f"{end.name}: vectorAdd ended with {code}{': ' if reason else ''}{reason}")
        elif uuids:
            seen.append(uuids[0])
    problems += [
        f"{uuid} was given to {seen.count(uuid)} pods"
        for uuid in sorted(set(seen))
        if seen.count(uuid) > shares
    ]
    foreign = sorted(set(seen) - own) if own else []
    problems += [f"{uuid} is not a card of the node" for uuid in foreign]
    return problems, set(seen)


def test_pods_that_ask_for_none_see_no_card(cuda_pods: CudaPods) -> None:
    """A pod that asks for no card sees none, though its image asks for all (NVIDIA_VISIBLE_DEVICES)."""
    (end,) = (end for end in cuda_pods.ends if end.group == "none")
    # without a driver nvidia-smi prints what it lacks where UUIDs would be
    uuids = [uuid for uuid in lines_after(end.log, "uuid") if uuid.startswith("GPU-")]
    seen = [*uuids, *lines_after(end.log, "device")]
    assert end.code == 0, f"{end.name} ended with {end.code}: {end.log.strip()[-200:]}"
    assert not seen, f"it sees {', '.join(seen)}: is {RUNTIME_CLASS} the default runtime of the node?"


@pytest.fixture
def uses_rdma(site: Site) -> None:
    """RDMA is declared."""
    if site.inventory.rdma is None:
        raise NotDeclared("no RDMA")


@pytest.mark.usefixtures("uses_rdma")
def test_pods_may_lock_memory(cuda_pods: CudaPods) -> None:
    """Pods may lock as much memory as RDMA needs: `ulimit -l` is unlimited inside."""
    limits = {limit for end in cuda_pods.ends for limit in lines_after(end.log, "memlock")}
    assert limits, "no pod has printed its limit"
    assert limits == {"unlimited"}, f"the limit is {', '.join(sorted(limits))} KiB"


def test_plugin_started_since_boot(site: Site, node: str, offering_node: dict[str, Any]) -> None:
    """The pod that offers the node's cards is ready, and has started since the node's boot.

    After a reboot the kubelet offers the cards of before without it.
    """
    gpu = site.inventory.gpu
    operator = gpu.operator if gpu is not None else None
    namespace = (operator.namespace if operator is not None else None) or "gpu-operator"
    items = get(site, f"/api/v1/namespaces/{namespace}/pods?labelSelector=app%3D{PLUGIN}")["items"]
    own = [item for item in items if item["spec"].get("nodeName") == offering_node["metadata"]["name"]]
    assert own, f"no pod of {PLUGIN} is on the node"
    ready = [item for item in own if ("Ready", "True") in _conditions(item)]
    assert ready, f"{own[0]['metadata']['name']} is not ready"
    texts = [
        (row.get("state", {}).get("running") or {}).get("startedAt", "")
        for item in ready
        for row in item["status"].get("containerStatuses", [])
    ]
    started = [seconds for text in texts if (seconds := _seconds(text)) is not None]
    booted = site.host(f"{node}/ssh").run(BOOT_TIME).stdout.strip()
    if not is_number(booted) or not started:
        pytest.skip("unknown: the time of the boot, or of the start, cannot be read")
    assert max(started) >= int(booted), (
        f"{ready[0]['metadata']['name']} has not started since the node's boot"
    )


def test_dcgm_diagnostics_pass(
    site: Site,
    node: str,
    offering_node: dict[str, Any],
    trials: Trials,
    measured: Callable[[Figure], None],
) -> None:
    """DCGM's diagnostics of the declared level pass on all cards; a skipped one proves nothing."""
    options = site.inventory.verify.dcgm
    if options is None:
        raise NotDeclared("no level of DCGM (verify.dcgm)")
    image, name = image_of(site, "dcgm"), offering_node["metadata"]["name"]
    if slots_of(site.inventory) > 1:
        raise NotRun("DCGM needs whole cards, and the cards are shared")
    offered, held = _offered(offering_node), held_on(trials, name, RESOURCE)
    if held:
        raise NotRun(f"DCGM needs idle cards: {', '.join(held)} holds some, and nobody is evicted")
    if not offered:
        raise NotRun(f"no {RESOURCE} is allocatable")
    seconds = options.seconds or DCGM_SECONDS[options.level]
    scheduler, labels, most = _queue(site.inventory)
    if most < offered:
        raise NotRun(f"no queue gives {offered} cards")
    group = PodGroup(
        "all",
        image,
        DIAGNOSE.format(options.level),
        name,
        resources={RESOURCE: str(offered)},
        labels=labels,
        capabilities=("SYS_ADMIN",),
        scheduler=scheduler,
        runtime_class=_runtime_class(site),
    )
    (end,) = run_pods(site, trials, trial_name("dcgm", node), [group], seconds=seconds)
    results = list(diagnosed(end.log))
    if not results:
        pytest.skip(f"unknown: dcgmi printed no result: {end.log.strip()[-200:]}")
    passed = [test for test, status, _ in results if status == "pass"]
    measured(Figure("DCGM tests that passed", len(passed), "", float(len(results))))
    bad = [
        f"{test}: {status} {text}".strip() for test, status, text in results if status not in {"pass", "skip"}
    ]
    assert not bad, "; ".join(bad)
    skipped = sorted({test for test, status, _ in results if status == "skip"})
    if skipped:
        pytest.skip(f"unknown: DCGM skipped {', '.join(skipped)}")


def diagnosed(log: str) -> Iterator[tuple[str, str, str]]:
    """Yield test, status in lower case and warnings from the JSON of dcgmi 3 and 4."""
    begin, end = log.find("{"), log.rfind("}")
    try:
        body = json.loads(log[begin : end + 1])
        root = body.get("DCGM Diagnostic") or body.get("DCGM GPU Diagnostic")
        for category in root["test_categories"]:
            for test in category["tests"]:
                for result in test["results"]:
                    yield str(test["name"]), str(result["status"]).lower(), _warnings(result)
    except (ValueError, KeyError, TypeError, AttributeError):
        return


def _warnings(result: dict[str, Any]) -> str:
    texts = result.get("warnings") or result.get("warning") or ""
    rows = texts if isinstance(texts, list) else [texts]
    return "; ".join(str(row.get("warning", "")) if isinstance(row, dict) else str(row) for row in rows)
