"""An upgrade of k3s node by node, verified before and after each against what was proven before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from provision.api import Options, Site, baseline
from provision.api.check_session import Answers
from provision.contracts.query import ApiGet
from provision.engine.model import RunReport
from provision.k3s import paths
from provision.kube.names import API
from provision.verify.model import CheckOutcome, CheckResult, VerifyReport
from tests.model.k3s_site import TRIO, K3sSite

ENDPOINT = ", endpoint: 198.51.100.100"
CERTIFICATE = f"{paths.DATA}/server/tls/serving-kube-apiserver.crt"
ONE = "  s1: { address: 198.51.100.1, k3s: server }\n"


class Upgraded(K3sSite):
    """A cluster that is changed by the careful playbook; one check looks at the certificates of servers."""

    playbook = "site"

    def site(self) -> Site:
        return Site(self.inventory, self.playbook, self.state, self.open, self.verifier)

    def certificates(
        self, _answers: Answers, _away: object, _options: Options, tell: Callable[[CheckResult], None]
    ) -> VerifyReport:
        results = []
        for name in ("s1", "s2", "s3"):
            is_valid = self.text(name, CERTIFICATE) == "valid"
            outcome = CheckOutcome.PROVEN if is_valid else CheckOutcome.FAILED
            results.append(CheckResult("certificate", name, outcome, "", check="test_certificate"))
            tell(results[-1])
        return VerifyReport(tuple(results))


def careful(site: Upgraded, folder: Path, nodes: str, more: str) -> Upgraded:
    """Build a cluster, and declare another configuration for it."""
    report = site.apply()
    assert report.exit_code == 0
    site.playbook = "upgrade-k3s"
    site.declare(folder, nodes, more + ", config: { kubelet-arg: [v=1] }")
    return site


@pytest.fixture
def trio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upgraded:
    monkeypatch.setattr(baseline, "SETTLING", (0.0,))
    site = careful(Upgraded(tmp_path, TRIO, ENDPOINT), tmp_path, TRIO, ENDPOINT)
    site.verifier = site.certificates
    return site


def spoil(site: Upgraded, name: str, content: bytes) -> None:
    site.hosts[f"{name}/ssh"].state.files[CERTIFICATE].content = content


def break_at_restart(site: Upgraded, name: str) -> None:
    """Let k3s of a server come back from its restart with a certificate that ends soon."""
    log = site.life.log

    class Log(list[str]):
        def append(self, what: str, /) -> None:
            log.append(what)
            if what.startswith(f"{name}/ssh") and "restart-k3s" in what:
                spoil(site, name, b"ends soon")

    site.life.log = Log()


def ended(report: RunReport) -> dict[str, str]:
    return {str(step.id): str(step.outcome) for step in report.steps}


def test_an_upgrade_that_ends_well_leaves_no_baseline(trio: Upgraded) -> None:
    report = trio.apply()
    assert report.exit_code == 0, [d for step in report.steps for d in step.diagnostics]
    assert not (trio.state / "cluster" / "baseline.json").exists()
    assert trio.plan().empty


def test_a_node_that_got_worse_stops_the_upgrade_with_the_way_back(trio: Upgraded) -> None:
    break_at_restart(trio, "s2")
    report = trio.apply()
    assert report.exit_code == 1, "steps are blocked"
    steps = ended(report)
    names = ("s2: k3s_server", "s3: k3s_server", "a1: k3s_agent")
    assert [steps[name] for name in names] == ["changed", "blocked", "blocked"]
    (problem,) = [d for step in report.steps for d in step.diagnostics if d.code == "CHECKPOINT_FAILED"]
    assert problem.subject == "s2"
    assert "restore a snapshot" in problem.remedy
    assert problem.evidence == ("s2: certificate: failed",)
    assert ended(trio.apply())["s3: k3s_server"] == "blocked", "s2 is still worse, and s3 is another node"
    spoil(trio, "s2", b"valid")
    assert ended(trio.apply())["a2: k3s_agent"] == "changed"


def test_what_failed_before_the_upgrade_does_not_stop_it(trio: Upgraded) -> None:
    spoil(trio, "s1", b"ends soon")
    report = trio.apply()
    assert ended(report)["a2: k3s_agent"] == "changed"
    assert "1 failed already" in next(step.reason for step in report.steps if "before" in str(step.id))


def test_the_node_at_which_an_upgrade_stopped_may_be_changed_again(trio: Upgraded, tmp_path: Path) -> None:
    break_at_restart(trio, "s1")
    assert ended(trio.apply())["s2: k3s_server"] == "blocked"
    trio.declare(tmp_path, TRIO, ENDPOINT + ", config: { kubelet-arg: [v=2] }")
    steps = ended(trio.apply())
    assert (steps["s1: k3s_server"], steps["s2: k3s_server"]) == ("changed", "blocked")


def test_a_dead_agent_does_not_stop_an_upgrade(trio: Upgraded) -> None:
    trio.silent = {"a1"}
    steps = ended(trio.apply())
    assert (steps["a1: k3s_agent"], steps["a2: k3s_agent"]) == ("unreached", "changed")


def test_the_real_checks_see_what_a_restart_has_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baseline, "SETTLING", ())
    site = careful(Upgraded(tmp_path, ONE), tmp_path, ONE, "")
    site.verifier = None
    break_at_restart(site, "s1")
    report = site.apply()
    (problem,) = [d for step in report.steps for d in step.diagnostics if d.code == "CHECKPOINT_FAILED"]
    assert any("certificate" in line for line in problem.evidence)


def test_checks_after_a_run_do_not_take_what_an_api_said_before_it(tmp_path: Path) -> None:
    """The answer was asked in advance, and the restart that changes it happened on a node, not on the API."""
    site = Upgraded(tmp_path, ONE)
    question, seen = ApiGet("/api/v1/nodes/s1"), []

    def look(answers: Answers, *_: object) -> VerifyReport:
        seen.append("v=1" in answers.ask(API, [question])[question].text)
        return VerifyReport(())

    site.verifier = look
    assert site.apply().exit_code == 0
    assert site.apply().exit_code == 0
    site.declare(tmp_path, ONE, ", config: { kubelet-arg: [v=1] }")
    assert site.apply().exit_code == 0
    assert seen == [False, False, True]


def test_a_kept_baseline_that_is_garbage_is_none(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    for text in ("", "[]", "{}", '{"claims": {"a": "b"}, "subject": 1}', '{"claims": [], "subject": ""}'):
        file.write_text(text)
        assert baseline.Baseline(file, "").read() is None
