"""What planning costs where nothing changes: nodes in memory, through the public library.

python benchmarks/plan_nodes.py [--nodes 1000] [--rounds 3] [--alike]

Every node has 25 states (files with a template, packages, services, lines, kernel parameters). The
first apply makes them so; then each round loads the inventory anew and plans. No network, no processes.
With `--alike` only one node is made, and all others answer as it does, with their own names in their files:
the models of many nodes would need more memory than what is measured.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from provision.api import Options, Site, load
from provision.connections.contracts import Endpoint, SshEndpoint
from provision.contracts.driver import Driver
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import SystemSpec
from provision.hosts.queries.file import FileState, FileStatus
from provision.testing.model_host import HostState, ModelHost, ModelUnit, guest_state
from provision.values.cancel import Cancel

SERVICES = ("ssh", "cron", "chrony", "rsyslog")


def inventory(nodes: int) -> str:
    """Return an inventory of bare metal nodes that share one profile."""
    lines = [
        "version: 1",
        "name: fleet",
        "access: { user: root }",
        "profiles:",
        "  plain:",
        "    host_resources:",
    ]
    resources = [
        f"{{ kind: file, path: /etc/fleet/{index}.conf, mode: 0640, "
        f'content: "{{{{ name }}}} {{{{ address }}}} {index}\\n" }}'
        for index in range(8)
    ]
    resources += [f"{{ kind: package, name: tool-{index} }}" for index in range(5)]
    resources += [f"{{ kind: service, name: {name}, running: true, enabled: true }}" for name in SERVICES]
    resources += [f"{{ kind: file, path: /etc/modules, line: module-{index} }}" for index in range(4)]
    resources += [f"{{ kind: sysctl, key: vm.fleet_{index}, value: {index} }}" for index in range(4)]
    lines += [f"      - {resource}" for resource in resources]
    lines.append("nodes:")
    lines += [
        f"  n{index:04d}: {{ profile: plain, address: 10.0.{index // 250}.{index % 250 + 1} }}"
        for index in range(nodes)
    ]
    return "\n".join(lines) + "\n"


def texts(name: str, address: str) -> dict[str, str]:
    """Return the files of a node as the templates of the profile make them."""
    return {f"/etc/fleet/{index}.conf": f"{name} {address} {index}\n" for index in range(8)}


def machine() -> HostState:
    """Return a host with the services, before its states are made."""
    state = guest_state()
    for name in SERVICES:
        state.units.setdefault(f"{name}.service", ModelUnit())
    for index in range(4):
        file = f"/proc/sys/vm/fleet_{index}"
        state.sysctls[file] = state.base_sysctls[file] = "99"
    return state


class Fleet:
    """The nodes by system, kept from one site to the next.

    Args:
        alike: whether all nodes but the first answer as that does.
    """

    def __init__(self, *, alike: bool) -> None:
        self.hosts: dict[str, ModelHost | Alike] = {}
        self.alike = alike

    def round_trips(self) -> int:
        """Return how often the nodes were asked; who answers for all others is counted with these."""
        return sum(host.round_trips for host in self.hosts.values() if self.alike <= isinstance(host, Alike))

    def open(self, spec: SystemSpec, endpoint: Endpoint) -> Driver:
        """Return the one driver of a system."""
        first = self.hosts.get("n0000/ssh")
        if self.alike and isinstance(first, ModelHost) and spec.name not in self.hosts:
            assert isinstance(endpoint, SshEndpoint)
            self.hosts[spec.name] = Alike(spec.name, first, texts(spec.subject, endpoint.address))
        if spec.name not in self.hosts:
            self.hosts[spec.name] = ModelHost(spec.name, machine())
        return cast("Driver", self.hosts[spec.name])


class Alike:
    """A node that answers as another one does, with its own texts in the files that have any."""

    def __init__(self, system: str, first: ModelHost, texts: Mapping[str, str]) -> None:
        self.system = system
        self.round_trips = 0
        self._first = first
        self._digests = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in texts.items()}

    def answer(self, queries: frozenset[Any], cancel: Cancel) -> Snapshot:
        """Return the first node's answers, with the digests of this one's own files."""
        self.round_trips += 1
        answers = dict(self._first.answer(queries, cancel).answers)
        for query in queries:
            if isinstance(query, FileState) and query.path in self._digests:
                status = answers[query]
                assert isinstance(status, FileStatus)
                answers[query] = replace(status, digest=self._digests[query.path], content=None)
        return Snapshot(self.system, "boot-1", answers)

    def close(self) -> None:
        """Do nothing."""


def peak() -> float:
    """Return the peak resident memory since `forget_peak`, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the kernel does not say")


def forget_peak() -> None:
    """Let the kernel count the peak from now on (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alike", action="store_true")
    given = parser.parse_args()
    fleet = Fleet(alike=given.alike)
    with tempfile.TemporaryDirectory() as folder:
        file, state = Path(folder) / "fleet.yaml", Path(folder) / "state"
        file.write_text(inventory(given.nodes))
        options = Options()

        def opened() -> Site:
            return load(file, playbook="hosts", state=state, open_driver=fleet.open)

        site = opened()
        began = time.monotonic()
        made = Options(targets=("n0000",)) if given.alike else options
        report = site.apply(None, made, lambda _: None, Cancel(), lambda _: True)
        site.close()
        assert report.exit_code == 0, report.steps[0].diagnostics
        count = len(made.targets) or given.nodes
        print(f"first apply of {count} nodes: {time.monotonic() - began:.1f} s")
        del site, report
        for _ in range(given.rounds):
            gc.collect()
            forget_peak()
            before, trips = peak(), fleet.round_trips()
            began, used = time.monotonic(), time.process_time()
            site = opened()
            loaded = time.monotonic()
            plan = site.plan(options, lambda _: None, Cancel())
            ended, cpu = time.monotonic(), time.process_time() - used
            asked = fleet.round_trips() - trips
            changes = sum(len(step.changes) for step in plan.steps)
            assert not changes
            assert not plan.refusals
            assert len(plan.steps) == given.nodes
            print(
                f"{given.nodes} nodes, 0 changes: load {loaded - began:.2f} s, plan {ended - loaded:.2f} s, "
                f"CPU {cpu:.2f} s, executions {asked / given.nodes:g} a node, "
                f"memory {before:.0f} MiB before, {peak():.0f} MiB at the peak"
            )
            site.close()
            del site, plan


if __name__ == "__main__":
    main()
