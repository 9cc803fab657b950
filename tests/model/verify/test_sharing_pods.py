"""Checks by pods that share cards: proven as declared, red for each fault, not run beside others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from provision.contracts.check import NotDeclared, NotRun, Site, Trivial
from provision.contracts.driver import Action, Verdict
from provision.contracts.remedy import ApiCall, Request
from provision.inventory import Inventory
from provision.sharing.checks import card_pods, damages, test_kai_pods, test_sharing_pods
from provision.testing.model_cluster import ModelCluster, end_namespaces, set_status
from provision.values.cancel import Cancel
from tests.unit.kube.test_pods import Bench
from tests.unit.sharing.test_gpu_sharing import SITE, apply, load

IMAGE = "verify: { images: { cuda: 'registry.example/cuda@sha256:" + "a" * 64 + "' } }\n"
TWO = SITE.replace("  c1:", "  g2: { address: 10.0.0.3, gpu_cards: { count: 2 } }\n  c1:")
QUEUES = "sharing: { mode: kai, version: v1, queues: { small: { gpu: { limit: 1 } }, big: {} } }\n"
OWED = (
    "sharing: { mode: kai, version: v1, queues: { lab: {},"
    " lends: { parent: lab, gpu: { quota: 1 } },"
    " owed: { parent: lab, gpu: { quota: 1 }, reclaim_min_runtime: 60 } } }\n"
)
MODULES = (test_sharing_pods, test_kai_pods)
MPS = "default 10.00\nkai_a 50.00\nkai_b 50.00\nkai_c 50.00\nkai_d 50.00\n"


@dataclass
class Bound:
    """A site under verification, with a node whose MPS server lists namespaces."""

    inventory: Inventory
    listed: str = MPS

    def is_away(self, system: str) -> bool:
        del system
        return False

    def again(self, system: str, *commands: str) -> Iterator[None]:
        del system, commands
        yield

    def host(self, system: str) -> Any:
        del system
        return SimpleNamespace(run=lambda _: SimpleNamespace(stdout=self.listed))


@pytest.fixture
def cluster() -> ModelCluster:
    cluster = ModelCluster()
    cluster.gpus.cards, cluster.gpus.memory = {"g1": 2, "g2": 2}, 81559
    for name, address in (("g1", "10.0.0.1"), ("g2", "10.0.0.3"), ("c1", "10.0.0.2")):
        cluster.add_node(name, address)
    return cluster


@dataclass
class Stage:
    """A cluster with a mode, and its checks."""

    cluster: ModelCluster
    folder: Path
    off: str = ""
    damage: Callable[[Inventory], None] = lambda _: None

    def run(self, check: str, mode: str, listed: str = MPS, image: str = IMAGE) -> None:
        inventory = load(self.folder, mode, TWO + image)
        apply(self.cluster, inventory)
        sharing = inventory.sharing
        assert sharing is not None
        self.damage(inventory)
        node = self.cluster.get("Node", self.off)
        if node is not None:
            down = [{"type": "Ready", "status": "Unknown"}]
            set_status(self.cluster.store, self.cluster.store.kind("Node"), node, {"conditions": down})
        bench = Bench(self.cluster)
        site = cast(Site, Bound(inventory, listed))
        module = next(module for module in MODULES if hasattr(module, check))
        function: Callable[..., None] = getattr(module, check)
        before = self.names()
        try:
            function(site, bench, sharing.mode)
        finally:
            bench.end()
        assert self.names() == before
        pods = self.cluster.store.listed(self.cluster.store.kind("Pod"))
        assert [pod for pod in pods if "verify" in pod["metadata"].get("namespace", "")] == []

    def names(self) -> set[str]:
        """Return what there is, but for nodes."""
        return {name for name in self.cluster.dump() if not name.startswith("Node ")}


@pytest.fixture
def stage(cluster: ModelCluster, tmp_path: Path) -> Stage:
    return Stage(cluster, tmp_path)


# check, mode, fault of the cluster, words of the check that is red for it
CASES = [
    ("test_slots_run_at_once", "time_slicing", "one-card", "1 of 2 cards"),
    ("test_slots_run_at_once", "mps", "all-cards", "sees 2 cards, and asked for one"),
    ("test_hami_gives_the_named_cards", "hami", "any-card", "named {"),
    ("test_hami_gives_the_named_cards", "hami", "no-webhook", "webhook is down"),
    ("test_hami_limits_memory", "hami", "no-cap", "capped: 81559 MiB"),
    ("test_hami_refuses", "hami", "no-limit", "all 1 pods of hami-much ran"),
    ("test_kai_gives_cards", "kai", "one-card", "had 1 cards"),
    ("test_kai_gives_cards", "kai", "no-card", "sees no card"),
    ("test_kai_places_a_gang_whole_or_not", "kai", "no-gang", "ran alone"),
    ("test_kai_limits_a_queue", QUEUES, "no-limit", "all 2 pods of kai-limit ran"),
    ("test_kai_takes_back_what_a_queue_lent", OWED, "no-reclaim", "kai-taking-all-0 stays Pending"),
    ("test_kai_puts_urgent_pods_first", "kai", "no-preemption", "kai-taking-all-0 stays Pending"),
    ("test_fractions_divide_a_card", "kai_fractions", "one-card", "pods a card"),
    ("test_fractions_divide_a_card", "kai_fractions", "no-env", "the limit is not set"),
    ("test_fractions_leave_the_third_pod_waiting", "kai_fractions", "no-limit", "ran"),
]
CHECKS = frozenset(case[0] for case in CASES)


@pytest.mark.parametrize(("check", "mode"), sorted({case[:2] for case in CASES}))
def test_a_mode_as_declared_is_proven(stage: Stage, check: str, mode: str) -> None:
    stage.run(check, mode)


@pytest.mark.parametrize(
    ("check", "mode", "fault", "words"), CASES, ids=[f"{case[0][5:]}-{case[2]}" for case in CASES]
)
def test_each_fault_turns_its_check_red(stage: Stage, check: str, mode: str, fault: str, words: str) -> None:
    stage.cluster.cards.faults.add(fault)
    with pytest.raises(AssertionError) as caught:
        stage.run(check, mode)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ("default 10.00\nkai_a 50.00\n", "lists 1 namespaces"),
        (MPS.replace("10.00", "100.00"), "has 100.00"),
        ("", "0"),
    ],
)
def test_the_mps_server_itself_is_asked(stage: Stage, listed: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        stage.run("test_fractions_divide_a_card", "kai_fractions", listed)


@pytest.mark.parametrize(("check", "mode"), sorted({case[:2] for case in CASES}))
def test_without_an_image_nothing_is_run(stage: Stage, check: str, mode: str) -> None:
    with pytest.raises(NotRun, match="no image"):
        stage.run(check, mode, image="")


def hold(cluster: ModelCluster, node: str, amount: str = "1", scheduler: str = "default-scheduler") -> None:
    """Run a pod of somebody else."""
    limits = {"limits": {"nvidia.com/gpu": amount} if amount != "0" else {}}
    containers = [{"name": "x", "resources": limits}]
    spec = {"nodeName": node, "schedulerName": scheduler, "containers": containers}
    metadata = {"name": f"busy-{node}", "namespace": "lab", "labels": {}}
    cluster.store.seed({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def test_cards_that_others_hold_are_left_to_them(stage: Stage) -> None:
    for node in ("g1", "g2"):
        hold(stage.cluster, node)
    with pytest.raises(NotRun, match="others hold the cards"):
        stage.run("test_kai_gives_cards", "kai")


ALL = sorted({case[:2] for case in CASES})


@pytest.mark.parametrize(("check", "mode"), ALL)
def test_a_node_that_never_joined_is_not_counted(stage: Stage, check: str, mode: str) -> None:
    stage.cluster.store.delete(stage.cluster.store.kind("Node"), ("", "g2"))
    with suppress(Trivial):
        stage.run(check, mode)


@pytest.mark.parametrize(("check", "mode"), ALL)
def test_a_node_that_is_off_is_not_counted(stage: Stage, check: str, mode: str) -> None:
    stage.off = "g2"
    with suppress(Trivial):
        stage.run(check, mode)


def test_a_gang_is_larger_than_all_that_is_free_also_beside_other_pods(stage: Stage) -> None:
    hold(stage.cluster, "g1")
    stage.run("test_kai_places_a_gang_whole_or_not", "kai")


@pytest.mark.parametrize(
    ("check", "mode"),
    [("test_kai_takes_back_what_a_queue_lent", OWED), ("test_kai_puts_urgent_pods_first", "kai")],
)
@pytest.mark.parametrize("amount", ["0", "1"])
def test_nobody_elses_pod_can_lose_its_card(stage: Stage, check: str, mode: str, amount: str) -> None:
    hold(stage.cluster, "c1", amount=amount, scheduler="kai-scheduler")
    with pytest.raises(NotRun, match="lab/busy-c1 could lose its card"):
        stage.run(check, mode)


def test_pods_that_keep_their_cards_longer_than_a_check_are_left_alone(stage: Stage) -> None:
    mode = OWED.replace("lends: {", "lends: { reclaim_min_runtime: 3600,")
    with pytest.raises(NotRun, match="keep their cards for 3600 s"):
        stage.run("test_kai_takes_back_what_a_queue_lent", mode)


def test_what_cannot_be_compared_is_said(stage: Stage) -> None:
    with pytest.raises(Trivial, match="no queue has a limit"):
        stage.run("test_kai_limits_a_queue", "kai")
    del stage.cluster.gpus.cards["g2"]
    kind = stage.cluster.store.kind("Node")
    stage.cluster.store.delete(kind, ("", "g2"))
    with pytest.raises(Trivial, match="no second node"):
        stage.run("test_hami_refuses", "hami")


def test_another_mode_declares_nothing(stage: Stage) -> None:
    for check in sorted(CHECKS):
        with pytest.raises(NotDeclared):
            stage.run(check, "none")


BREAKABLE = [
    ("test_kai_limits_a_queue", QUEUES, "all 2 pods of kai-limit ran"),
    ("test_kai_takes_back_what_a_queue_lent", OWED, "stays Pending"),
    ("test_hami_gives_the_named_cards", "hami", "webhook is down"),
]


@pytest.mark.parametrize(("check", "mode", "words"), BREAKABLE)
def test_what_is_broken_on_purpose_turns_its_check_red(
    stage: Stage, check: str, mode: str, words: str
) -> None:
    def damage(inventory: Inventory) -> None:
        found = damages.DAMAGES[check](inventory, "cluster")
        assert found is not None
        stage.cluster.controllers[:] = [stage.cluster.pods, end_namespaces]
        action = Action(None, "break", ApiCall((Request(found.method, found.path, found.data),)))
        (result,) = stage.cluster.driver().act("run", [action], [], lambda _: None, Cancel())
        assert result.verdict is Verdict.DONE, result

    stage.run(check, mode)
    stage.damage = damage
    with pytest.raises(AssertionError, match=words):
        stage.run(check, mode)


def test_every_check_by_pods_has_a_fault() -> None:
    functions = (pair for module in MODULES for pair in inspect.getmembers(module, inspect.isfunction))
    assert {name for name, _ in functions if name.startswith("test_")} == CHECKS


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        ('[{"id": "GPU-a", "devmem": 24576}]', {"GPU-a": 24576}),
        (
            "GPU-a,10,24576,100,NVIDIA-X,0,true:GPU-b,10,81559,100,NVIDIA-X,0,true:",
            {"GPU-a": 24576, "GPU-b": 81559},
        ),
        ("", {}),
        ("{", {}),
        ("GPU-a,10,many,100:", {}),
        ("[1]", {}),
    ],
)
def test_cards_that_hami_registers_are_read_in_both_forms(text: str, cards: dict[str, int]) -> None:
    body = {"metadata": {"annotations": {test_sharing_pods.REGISTER: text}}}
    assert test_sharing_pods.registered(card_pods.GpuNode("g", "g", 1, body)) == cards
