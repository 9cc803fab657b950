"""Benchmarks that need neither network nor processes work, so that they can be run when they are wanted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.damage import choose_damage, damaged

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "plan_nodes.py"


def test_planning_some_nodes_gives_figures() -> None:
    argv = [sys.executable, str(SCRIPT), "--nodes", "3", "--rounds", "2"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert re.fullmatch(r"first apply of 3 nodes: \d+\.\d s", said[0])
    figures = (
        r"3 nodes, 0 changes: load [\d.]+ s, plan [\d.]+ s, CPU [\d.]+ s, executions 1 a node, memory .+"
    )
    assert len(said) == 3
    assert all(re.fullmatch(figures, each) for each in said[1:])


def test_planning_some_vms_says_how_the_cost_grows() -> None:
    argv = [sys.executable, "-m", "benchmarks.plan_vms", "--vms", "2,4", "--rounds", "1"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()
    assert re.fullmatch(r"4 VMs, 0 changes: load and plan [\d.]+ CPU s \(of 1 rounds\)", said[3])
    assert re.fullmatch(r"from 2 to 4 VMs: [\d.]+ times the CPU \(linear: 2.00\)", said[4])
    assert len(said) == 5


def test_masking_with_some_secrets_gives_figures() -> None:
    argv = [sys.executable, "-m", "benchmarks.masking", "--secrets", "20", "--vms", "2"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()
    assert re.fullmatch(r"20 secrets learnt: [\d.]+ ms each", said[0])
    assert len(said) == 7
    assert all(re.fullmatch(r"a string .+: [\d.]+ ms", line) for line in said[1:6])
    assert re.fullmatch(r"2 VMs created: [\d.]+ CPU s, \d+ events", said[6])


# ---------------------------------------------------------------- damage of the no-op benchmark

FILES = [("a.j2", f"etc/file-{index}", "644") for index in range(8)]
LINES = [
    ("etc/modules", "vfio"),
    ("etc/modules", "vfio_pci"),
    ("etc/sysctl.conf", "a=1"),
    ("etc/sysctl.conf", "b=2"),
]
GUARDS = [f"state/{index}.done" for index in range(4)]
STATES = SimpleNamespace(FILES=FILES, LINES=LINES, GUARDS=GUARDS, STATE_COUNT=25)


def make_farm(folder: Path, hosts: int) -> SimpleNamespace:
    farm = SimpleNamespace(name=lambda index: f"h{index:03d}", root=lambda index: folder / f"h{index:03d}")
    for index in range(1, hosts + 1):
        for path in {*(path for _, path, _ in FILES), *(path for path, _ in LINES), *GUARDS}:
            file = farm.root(index) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(f"{line}\n" for name, line in LINES if name == path))
            file.chmod(0o644)
    return farm


def contents(folder: Path) -> dict[Path, tuple[str, int]]:
    return {path: (path.read_text(), path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("hosts", "count"), [(1, 1), (10, 3), (100, 25)])
def test_one_percent_of_the_states_is_damaged_and_one_at_least(
    hosts: int, count: int, tmp_path: Path
) -> None:
    farm = make_farm(tmp_path, 0)
    chosen = choose_damage(farm, STATES, hosts, seed=7)
    assert len({damage.key for damage in chosen}) == len(chosen) == count
    assert [damage.key for damage in choose_damage(farm, STATES, hosts, seed=7)] == [
        damage.key for damage in chosen
    ]


@pytest.mark.parametrize("seed", range(5))
def test_damage_changes_the_chosen_files_alone_and_is_undone(seed: int, tmp_path: Path) -> None:
    farm = make_farm(tmp_path / "hosts", 3)
    before = contents(tmp_path / "hosts")
    chosen = choose_damage(farm, STATES, 100, seed)
    chosen = [damage for damage in chosen if damage.path in before]
    with damaged(chosen, tmp_path / "backup"):
        after = contents(tmp_path / "hosts")
        changed = {path for path in before if before[path] != after.get(path)}
        assert changed == {damage.path for damage in chosen}
    assert contents(tmp_path / "hosts") == before
