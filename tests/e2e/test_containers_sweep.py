"""The mutation sweep on container guests: all kinds but those that need a kernel of their own."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.e2e.site import Site, brought_up, inventory
from tests.e2e.sweep import SweepReport, sweep
from tests.e2e.vandals import KEY, UNREPAIRED

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and containers"),
]
KINDS = frozenset(
    {
        "command", "dhcp-reservation", "directory", "file", "file-line", "hostname", "image",
        "modprobe-blacklist", "package", "service", "snippet-gone", "swap", "sysctl", "timezone", "vm",
        "vm-marker", "vm-power",
    }
)  # fmt: skip
"""What the sweep must have damaged here; card, mapping, modules, kernel and clock are the QEMU story's."""


def declared() -> dict[str, Any]:
    """Return the inventory of the container proofs with more kinds and keys in it."""
    made = inventory("e2e-c-sweep")
    made["access"]["authorized_keys"] = [KEY.replace("vandal", "colleague")]
    hypervisor = made["hypervisors"]["pve"]
    hypervisor["host_resources"] += [
        {"kind": "file", "path": "/etc/profile", "line": "export EDITOR=vi"},
        {"kind": "kernel_module", "name": "floppy", "blacklisted": True},
        {"kind": "package", "name": "cron"},
        {"kind": "service", "name": "cron", "running": True, "enabled": True},
        {"kind": "command", "name": "setup", "run": "touch /etc/ready", "creates": "/etc/ready"},
    ]
    profile = made["profiles"]["small"]
    profile |= {
        "sockets": 1,
        "machine": "q35",
        "bios": "seabios",
        "cpu": {"type": "host"},
        "numa": False,
        "balloon": False,
        "agent": False,
        "startup": {"order": 3},
        "protection": False,
        "tags": ["rehearsal"],
    }
    for each in profile["host_resources"]:
        if "restart" in each:  # no clock that has to synchronise again after each repair
            each |= {"path": "/etc/cron.d/site", "content": "# nothing\n", "restart": ["cron.service"]}
    profile["host_resources"] += [
        {"kind": "file", "path": "/etc/site/owned", "content": "x\n", "owner": "root", "group": "root"},
        {"kind": "file", "path": "/etc/hosts", "line": "198.18.0.5 pve"},
        {"kind": "service", "name": "cron", "running": True, "enabled": True},
    ]
    return made


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> SweepReport:
    site = brought_up(Site(tmp_path_factory.mktemp("sweep"), declared()), request)
    site.apply().ended(0)
    made = sweep(site.file, site.lab, site.namespace, site.state, width=2)
    site.provision("verify", site.file).ended(0)
    return made


def test_every_damage_is_named_alone_and_repaired(report: SweepReport) -> None:
    print(report)  # noqa: T201 - pytest -s shows the sweep kind by kind
    assert report.failures == []


def test_every_kind_of_the_plan_was_damaged(report: SweepReport) -> None:
    assert set(report.kinds) == KINDS
    assert set(report.repaired) == KINDS - set(UNREPAIRED)
