"""What pods on cards have printed becomes a verdict: every card once, and none of another node."""

from __future__ import annotations

import json

import pytest

from provision.gpu.checks.test_gpu_pods import diagnosed, judged, trial_name
from provision.kube.checks.pods import PodEnd

A, B = "GPU-00000001-0000-4000-8000-000000000001", "GPU-00000002-0000-4000-8000-000000000002"
PASSED = "[Vector addition of 50000 elements]\nTest PASSED\nDone\nvectoradd 0\n"
FAILED = (
    "[Vector addition of 50000 elements]\n"
    "Failed to allocate device vector A (error code CUDA driver version is insufficient for CUDA runtime"
    " version)!\n"
    "vectoradd 1\n"
)


def end(number: int, *uuids: str, text: str = PASSED) -> PodEnd:
    return PodEnd("card", f"p{number}", "a", None, "".join(f"uuid {uuid}\n" for uuid in uuids) + text)


@pytest.mark.parametrize(
    ("ends", "shares", "problems", "seen"),
    [
        ([end(0, A), end(1, B)], 1, [], {A, B}),
        ([end(0, A), end(1, A)], 1, [f"{A} was given to 2 pods"], {A}),
        ([end(0, A), end(1, A), end(2, B)], 2, [], {A, B}),
        ([end(0, A, B)], 1, ["p0 sees 2 cards, not one"], {A}),
        ([end(0)], 1, ["p0 sees 0 cards, not one"], set()),
        ([end(0, "GPU-other")], 1, ["GPU-other is not a card of the node"], {"GPU-other"}),
        ([end(0, A, text="")], 1, ["p0: vectorAdd ended with missing"], set()),
        (
            [end(0, A, text=FAILED)],
            1,
            [f"p0: vectorAdd ended with 1: {FAILED.splitlines()[1]}"],
            set(),
        ),
    ],
)
def test_pods_prove_cards_by_uuid_and_by_computing(
    ends: list[PodEnd], shares: int, problems: list[str], seen: set[str]
) -> None:
    assert judged(ends, frozenset({A, B}), shares) == (problems, seen)


def test_without_the_nodes_own_list_pods_are_compared_among_themselves() -> None:
    assert judged([end(0, "GPU-x"), end(1, "GPU-y")], frozenset(), 1) == ([], {"GPU-x", "GPU-y"})


RESULT = {"name": "Denylist", "results": [{"status": "PASS"}]}
SKIPPED = {"name": "PCIe", "results": [{"gpu_id": "0", "status": "Skip", "warnings": "not allowed"}]}
FAULTY = {
    "name": "Memory",
    "results": [{"entity_group": "GPU", "entity_id": 1, "status": "Fail", "warnings": [{"warning": "ECC"}]}],
}


@pytest.mark.parametrize("root", ["DCGM GPU Diagnostic", "DCGM Diagnostic"])
def test_diagnostics_of_both_forms_are_read(root: str) -> None:
    categories = [{"category": "x", "tests": [RESULT, SKIPPED]}, {"category": "y", "tests": [FAULTY]}]
    log = f"Successfully ran\n{json.dumps({root: {'test_categories': categories}})}\ndcgmi 0\n"
    assert list(diagnosed(log)) == [
        ("Denylist", "pass", ""),
        ("PCIe", "skip", "not allowed"),
        ("Memory", "fail", "ECC"),
    ]


@pytest.mark.parametrize(
    "log",
    [
        "",
        "{",
        "}{",
        "dcgmi: command not found",
        "[]",
        "{}",
        '{"DCGM Diagnostic": 3}',
        '{"DCGM Diagnostic": []}',
    ],
)
def test_what_is_no_result_of_diagnostics_says_nothing(log: str) -> None:
    assert list(diagnosed(log)) == []


def test_names_of_trials_fit_into_labels() -> None:
    name = trial_name("cuda", "a-node.with.a.name-that-is-longer-than-any-label-takes.example")
    assert len(name) <= 40
    assert name[-1].isalnum()
    assert "." not in name
