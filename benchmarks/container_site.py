"""A site of container guests, from nothing: what each stage takes.

python benchmarks/container_site.py [--nodes 12]

Needs root. Makes an inventory in a folder of its own, brings it up, applies, applies again, destroys, and
takes the lab down, all through the public command line. A cached guest image is not part of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAME = "bench-site"


def inventory(nodes: int) -> str:
    """Return an inventory of one hypervisor and small guests, for the lab's container driver."""
    lines = f"""\
version: 1
name: {NAME}
lab: {{ driver: container, hypervisor: {{ memory: 16GiB }} }}
policy: {{ allow: [reboot-hypervisor, reboot-guest, power-cycle, console-loss, delete] }}
access: {{ user: debian }}
network:
  cidr: 198.18.0.0/24
  gateway: 198.18.0.1
  dhcp:
    {{ backend: dnsmasq, address: 198.18.0.1, ssh: {{ user: root }}, range: 198.18.0.100-198.18.0.199 }}
images: {{ debian-12: {{}} }}
hypervisors:
  pve:
    address: 198.18.0.5
    api: {{ url: "https://198.18.0.5:8006" }}
    ssh: {{ user: root }}
    storage: {{ images: local, disks: local-disks, snippets: local }}
    bridge: vmbr0
    reserve_memory: 512MiB
profiles:
  small:
    hypervisor: pve
    image: debian-12
    cores: 1
    memory: 768MiB
    disk: 4GiB
    power: running
    start_at_boot: false
    timezone: Etc/UTC
    ntp: [198.18.0.1]
    swap: off
    packages: [chrony]
    host_resources:
      - {{ kind: file, path: /etc/site/purpose, content: "{{{{ name }}}}\\n" }}
      - {{ kind: package, name: cron }}
      - {{ kind: service, name: cron, running: true, enabled: true }}
      - {{ kind: sysctl, key: net.ipv4.ip_forward, value: "1" }}
nodes:
""".splitlines()
    lines += [
        f"  vm-{index}: {{ profile: small, vmid: {200 + index}, address: 198.18.0.{10 + index} }}"
        for index in range(1, nodes + 1)
    ]
    return "\n".join(lines) + "\n"


def stage(name: str, arguments: list[str], folder: Path, environment: dict[str, str]) -> float:
    """Run one command of the product and return its seconds.

    Raises:
        SystemExit: it failed; the last lines are shown.
    """
    command = [str(Path(sys.executable).with_name("provision")), *arguments]
    began = time.monotonic()
    done = subprocess.run(
        command,
        check=False,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    seconds = time.monotonic() - began
    if done.returncode:
        sys.exit(f"{name}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    (folder / f"{name}.out").write_text(done.stdout)
    print(f"{name}: {seconds:.1f} s", flush=True)
    return seconds


def roles(folder: Path, name: str) -> None:
    """Print how long the steps of each role took: the slowest, and all of them together."""
    found: dict[str, list[float]] = {}
    for line in (folder / f"{name}.out").read_text().splitlines():
        event = json.loads(line)
        if event.get("type") == "step_ended":
            found.setdefault(str(event["role"]), []).append(float(event["seconds"]))
    for role, seconds in found.items():
        print(f"  {role}: {len(seconds)} steps, slowest {max(seconds):.1f} s, sum {sum(seconds):.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=12)
    nodes = parser.parse_args().nodes
    if os.geteuid() != 0:
        sys.exit("the lab needs root")
    with tempfile.TemporaryDirectory(prefix="provision-bench-") as name:
        folder = Path(name)
        file = folder / f"{NAME}.yaml"
        file.write_text(inventory(nodes))
        environment = os.environ | {"PROVISION_STATE": str(folder / "state")}
        print(f"{nodes} nodes on the container driver")
        try:
            stage("lab-up", ["lab", "up", str(file)], folder, environment)
            stage("apply", ["apply", str(file), "--yes", "--json"], folder, environment)
            roles(folder, "apply")
            stage("apply-again", ["apply", str(file), "--yes", "--json"], folder, environment)
            stage("destroy", ["destroy", str(file), "--yes", "--allow", "delete"], folder, environment)
        finally:
            stage("lab-down", ["lab", "down", str(file)], folder, environment)


if __name__ == "__main__":
    main()
