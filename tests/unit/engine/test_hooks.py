"""Effects on machines reach the cluster: drained before, waited for and uncordoned after, never too many."""

from __future__ import annotations

from provision.engine.environment import Options
from provision.kube.kube_effects import DRAIN
from provision.values.consent import Consent
from tests.unit.engine.cluster import API, REBOOT, Cluster, driver_role
from tests.unit.engine.fakes import FakeSite

FOUR = dict.fromkeys(("n1", "n2", "n3", "n4"), True)
ROLLED = ["cordon {0}=provision", "pods {0}=0", "down {0}", "up {0}", "cordon {0}="]


def rolled(name: str) -> list[str]:
    """Return what happens to a node that is drained, rebooted and taken back."""
    return [event.format(name) for event in ROLLED]


def lines(site: FakeSite) -> list[str]:
    """Return what was told about steps."""
    return [event.line for event in site.events if hasattr(event, "line")]


def test_nodes_are_drained_rebooted_and_uncordoned_one_at_a_time() -> None:
    cluster = Cluster(FOUR, servers=("n1", "n2", "n3"))
    site = cluster.site(driver_role())
    report = site.apply()
    assert report.exit_code == 0, report
    assert cluster.history == [event for name in FOUR for event in rolled(name)]
    assert cluster.most_away == 1
    assert site.plan().plan.empty
