"""The cluster's lock: one run at a time, and a dead one does not hold it for ever."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from provision.kube import lease
from provision.kube.lease import LeaseHold, hold_lease
from provision.lab.kube.store import Write
from provision.testing.model_cluster import ModelCluster
from provision.values.cancel import Cancel
from provision.values.errors import ProvisionError
from provision.values.outcomes import ExitCode


@dataclass
class Renewing(Cancel):
    """While somebody waits, the holder renews its lock."""

    hold: LeaseHold

    def __post_init__(self) -> None:
        super().__init__()

    def wait(self, seconds: float) -> None:
        assert seconds > 0
        self.hold._write("run-1 me@here")


def take(cluster: ModelCluster, run: str = "run-1", cancel: Cancel | None = None) -> LeaseHold:
    return hold_lease(cluster.connect(), run, "me@here", "cluster/api", cancel or Cancel())


def holder(cluster: ModelCluster) -> str:
    held = cluster.get("Lease", lease.NAME, lease.NAMESPACE)
    assert held is not None
    return str(held["spec"]["holderIdentity"])


def test_one_run_holds_it_and_names_itself() -> None:
    cluster = ModelCluster()
    hold = take(cluster)
    assert hold.alive
    assert holder(cluster) == "run-1 me@here"
    with pytest.raises(ProvisionError, match="run-1 me@here") as caught:
        take(cluster, "run-2", Renewing(hold))
    assert caught.value.exit_code is ExitCode.LOCKED
    hold.release()
    hold.release()
    assert not hold.alive
    take(cluster, "run-2").release()


def test_a_lock_without_a_sign_of_life_is_taken_over() -> None:
    cluster = ModelCluster()
    dead = take(cluster)
    dead._ended.set()  # killed: it neither renews nor frees it
    kind, place = cluster.store.kind("Lease"), (lease.NAMESPACE, lease.NAME)
    held = cluster.store.get(kind, place)
    assert held is not None
    spec = {**held["spec"], "renewTime": "2026-01-01T00:00:00.000000Z"}
    cluster.store.update(kind, place, {**held, "spec": spec}, Write("x"))
    hold = take(cluster, "run-2")
    assert holder(cluster) == "run-2 me@here"
    hold.release()


@pytest.mark.parametrize("skew", [-3600, -60, 0, 31, 60, 240])
def test_a_living_lock_is_not_taken_when_clocks_differ(skew: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ModelCluster()
    hold = take(cluster)
    now = time.time()
    monkeypatch.setattr("provision.kube.lease.time.time", lambda: now + skew)  # of the second controller
    with pytest.raises(ProvisionError, match="run-1 me@here"):
        take(cluster, "run-2", Renewing(hold))
    hold.release()


def test_a_hold_that_lost_its_lock_does_not_take_it_back() -> None:
    cluster = ModelCluster()
    hold = take(cluster)
    kind, place = cluster.store.kind("Lease"), (lease.NAMESPACE, lease.NAME)
    held = cluster.store.get(kind, place)
    assert held is not None
    cluster.store.update(
        kind, place, {**held, "spec": {**held["spec"], "holderIdentity": "other"}}, Write("x")
    )
    assert hold._write("run-1 me@here") is False
    hold.release()
    assert holder(cluster) == "other"
