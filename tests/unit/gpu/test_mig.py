"""MIG under the GPU Operator: labels, what the manager answers, and what excludes it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from provision.api.domains import load_inventory
from provision.api.support import unsupported
from provision.contracts.change import Settles
from provision.contracts.check import Site
from provision.contracts.remedy import ApiCall
from provision.contracts.resource import remedy_of
from provision.contracts.rule import Evidence
from provision.contracts.snapshot import Snapshot
from provision.gpu.checks import test_gpu_cluster as gpu_checks
from provision.gpu.operator_values import operator_values
from provision.gpu.queries import CardStatus, GpuState, GpuStatus
from provision.gpu.resources.mig import CONFIG, STATE, MigConfig
from provision.gpu.resources.stack import GpuStack
from provision.gpu.words import Meaning
from provision.inventory import Inventory
from provision.kube.values import unknown_paths
from provision.sharing.card_preflight import cards as judged
from provision.sharing.card_preflight import evidence, problems
from provision.testing.model_cluster import ModelCluster
from provision.values.diagnostics import Diagnostic
from provision.values.errors import UsageError
from tests.unit.gpu.test_operator import CHARTS, SITE, cluster, resources
from tests.unit.kube.site import ask, bring, changes, problem, read_yaml

__all__ = ["cluster"]
MIG = "v26.3.3, mig: { strategy: mixed, profiles: { g1: all-1g.10gb } }"


def load(folder: Path, operator: str = MIG, more: str = "") -> Inventory:
    path = folder / "site.yaml"
    path.write_text(SITE.replace("v26.3.3", operator) + more)
    return load_inventory(path, environ={})


def mig_of(cluster: ModelCluster, inventory: Inventory) -> MigConfig:
    (mig,) = [item for item in resources(cluster, inventory) if isinstance(item, MigConfig)]
    return mig


def test_cards_are_divided_after_consent_and_then_left_alone(cluster: ModelCluster, tmp_path: Path) -> None:
    inventory = load(tmp_path)
    bring(cluster, *resources(cluster, inventory)[:2])
    mig = mig_of(cluster, inventory)
    assert [(change.path, change.new) for change in changes(cluster, mig)] == [("g1", "all-1g.10gb")]
    remedy = remedy_of(mig, ask(cluster, *mig.queries()))
    assert isinstance(remedy, ApiCall)
    assert [str(risk) for risk in remedy.risks] == ["gpu-pods-lose-device"]
    bring(cluster, mig)
    assert changes(cluster, mig) == ()
    (stack,) = [item for item in resources(cluster, inventory) if isinstance(item, GpuStack)]
    assert changes(cluster, stack) == (), "the number of parts is not that of the cards"
    values = operator_values(inventory)
    assert (values["mig"], values["migManager"]) == ({"strategy": "mixed"}, {"enabled": True})
    assert unsupported(inventory) == ()


@pytest.mark.parametrize(("state", "settles"), [("failed", Settles.NOW), ("pending", Settles.WITHIN)])
def test_a_manager_that_fails_is_told_from_one_that_works(
    cluster: ModelCluster, tmp_path: Path, state: str, settles: Settles
) -> None:
    inventory = load(tmp_path)
    bring(cluster, *resources(cluster, inventory)[:2])
    mig = mig_of(cluster, inventory)
    bring(cluster, mig)
    node = cluster.get("Node", "g1")
    assert node is not None
    assert node["metadata"]["labels"][CONFIG] == "all-1g.10gb"
    node["metadata"]["labels"][STATE] = state
    assert [change.settles for change in changes(cluster, mig)] == [settles]
    assert problem(cluster, mig) == "MIG_NOT_APPLIED"


@pytest.mark.parametrize("chart", ["gpu-operator-26.3.3-values.yaml", "gpu-operator-values.yaml"])
def test_the_chart_knows_the_values_of_mig(tmp_path: Path, chart: str) -> None:
    if not CHARTS.exists():
        pytest.skip("../shared is absent")
    defaults = read_yaml(CHARTS / chart)
    assert list(unknown_paths(operator_values(load(tmp_path)), defaults)) == []


@pytest.mark.parametrize(
    ("config", "state", "amount", "words"),
    [
        ("all-1g.10gb", "success", "14", ""),
        ("all-1g.10gb", "failed", "14", "says failed"),
        ("all-1g.10gb", None, "14", "says nothing"),
        ("all-2g.20gb", "success", "14", "was not asked"),
        ("all-1g.10gb", "success", "0", "no part of a card"),
    ],
)
def test_the_check_of_divided_cards_is_red_for_what_is_not_so(
    tmp_path: Path, config: str, state: str | None, amount: str, words: str
) -> None:
    labels = {CONFIG: config, **({STATE: state} if state else {})}
    offers = {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": amount}
    body = {"metadata": {"labels": labels}, "status": {"allocatable": offers}}
    site = cast(Site, SimpleNamespace(inventory=load(tmp_path)))
    if not words:
        gpu_checks.test_gpus_are_allocatable(site, "g1", body)
        return
    with pytest.raises(AssertionError, match=words):
        gpu_checks.test_gpus_are_allocatable(site, "g1", body)


@pytest.mark.parametrize(
    ("operator", "more", "words"),
    [
        (MIG, "sharing: { mode: mps, slots_per_card: 2 }\n", "mps excludes MIG"),
        (MIG, "sharing: { mode: hami, version: v1 }\n", "hami excludes MIG"),
        (MIG, "sharing: { mode: kai, version: v1, fractions: true }\n", "kai with fractions excludes MIG"),
        (MIG.replace("g1:", "c1:"), "", "c1 has no GPUs"),
        (MIG.replace("g1:", "gx:"), "", "no node 'gx'"),
        (MIG.replace("all-1g.10gb", "1g.10gb"), "", "like all-1g.10gb"),
    ],
)
def test_what_excludes_mig_is_refused(tmp_path: Path, operator: str, more: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, operator, more)
    assert words in str(caught.value)


@pytest.mark.parametrize("more", ["sharing: { mode: none }\n", "sharing: { mode: kai, version: v1 }\n"])
def test_parts_go_with_modes_that_do_not_divide(tmp_path: Path, more: str) -> None:
    assert load(tmp_path, MIG, more).sharing is not None


def card(name: str = "NVIDIA H100", memory: Any = 81559, mig: Any = "Enabled") -> CardStatus:
    return CardStatus("0000:01:00.0", 0, name, "GPU-a", memory, mig=mig)


HAMI = "sharing: { mode: hami, version: v1 }\n"
FRACTIONS = "sharing: { mode: kai, version: v1, fractions: true }\n"
SPARK = card("NVIDIA GB10", Meaning.NOT_APPLICABLE, Meaning.NOT_APPLICABLE)
CARDS = [
    ("v1", HAMI, (card(),), []),
    ("v1", HAMI, (SPARK,), ["GPU_MEMORY_UNIFIED"]),
    ("v1", FRACTIONS, (SPARK,), ["GPU_MEMORY_UNIFIED"]),
    ("v1", "", (SPARK,), []),
    ("v1", HAMI, (card(memory=Meaning.UNKNOWN),), []),
    ("v1", HAMI, (card(), card("NVIDIA L4")), []),
    ("v1", FRACTIONS, (card(), card("NVIDIA L4")), ["GPU_MODELS_MIXED"]),
    (MIG, "", (card(), card("NVIDIA L4")), ["GPU_MODELS_MIXED"]),
    (MIG, "", (card(mig=Meaning.NOT_APPLICABLE),), ["MIG_UNSUPPORTED"]),
    (MIG.replace("all-1g.10gb", "all-disabled"), "", (card(mig=Meaning.NOT_APPLICABLE),), []),
]


@pytest.mark.parametrize(("operator", "more", "cards", "codes"), CARDS)
def test_cards_that_a_mode_cannot_use_are_refused(
    tmp_path: Path, operator: str, more: str, cards: tuple[CardStatus, ...], codes: list[str]
) -> None:
    inventory = load(tmp_path, operator, more)
    assert [code for code, _, _ in problems(inventory, "g1", cards)] == codes
    asked = evidence(inventory)
    snapshot = Snapshot("g1/ssh", answers={GpuState(): GpuStatus(cards=cards)})
    found = judged(Evidence(inventory, {"g1/ssh": snapshot}, ()))
    assert [each.code for each in found if isinstance(each, Diagnostic)] == codes
    assert not codes or asked == {"g1/ssh": (GpuState(),)}
