"""Switches between sharing modes on a cluster in memory: all of them, and killed at their writes."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from provision.sharing import names
from provision.sharing.fractions import CONFIG_CRD
from provision.sharing.preflight import foreign
from provision.testing.model_cluster import ModelCluster
from tests.unit.sharing.test_gpu_sharing import MODES, apply, cluster, left, load, seen

__all__ = ["cluster"]
OFFERED = {"none": "2", "time_slicing": "8", "mps": "8", "hami": "10", "kai": "2", "kai_fractions": "2"}


class Plugins:
    """Notes after each write which device plugins there are."""

    def __init__(self, cluster: ModelCluster) -> None:
        self.cluster = cluster
        self.both = False
        cluster.on_write = self.look

    def look(self, _text: str) -> None:
        kind = self.cluster.store.kind("DaemonSet")
        plugins = {body["metadata"]["name"] for body in self.cluster.store.listed(kind)}
        self.both |= len(plugins & {"nvidia-device-plugin-daemonset", "hami-device-plugin"}) > 1


def offered(cluster: ModelCluster) -> str:
    node = cluster.get("Node", "g1")
    assert node is not None
    return str(node["status"]["allocatable"].get("nvidia.com/gpu"))


@pytest.mark.parametrize(("before", "after"), list(permutations(MODES, 2)))
def test_a_switch_ends_with_the_new_mode_and_never_has_both(
    cluster: ModelCluster, tmp_path: Path, before: str, after: str
) -> None:
    apply(cluster, load(tmp_path, before))
    assert left(cluster, load(tmp_path, before)) == []
    plugins = Plugins(cluster)
    inventory = load(tmp_path, after)
    apply(cluster, inventory)
    assert left(cluster, inventory) == []
    assert offered(cluster) == OFFERED[after]
    assert not plugins.both
    assert (cluster.get("Namespace", "hami-system") is not None) is (after == "hami")
    assert (cluster.get("Namespace", "gpu-fractioning") is not None) is (after == "kai_fractions")
    home = cluster.get("Namespace", "kai-scheduler")
    labels = home["metadata"]["labels"] if home is not None else {}
    assert labels.get(names.MODE_LABEL) == (after if after in {"kai", "kai_fractions"} else None)
    assert ("GpuFractioningConfig" in {kind.name for kind in cluster.store.kinds.values()}) is (
        cluster.get("CustomResourceDefinition", CONFIG_CRD) is not None
    )
    node = cluster.get("Node", "g1")
    assert node is not None
    assert ("gpu" in node["metadata"]["labels"]) is (after == "hami")
    assert foreign(seen(cluster, inventory)) == []


class StopError(Exception):
    """The controller was killed."""


def new_cluster() -> ModelCluster:
    cluster = ModelCluster()
    cluster.gpus.cards, cluster.gpus.memory = {"g1": 2}, 81559
    cluster.add_node("g1", "10.0.0.1")
    cluster.add_node("c1", "10.0.0.2")
    return cluster


@pytest.mark.parametrize(("before", "after"), list(permutations(MODES, 2)))
def test_a_switch_that_is_killed_at_any_write_goes_on(tmp_path: Path, before: str, after: str) -> None:
    cluster, inventory = new_cluster(), load(tmp_path, after)
    apply(cluster, load(tmp_path, before))
    cluster.requests.clear()
    apply(cluster, inventory)
    most = 2 * len(cluster.writes())
    assert most
    for boundary in {1, most // 4, most // 2, 3 * most // 4, most} - {0}:
        cluster, writes = new_cluster(), 0
        apply(cluster, load(tmp_path, before))

        def kill(_text: str, boundary: int = boundary) -> None:
            nonlocal writes
            writes += 1
            if writes == boundary:
                raise StopError

        cluster.on_write = kill
        with pytest.raises(StopError):
            apply(cluster, inventory)
        cluster.on_write = None
        apply(cluster, inventory)
        assert left(cluster, inventory) == [], boundary
        assert offered(cluster) == OFFERED[after], boundary
