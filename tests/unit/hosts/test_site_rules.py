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
from provision.values.diagnostics import Diagnostic

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


def test_every_pair_of_neighbours_is_tried_both_ways(tmp_path: Path) -> None:
    ring = {name: {node.name for node in others} for name, others in peers(inventory_of(tmp_path)).items()}
    assert ring == {"a": {"b", "c"}, "b": {"a", "c"}, "c": {"a", "b"}}


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
