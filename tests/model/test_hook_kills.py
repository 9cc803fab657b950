"""The controller dies at every boundary of a rolling change of a cluster; the next run finishes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from provision.contracts.effect import Effect
from provision.engine import scheduler
from provision.k3s.k3s_effects import RESTART_K3S
from tests.unit.engine.cluster import API, Cluster, driver_role
from tests.unit.engine.fake_hosts import Item, KilledError
from tests.unit.engine.fakes import FakeRole, FakeSite, on_own

FOUR = ("n1", "n2", "n3", "n4")


def reboots() -> tuple[Cluster, FakeSite]:
    """Four nodes that reboot, three of them servers."""
    cluster = Cluster(dict.fromkeys(FOUR, True), servers=("n1", "n2", "n3"))
    return cluster, cluster.site(driver_role())


def restarts() -> tuple[Cluster, FakeSite]:
    """A step whose second half restarts the agent, then a reboot."""
    restart = (Effect(RESTART_K3S),)
    config = FakeRole(
        "config",
        lambda context: [
            Item(f"{context.subject.name}/ssh", "first", "1"),
            Item(f"{context.subject.name}/ssh", "config", "1", risks=restart),
        ],
        on_own(),
        subjects=frozenset({"n2", "n3"}),
    )
    cluster = Cluster(dict.fromkeys(FOUR, True))
    return cluster, cluster.site(config, driver_role("n3"))


def machines(site: FakeSite) -> dict[str, object]:
    """Return what is on all machines; where pods run is the cluster's own business."""
    return {name: dump for name, dump in site.dump().items() if name != API}


@pytest.mark.parametrize("make", [reboots, restarts])
def test_a_run_that_is_killed_anywhere_leaves_no_cordon_for_long(
    make: Callable[[], tuple[Cluster, FakeSite]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "WORKERS", 1)  # a killed process has no other threads that go on
    _, whole = make()
    assert whole.apply().exit_code == 0
    left_cordoned = 0
    for boundary in range(1, whole.boundaries + 1):
        cluster, site = make()
        site.kill_at = boundary
        with pytest.raises(KilledError):
            site.apply()
        halfway = f"killed at boundary {boundary}, after {cluster.history}"
        left_cordoned += bool(cluster.away())
        assert site.apply().exit_code == 0, halfway
        assert cluster.away() == set(), halfway
        assert cluster.most_away == 1, halfway
        assert site.plan().plan.empty, halfway
        assert machines(site) == machines(whole), halfway
        assert cluster.undrained == [], halfway
    assert left_cordoned > 8
