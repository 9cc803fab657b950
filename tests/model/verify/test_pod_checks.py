"""Checks that run pods, as a user meets them: reported, left out, beside other people's pods, and gone."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

from provision.api import Options, past_runs
from provision.contracts.check import Figure
from provision.verify.model import CheckOutcome, CheckResult, VerifyReport
from tests.model.model_site import ModelSite
from tests.model.verify.cluster_damages import NODE

CARDS = "test_cards_compute_in_pods"
POD_CHECKS = {
    CARDS,
    "test_pods_that_ask_for_none_see_no_card",
    "test_pods_may_lock_memory",
    "test_dcgm_diagnostics_pass",
}


def by_check(report: VerifyReport) -> dict[str, CheckResult]:
    return {check.check: check for check in report.checks if check.subject == NODE}


def made(site: ModelSite, since: int) -> set[str]:
    """Return what was sent to the cluster that changes something."""
    sent = site.cluster.requests[since:]
    return {
        f"{request.method} {request.path.partition('?')[0]}" for request in sent if request.method != "GET"
    }


def test_pods_are_reported_with_figures_and_nothing_of_them_remains(site: ModelSite, tmp_path: Path) -> None:
    before, since = site.cluster.dump(), len(site.cluster.requests)
    file = tmp_path / "junit.xml"
    report = site.verify(Options(junit=file))
    check = by_check(report)[CARDS]
    assert check.outcome is CheckOutcome.PROVEN
    assert check.figures == (Figure("cards that computed", 1, "", 1.0),)
    assert check.message == "cards that computed: 1 (expected 1)"
    cases = ET.parse(file).iter("testcase")  # noqa: S314 - our own file
    case = next(case for case in cases if case.get("name") == check.name)
    properties = {row.get("name"): row.get("value") for row in case.iter("property")}
    assert properties["cards that computed.value"] == "1"
    assert properties["cards that computed.expected"] == "1.0"
    assert site.cluster.dump() == before
    sent = made(site, since)
    assert {text.partition(" ")[0] for text in sent} == {"POST", "DELETE"}
    assert all("provision-verify-" in text or text.startswith("POST") for text in sent)
    last = past_runs.runs(site.state / "journal.sqlite")[0]["id"]
    kept = past_runs.run(site.state / "journal.sqlite", last)
    assert kept is not None
    assert {json.loads(row["what"])[0] for row in kept["intents"]} == sent


def test_without_pods_their_checks_are_not_run(site: ModelSite) -> None:
    since = len(site.cluster.requests)
    results = by_check(site.verify(Options(pods=False)))
    left_out = {name for name, check in results.items() if check.outcome is CheckOutcome.NOT_RUN}
    assert left_out == POD_CHECKS
    assert "--no-pods" in results[CARDS].message
    assert made(site, since) == set()


def test_cards_that_others_hold_are_not_run_and_nobody_is_evicted(site: ModelSite) -> None:
    container = {"name": "engine", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "engine", "namespace": "default"},
        "spec": {"nodeName": NODE, "containers": [container]},
        "status": {"phase": "Running"},
    }
    site.cluster.store.seed(body)
    results = by_check(site.verify())
    assert results[CARDS].outcome is CheckOutcome.NOT_RUN
    assert "default/engine" in results[CARDS].message
    assert "default/engine" in results["test_dcgm_diagnostics_pass"].message
    assert results["test_pods_that_ask_for_none_see_no_card"].outcome is CheckOutcome.PROVEN
    assert site.cluster.get("Pod", "engine", "default") is not None
