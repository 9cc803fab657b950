"""Nodes from inside: what the roles of a host promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from testinfra.host import Host

from provision.contracts.check import NotDeclared, Site
from provision.hosts import managed
from provision.hosts.units import failed_units, unit
from provision.inventory import Subject
from provision.inventory.models.node import Node

SKEW = 10
"""Seconds that a node's clock may differ from the controller's."""


@pytest.fixture
def host(site: Site, node: str) -> Host:
    """The node by SSH."""
    return site.host(f"{node}/ssh")


@pytest.fixture
def declared(site: Site, node: str) -> Node:
    """What the inventory says of it."""
    return site.inventory.nodes[node]


def test_hostname(host: Host, declared: Node) -> None:
    """The host name is the declared one."""
    if declared.managed_hostname is None:
        raise NotDeclared("the host name is unmanaged")
    seen = host.check_output("uname -n")
    assert seen == declared.managed_hostname, f"it calls itself {seen}"
    assert host.file("/etc/hostname").content_string.strip() == declared.managed_hostname


def test_root_filesystem_fills_the_disk(host: Host, declared: Node) -> None:
    """The root filesystem has at least 90 % of the disk."""
    if not declared.grows_root or declared.disk is None:
        raise NotDeclared("the root filesystem is unmanaged")
    kibibytes = int(host.check_output("df -kP / | tail -n 1 | tr -s ' ' | cut -d ' ' -f 2"))
    share = kibibytes / 1024 / declared.disk
    assert share >= 0.9, f"{kibibytes // 1024} MiB of {declared.disk} MiB"  # noqa: PLR2004 - the claim


def test_clock(site: Site, host: Host, node: str) -> None:
    """The clock agrees with the controller's within ten seconds."""
    if site.inventory.nodes[node].ntp is None:
        raise NotDeclared("time is unmanaged")
    assert host.run("true").rc == 0
    skew = site.skew(f"{node}/ssh")
    assert abs(skew) <= SKEW, f"off by {skew:.0f} s"


def test_time_is_synchronised(site: Site, host: Host, node: str, declared: Node) -> None:
    """The clock follows a time server."""
    if declared.ntp is None:
        raise NotDeclared("time is unmanaged")
    flag, tracking = "timedatectl show -p NTPSynchronized --value", "chronyc -n tracking"

    def follows() -> bool:
        if "Leap status     : Normal" in host.run(tracking).stdout:
            return True
        return bool(host.run(flag).stdout.strip() == "yes")

    # A daemon that was just restarted needs some seconds.
    if follows() or any(follows() for _ in site.again(f"{node}/ssh", flag, tracking)):
        return
    pytest.fail(host.run(tracking).stdout or f"NTPSynchronized={host.run(flag).stdout.strip()}")


def test_swap_is_off(host: Host, declared: Node) -> None:
    """No swap is in use."""
    if declared.swap != "off":
        raise NotDeclared("swap is unmanaged")
    rows = host.file("/proc/swaps").content_string.splitlines()[1:]
    assert not rows, "; ".join(rows)


def test_packages(host: Host, declared: Node) -> None:
    """Every declared package is installed."""
    if not declared.packages:
        raise NotDeclared("no packages")
    absent = [name for name in declared.packages if not host.package(name).is_installed]
    assert not absent, f"not installed: {absent}"


def test_kernel_parameters(host: Host, declared: Node) -> None:
    """Every declared kernel parameter has its value."""
    if not declared.sysctl:
        raise NotDeclared("no kernel parameters")
    for name, wanted in declared.sysctl.items():
        seen = " ".join(host.check_output("sysctl -n %s", name).split())
        assert seen == " ".join(str(wanted).split()), f"{name} = {seen}"


def test_services(site: Site, host: Host, node: str) -> None:
    """Every declared service runs and is enabled as declared."""
    services = list(managed.services(site.inventory, Subject("node", node)))
    if not services:
        raise NotDeclared("no services")
    for name, declared in services:
        state = unit(host, name)
        if declared.running is not None:
            is_right = state.runs if declared.running else state.is_stopped
            assert is_right, f"{name} is {state.active} ({state.sub})"
        if declared.enabled is not None:
            is_right = state.starts_at_boot if declared.enabled else state.is_disabled
            assert is_right, f"{name} is {state.file or 'missing'}"


def test_no_unit_has_failed(site: Site, host: Host, node: str, note: Callable[[str], None]) -> None:
    """No unit that is declared or managed has failed; others are named."""
    own, others = failed_units(host, managed.units(site.inventory, Subject("node", node)))
    assert not own, "; ".join(own)
    if others:
        note(f"not of this inventory, and failed: {', '.join(others)}")


def test_card_is_visible(site: Site, gpu_vm: str) -> None:
    """Every card that is passed through is visible in the guest with its vendor and device id."""
    host = site.host(f"{gpu_vm}/ssh")
    declared = site.inventory.nodes[gpu_vm]
    hypervisor = declared.hypervisor or ""
    wanted = [site.inventory.hypervisors[hypervisor].cards[alias].id for alias in declared.gpus]
    seen = host.check_output(
        'for f in /sys/bus/pci/devices/*; do read -r v <"$f/vendor"; read -r d <"$f/device"; '
        'echo "${v#0x}:${d#0x}"; done'
    ).splitlines()
    for each in {each for each in wanted if each}:
        count = wanted.count(each)
        assert seen.count(each) >= count, f"{each} is visible {seen.count(each)} times, not {count}"
