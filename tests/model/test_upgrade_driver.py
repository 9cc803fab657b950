"""Another GPU driver node by node: drained, booted and verified before the next node is touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from provision.api import Options, Site, baseline
from provision.api.check_session import Answers
from provision.engine.model import RunReport
from provision.hosts.resources.pci import PciFunction
from provision.testing.model_gpu import archive_drivers
from provision.testing.model_host import ModelFunction
from provision.verify.model import CheckOutcome, CheckResult, VerifyReport
from tests.model.k3s_site import K3sSite

OLD, NEW = "580.159.04", "580.178.04"
NODES = """
  a1: { address: 198.51.100.11, k3s: agent, gpu_cards: { count: 1 } }
  s1: { address: 198.51.100.1, k3s: server, gpu_cards: { count: 1 } }
"""
TAIL = "gpu: {{ driver: {{ origin: debian, version: {} }} }}\n"
ALLOW = Options(allow=frozenset({"drain", "reboot-node"}))


class Driven(K3sSite):
    """A cluster whose machines have a card; one check says which driver each of them has loaded."""

    playbook = "site"
    broken = ""
    seen: list[tuple[str, ...]]

    def site(self) -> Site:
        return Site(self.inventory, self.playbook, self.state, self.open, self.verifier)

    def loaded(self) -> tuple[str, ...]:
        """Return the driver that runs on the server, and that on the agent."""
        return tuple(self.hosts[f"{name}/ssh"].state.loaded_driver for name in ("s1", "a1"))

    def checks(
        self, _answers: Answers, _away: object, _options: Options, tell: Callable[[CheckResult], None]
    ) -> VerifyReport:
        self.seen.append(self.loaded())
        is_broken = self.broken and self.hosts[f"{self.broken}/ssh"].state.loaded_driver == NEW
        outcome = CheckOutcome.FAILED if is_broken else CheckOutcome.PROVEN
        result = CheckResult("cards answer", "s1", outcome, "", check="test_cards")
        tell(result)
        return VerifyReport((result,))


@pytest.fixture
def driven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driven:
    monkeypatch.setattr(baseline, "SETTLING", (0.0,))
    site = Driven(tmp_path, NODES, tail=TAIL.format(OLD))
    site.seen = []
    for host in site.hosts.values():
        card = PciFunction("0000:01:00.0", "10de", "2204", "030200")
        host.state.functions = [ModelFunction(card, ("nouveau",), "nouveau")]
        archive_drivers(host.state, "debian", NEW, OLD)
    report = site.apply(ALLOW)
    assert report.exit_code == 0, problems(report)
    site.declare(tmp_path, NODES, tail=TAIL.format(NEW))
    site.playbook, site.verifier = "upgrade-driver", site.checks
    return site


def problems(report: RunReport) -> list[str]:
    return [f"{d.code} {d.summary} {d.evidence}" for step in report.steps for d in step.diagnostics]


def test_the_server_comes_first_and_every_node_is_verified_after_its_boot(driven: Driven) -> None:
    report = driven.apply(ALLOW)
    assert report.exit_code == 0, problems(report)
    assert list(dict.fromkeys(driven.seen)) == [(OLD, OLD), (NEW, OLD), (NEW, NEW)]
    assert {"drain:before", "drain:after"} <= {step.id.role for step in report.steps}
    for name in ("s1", "a1"):
        node = driven.cluster.get("Node", name)
        assert node is not None
        assert not node["spec"].get("unschedulable")
    assert driven.plan().empty


def test_a_node_that_got_worse_leaves_the_others_their_driver(driven: Driven) -> None:
    driven.broken = "s1"
    report = driven.apply(ALLOW)
    assert report.exit_code == 1
    assert driven.loaded() == (NEW, OLD)
    (problem,) = [d for step in report.steps for d in step.diagnostics if d.code == "CHECKPOINT_FAILED"]
    assert (problem.subject, "gpu.driver.version" in problem.remedy) == ("s1", True)
