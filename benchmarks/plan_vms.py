"""How the cost of a plan without changes grows with the VMs of one hypervisor: all in memory.

python -m benchmarks.plan_vms [--vms 25,100,400] [--rounds 3]

The first apply makes the VMs on models of hypervisor, router and guests. Then each round loads the inventory
and plans. The ratio of two sizes says how it grows: 4 from 100 to 400 VMs is linear.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import tempfile
import time
from pathlib import Path

from tests.unit.proxmox.roles.world import INVENTORY, World


def inventory(vms: int) -> str:
    """Return the inventory of the unit tests with as many VMs."""
    head, _, _ = INVENTORY.partition("nodes:\n")
    wide = head.replace("10.0.0.0/24", "10.0.0.0/16").replace("memory: 1GiB", "memory: 64MiB")
    addresses = [f"10.0.{1 + index // 200}.{1 + index % 200}" for index in range(vms)]
    nodes = [
        f"  vm-{index}: {{ profile: small, vmid: {1000 + index}, address: {address} }}"
        for index, address in enumerate(addresses)
    ]
    return wide + "nodes:\n" + "\n".join(nodes) + "\n"


def measured(folder: Path, vms: int, rounds: int) -> float:
    """Make the VMs, and return the least CPU seconds of a round that loads and plans."""
    world = World(folder)
    world.write(inventory(vms))
    used = time.process_time()
    report = world.apply()
    assert report.exit_code == 0, [
        (str(step.id), step.diagnostics) for step in report.steps if step.diagnostics
    ]
    print(f"{vms} VMs: first apply {time.process_time() - used:.2f} CPU s")
    figures = []
    for _ in range(rounds):
        gc.collect()
        used = time.process_time()
        plan = world.plan()
        figures.append(time.process_time() - used)
        assert plan.empty
    print(f"{vms} VMs, 0 changes: load and plan {min(figures):.3f} CPU s (of {rounds} rounds)", flush=True)
    return min(figures)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--vms", default="25,100,400")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    sizes = [int(size) for size in given.vms.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        figures = {size: measured(Path(folder) / str(size), size, given.rounds) for size in sizes}
    for smaller, larger in itertools.pairwise(sizes):
        ratio = figures[larger] / figures[smaller]
        print(f"from {smaller} to {larger} VMs: {ratio:.2f} times the CPU (linear: {larger / smaller:.2f})")


if __name__ == "__main__":
    main()
