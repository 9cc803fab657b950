"""What a plan without changes costs on several hypervisors: all in memory.

python -m benchmarks.plan_hypervisors [--hypervisors 4] [--vms 50,200] [--rounds 3]

The VMs are spread evenly. Each round loads the inventory and plans; requests are counted at each API.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import tempfile
import time
from pathlib import Path

from provision.api.domains import load_inventory
from tests.model.model_site import ModelSite

_HEAD = """\
version: 1
name: many
policy: {{ allow: [power-cycle, console-loss, delete, reboot-hypervisor] }}
access: {{ user: debian, key: ./id }}
network:
  cidr: 10.0.0.0/16
  gateway: 10.0.0.1
  dhcp: {{ backend: dnsmasq, ssh: {{ user: root }} }}
images:
  debian-12: {{ url: "https://images.example/debian.img", sha256: "{digest}" }}
hypervisors:
"""
_HOST = """\
  pve{number}:
    address: 10.0.0.{last}
    api: {{ token_id: a@pve!b, token: !secret {{ file: ./token }}, fingerprint: "{fingerprint}" }}
    storage: {{ images: local, disks: local-zfs, snippets: local }}
    cards:
      gpu: {{ address: "0000:0{number}:00", id: "10de:2204" }}
"""


def inventory(hypervisors: int, vms: int, *, cards: bool = False) -> str:
    """Return an inventory with VMs on hypervisors in turn; with `cards`, the first of each takes a card."""
    fingerprint = ":".join(["AB"] * 32)
    lines = [_HEAD.format(digest="ab" * 32)]
    lines += [
        _HOST.format(number=number, last=4 + number, fingerprint=fingerprint)
        for number in range(1, hypervisors + 1)
    ]
    lines.append("nodes:\n")
    for number in range(vms):
        card = ", gpus: [gpu]" if cards and number < hypervisors else ""
        lines.append(
            f"  vm-{number}: {{ hypervisor: pve{1 + number % hypervisors}, vmid: {200 + number},"
            f" address: 10.0.{1 + number // 200}.{1 + number % 200}, image: debian-12,"
            f" hostname: unmanaged, grow_root: false,"
            f" cores: 1, memory: 256MiB, disk: 4GiB, power: running{card} }}\n"
        )
    return "".join(lines)


def write(folder: Path, text: str) -> Path:
    """Write an inventory with the files that it names, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("id", "id.pub", "token"):
        (folder / name).write_text("ssh-ed25519 AAAA me\n")
    file = folder / "many.yaml"
    file.write_text(text)
    return file


def measured(folder: Path, hypervisors: int, vms: int, rounds: int) -> float:
    """Make the VMs, and return the least CPU seconds of a round that loads and plans."""
    file = write(folder, inventory(hypervisors, vms))
    models = ModelSite(load_inventory(file), folder / "state")
    report = models.apply()
    assert report.exit_code == 0, [(str(step.id), step.diagnostics) for step in report.steps]
    figures = []
    for _ in range(rounds):
        for api in models.apis.values():
            api.requests = 0
        gc.collect()
        used = time.process_time()
        models.inventory = load_inventory(file)
        plan = models.plan()
        figures.append(time.process_time() - used)
        assert plan.empty
    requests = sorted({api.requests for api in models.apis.values()})
    print(
        f"{vms} VMs on {hypervisors} hypervisors, 0 changes: {min(figures):.3f} CPU s (of {rounds} rounds),"
        f" requests a hypervisor: {', '.join(map(str, requests))}",
        flush=True,
    )
    return min(figures)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hypervisors", type=int, default=4)
    parser.add_argument("--vms", default="50,200")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    sizes = [int(size) for size in given.vms.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        figures = {
            size: measured(Path(folder) / str(size), given.hypervisors, size, given.rounds) for size in sizes
        }
    for smaller, larger in itertools.pairwise(sizes):
        ratio = figures[larger] / figures[smaller]
        print(f"from {smaller} to {larger} VMs: {ratio:.2f} times the CPU (linear: {larger / smaller:.2f})")


if __name__ == "__main__":
    main()
