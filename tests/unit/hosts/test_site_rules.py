"""What machines need of each other: peers that answer both ways, and space."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.contracts.rule import Evidence
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.shell import ShellResult
from provision.hosts.site_rules import low_space, peers, peers_query, space_query, unreachable
from provision.inventory import Inventory
from provision.values.diagnostics import Diagnostic, Severity

SITE = """
version: 1
name: site
access: { user: root }
storage: { s: { path: /srv/s, free: 10GiB } }
nodes:
  a: { address: 10.0.0.1, rails: { r0: { device: eth1 } } }
  b: { address: 10.0.0.2, rails: { r0: { device: eth1 } } }
  c: { address: 10.0.0.3, rails: { r0: { device: eth1 } } }
  d: { address: 10.0.0.4 }
"""


def inventory_of(folder: Path) -> Inventory:
    (folder / "site.yaml").write_text(SITE)
    return load(folder / "site.yaml", environ={})


def summaries(findings: object) -> list[str]:
    assert isinstance(findings, list)
    return [finding.summary for finding in findings if isinstance(finding, Diagnostic)]


def cluster_of(folder: Path, count: int) -> Inventory:
    nodes = (f"  n{n}: {{ address: 10.0.{n // 200}.{n % 200 + 1}, k3s: agent }}\n" for n in range(1, count))
    (folder / "cluster.yaml").write_text(
        "version: 1\nname: site\naccess: { user: root }\nk3s: { version: v1.35.7+k3s1 }\nnodes:\n"
        "  n0: { address: 10.0.0.1, k3s: server }\n" + "".join(nodes)
    )
    return load(folder / "cluster.yaml", environ={})


def named(inventory: Inventory) -> dict[str, set[str]]:
    return {name: {node.name for node in others} for name, others in peers(inventory).items()}


def test_every_pair_of_nodes_with_rails_is_tried_both_ways(tmp_path: Path) -> None:
    assert named(inventory_of(tmp_path)) == {"a": {"b", "c"}, "b": {"a", "c"}, "c": {"a", "b"}}


def test_every_pair_of_a_small_cluster_is_tried_both_ways(tmp_path: Path) -> None:
    paths = named(cluster_of(tmp_path, 16))
    assert paths == {name: set(paths) - {name} for name in paths}
    assert len(paths) == 16
    assert named(cluster_of(tmp_path, 1)) == {}


def test_of_many_nodes_each_tries_a_few_and_all_hang_together(tmp_path: Path) -> None:
    paths = named(cluster_of(tmp_path, 1000))
    assert max(map(len, paths.values())) == 18
    assert all(name in paths[other] for name, others in paths.items() for other in others), "both ways"
    reached, border = {"n0"}, {"n0"}
    while border := {other for name in border for other in paths[name]} - reached:
        reached |= border
    assert reached == set(paths)


@pytest.mark.parametrize(
    ("rows", "severity"),
    [("peer 10.0.0.1 0 1\npeer 10.0.0.3 0 1\n", Severity.WARNING), ("peer 10.0.0.1 2 1\n", Severity.ERROR)],
)
def test_a_dropped_ping_of_a_node_without_rails_is_a_warning(
    tmp_path: Path, rows: str, severity: Severity
) -> None:
    inventory = cluster_of(tmp_path, 3)
    answers = {peers_query(peers(inventory)["n1"]): ShellResult(0, rows.encode(), b"")}
    others = {f"{name}/ssh": Snapshot(f"{name}/ssh") for name in ("n0", "n2")}
    snapshots = {"n1/ssh": Snapshot("n1/ssh", answers=answers), **others}
    (finding,) = unreachable(Evidence(inventory, snapshots, ()))
    assert isinstance(finding, Diagnostic)
    assert finding.severity is severity
    if severity is Severity.WARNING:
        assert finding.summary == "n1 gets no answer from n0 at 10.0.0.1 and 1 more"
        assert finding.evidence == ("n0: 10.0.0.1", "n2: 10.0.0.3")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("peer 10.0.0.2 0 0\npeer 10.0.0.3 0 0\n", []),
        ("peer 10.0.0.2 0 1\npeer 10.0.0.3 0 0\n", ["a gets no answer from b at 10.0.0.2"]),
        ("peer 10.0.0.2 2 1\n", ["a has no route to b at 10.0.0.2"]),
        ("peer 10.0.0.2 127 127\n", []),
        ("garbage\npeer 10.0.0.9 0 1\n", []),
    ],
)
def test_a_peer_that_does_not_answer_is_named(tmp_path: Path, rows: str, expected: list[str]) -> None:
    inventory = inventory_of(tmp_path)
    query = peers_query(peers(inventory)["a"])
    snapshot = Snapshot("a/ssh", answers={query: ShellResult(0, rows.encode(), b"")})
    others = {f"{name}/ssh": Snapshot(f"{name}/ssh") for name in "bc"}
    assert summaries(unreachable(Evidence(inventory, {"a/ssh": snapshot, **others}, ()))) == expected
    # A machine that answers nobody is dead, and its neighbours go on.
    assert summaries(unreachable(Evidence(inventory, {"a/ssh": snapshot}, ()))) == []


@pytest.mark.parametrize(("free", "is_low"), [(20, False), (10, False), (9, True)])
def test_storage_that_is_nearly_full_is_refused(tmp_path: Path, free: int, is_low: bool) -> None:
    inventory = inventory_of(tmp_path)
    text = (
        f"Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/x 1 1 {free * 1024**2} 1% /srv/s\n"
    )
    answers = {space_query(inventory.storage["s"]): ShellResult(0, text.encode(), b"")}
    evidence = Evidence(inventory, {"d/ssh": Snapshot("d/ssh", answers=answers)}, ())
    assert bool(low_space(evidence)) is is_low


def test_storage_that_is_not_there_yet_is_not_judged(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path)
    text = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/x 1 1 1 1% /\n"
    answers = {space_query(inventory.storage["s"]): ShellResult(0, text.encode(), b"")}
    evidence = Evidence(inventory, {"d/ssh": Snapshot("d/ssh", answers=answers)}, ())
    assert low_space(evidence) == []
