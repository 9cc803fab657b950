"""Faults of real sites on container guests: what others change, hold, own or override; and destroy."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from tests.e2e.site import HYPERVISOR, ROUTER, Site, brought_up, inventory

pytestmark = [
    pytest.mark.root,
    pytest.mark.full,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and containers"),
]
GUEST = "198.18.0.11"
LATER = "/etc/sysctl.d/99-zz-somebody.conf"
LOCKED = 90
"""Seconds for which another program holds the lock of dpkg."""
HOLD_LOCK = f"""perl -e '
use Fcntl;
open my $f, ">>", "/var/lib/dpkg/lock-frontend" or die;
my $lock = pack("s s x![q] q q i", F_WRLCK, 0, 0, 0, 0);
fcntl $f, F_SETLK, $lock or die "$!";
open my $n, ">", "/run/locked"; close $n;
sleep {LOCKED};' >/dev/null 2>&1 </dev/null &
while [ ! -e /run/locked ]; do sleep 0.1; done"""
"""dpkg takes its lock by fcntl(2), as this does."""


def declared() -> dict[str, Any]:
    made = inventory("e2e-c-faults", nodes=1)
    made["hypervisors"]["pve"]["host_resources"].append(
        {"kind": "service", "name": "cron", "running": False, "enabled": False}
    )
    return made


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Site:
    made = brought_up(Site(tmp_path_factory.mktemp("faults"), declared()), request)
    made.on(
        HYPERVISOR,
        "printf 'of before\\n' >/etc/motd; chmod 640 /etc/motd; systemctl enable --now cron;"
        "echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter",
    )
    made.apply().ended(0)
    return made


def api(site: Site, method: str, path: str, **data: object) -> None:
    """Send a request to the lab's API as its root, from inside of its network."""
    script = (
        "import sys; from provision.api.domains import load_inventory; from tests.e2e.doors import Doors\n"
        "from pathlib import Path\n"
        f"doors = Doors(load_inventory(Path({str(site.file)!r})), Path({str(site.lab)!r}))\n"
        f"doors.api({method!r}, {path!r}, {data!r}); doors.close()"
    )
    site.inside([sys.executable, "-c", script])


def test_a_sysctl_that_a_later_file_overrides_is_refused_by_name(site: Site) -> None:
    site.on(GUEST, f"echo net.ipv4.tcp_keepalive_time=30 >{LATER}")
    result = site.apply("--json").ended(1)
    assert "SYSCTL_OVERRIDDEN" in result.said
    assert LATER in result.said
    site.on(GUEST, f"rm {LATER}")
    site.apply().ended(0)


def test_a_folder_of_another_user_is_written_only_as_that_user(site: Site) -> None:
    site.on(GUEST, "mkdir -p /home/debian/ours; chown debian: /home/debian/ours")
    resource = {"kind": "file", "path": "/home/debian/ours/a", "content": "x\n"}
    profile = site.declared["profiles"]["small"]
    profile["host_resources"].append(resource)
    site.write()
    result = site.apply().ended(1)
    assert "can be changed by" in result.said
    assert site.on(GUEST, "ls /home/debian/ours") == ""
    resource["owner"] = "debian"
    site.write()
    site.apply().ended(0)
    assert site.on(GUEST, "stat -c %U /home/debian/ours/a") == "debian\n"


def test_a_lock_of_dpkg_is_waited_for(site: Site) -> None:
    profile = site.declared["profiles"]["small"]
    profile["host_resources"].append({"kind": "package", "name": "chrony", "hold": True})
    site.write()
    site.on(GUEST, HOLD_LOCK)
    site.apply().ended(0)
    assert site.on(GUEST, "apt-mark showhold") == "chrony\n"


def test_a_changed_reservation_is_written_again_and_the_lease_stays(site: Site) -> None:
    places = "/etc/dnsmasq.d /etc/dnsmasq.conf /var/lib/provision"
    files = f"$(grep -rl 198.18.0.11 {places} 2>/dev/null)"
    before = site.on(ROUTER, f"cat {files}")
    assert "198.18.0.11" in before
    site.on(ROUTER, f"sed -i s/198.18.0.11/198.18.0.77/ {files}")
    result = site.apply("--json").ended(0)
    assert {event["subject"] for event in result.events("change")} == {"vm-1"}
    assert site.on(ROUTER, f"cat {files}") == before
    assert site.on(GUEST, "hostname") == "vm-1\n"


def test_a_renamed_vm_has_its_name_and_its_host_key_again(site: Site) -> None:
    keys = site.fingerprints(GUEST)
    api(site, "PUT", "/nodes/pve/qemu/201/config", name="by-hand")
    assert "name: by-hand" in site.config(201)
    site.apply().ended(0)
    assert "name: vm-1" in site.config(201)
    assert site.fingerprints(GUEST) == keys


def test_a_pending_value_of_somebody_else_goes_without_a_power_cycle(site: Site) -> None:
    boot = site.on(GUEST, "cat /proc/sys/kernel/random/boot_id; systemctl show -p UserspaceTimestamp")
    api(site, "PUT", "/nodes/pve/qemu/201/config", cores=2)
    site.apply().ended(0)
    assert "[PENDING]" not in site.config(201)
    after = site.on(GUEST, "cat /proc/sys/kernel/random/boot_id; systemctl show -p UserspaceTimestamp")
    assert after == boot


def test_a_file_is_restored_by_the_run_that_replaced_it(site: Site) -> None:
    runs = site.provision("runs").ended(0).out.splitlines()
    first = next(line.split()[0] for line in reversed(runs) if "apply" in line)
    site.provision("restore", first, "/etc/motd", "--yes").ended(0)
    assert site.on(HYPERVISOR, "cat /etc/motd; stat -c %a /etc/motd") == "of before\n640\n"
    site.apply().ended(0)
    assert site.on(HYPERVISOR, "cat /etc/motd") == "managed\n"


def test_destroy_of_the_host_brings_back_files_and_states(site: Site) -> None:
    site.provision("destroy", site.file, "--host", "--yes").ended(0)
    state = site.on(
        HYPERVISOR,
        "cat /etc/motd; stat -c %a /etc/motd; systemctl is-active cron; systemctl is-enabled cron;"
        "cat /proc/sys/net/ipv4/conf/all/rp_filter; ls /etc/sysctl.d | grep provision || :",
    )
    assert state == "of before\n640\nactive\nenabled\n1\n"
    site.provision("destroy", site.file, "--host", "--yes").ended(0)
