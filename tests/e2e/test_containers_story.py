"""The story on container guests: nothing, a verified site, no change, another controller, nothing again."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.foreign import alone, looked_at, plant
from tests.e2e.site import HYPERVISOR, ROUTER, Done, Site, brought_up, differences, inventory
from tests.traces import scan

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and containers"),
]
GUESTS = ("198.18.0.11", "198.18.0.12")
HOSTS = ("pve/ssh", "router", "vm-1/ssh", "vm-2/ssh")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Site:
    made = Site(tmp_path_factory.mktemp("story"), inventory("e2e-c-story"))
    return brought_up(made, request)


@pytest.fixture(scope="module")
def foreign(site: Site) -> dict[str, str]:
    """Things of somebody else, planted before the first apply; their bytes by name."""
    return plant(site)


def is_quiet(result: Done) -> None:
    outcomes = result.events("run_ended")[0]["outcomes"]
    assert set(outcomes) == {"unchanged"}, result.out
    assert result.events("change") == []
    assert result.events("effect") == []


def is_frugal(site: Site) -> None:
    trips = site.trips()
    assert {name: trips.get(name) for name in HOSTS} == dict.fromkeys(HOSTS, 1)
    assert trips["pve/api"] <= 4 + len(GUESTS)
    assert set(trips) == {*HOSTS, "pve/api"}


def test_from_nothing_to_a_verified_site(site: Site, foreign: dict[str, str]) -> None:
    assert foreign
    result = site.apply("--json").ended(0)
    ended = {(each["subject"], each["role"]): each for each in result.events("step_ended")}
    assert {each["outcome"] for each in ended.values()} <= {"changed", "unchanged"}
    assert ended["all", "verify"]["outcome"] == "unchanged", ended["all", "verify"]
    assert {each["outcome"] for each in result.events("check")} <= {"proven", "trivial"}
    for number, address in enumerate(GUESTS, 1):
        seen = site.on(
            address, "cat /proc/sys/kernel/hostname /etc/site/purpose; sysctl -n net.ipv4.ip_forward"
        )
        assert seen == f"vm-{number}\nrehearsal\n1\n"


def test_verify_is_green(site: Site) -> None:
    result = site.provision("verify", site.file, "--junit", site.folder / "junit.xml").ended(0)
    assert "0 failed" in result.out.splitlines()[-1]
    assert "<testsuite" in (site.folder / "junit.xml").read_text()


def test_a_second_apply_changes_nothing_and_asks_each_host_once(site: Site) -> None:
    before = site.dump(ROUTER, HYPERVISOR, *GUESTS)
    is_quiet(site.apply("--json").ended(0))
    is_frugal(site)
    assert differences(before, site.dump(ROUTER, HYPERVISOR, *GUESTS)) == []


def test_every_guest_has_the_key_of_its_marker_and_the_first_key_is_gone(site: Site) -> None:
    for number, address in enumerate(GUESTS, 1):
        marker = site.marker(200 + number)
        assert site.fingerprints(address) == {marker["host-key"]}
        assert "first-key" not in marker
        assert "cicustom" not in site.config(200 + number)
    assert site.on(HYPERVISOR, "ls /var/lib/vz/snippets") == "somebody.yaml\n"


@pytest.fixture(scope="module")
def other_key(site: Site) -> Path:
    """A key of another controller, which all hosts accept; the lab's own is no longer accepted by them."""
    key = site.folder / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text().strip()
    for address in (ROUTER, HYPERVISOR):
        site.on(address, f"echo '{public}' >>/root/.ssh/authorized_keys")
    for address in GUESTS:
        site.on(address, f"echo '{public}' >>/home/debian/.ssh/authorized_keys")
    return key


def test_another_controller_with_another_key_and_no_state_changes_nothing(
    site: Site, other_key: Path
) -> None:
    shutil.rmtree(site.state)
    # The lab's overlay is what a user would write on the new controller; only the keys differ.
    overlay = (site.lab / "site.yaml").read_text()
    theirs = overlay.replace(str(site.lab / "keys/guest"), str(other_key)).replace(
        str(site.lab / "keys/site"), str(other_key)
    )
    assert theirs.count(str(other_key)) == 3
    (site.lab / "site.yaml").write_text(theirs)
    try:
        result = site.provision("plan", site.file, "--detailed-exitcode").ended(0)
        assert "No changes" in result.out
        is_quiet(site.apply("--json").ended(0))
        is_quiet(site.apply("--json").ended(0))
        is_frugal(site)
    finally:
        (site.lab / "site.yaml").write_text(overlay)


def test_destroy_removes_what_was_made_and_nothing_else(site: Site, foreign: dict[str, str]) -> None:
    site.provision("destroy", site.file, "--yes").ended(0)
    alone(site)
    for address in GUESTS:
        assert address not in site.on(
            ROUTER, "cat /etc/dnsmasq.conf /etc/dnsmasq.d/*.conf /etc/dnsmasq.d/hosts/*"
        )
    assert looked_at(site) == foreign


def test_a_second_destroy_changes_nothing(site: Site, foreign: dict[str, str]) -> None:
    files, before = site.api_files(), site.dump(ROUTER, HYPERVISOR)
    is_quiet(site.provision("destroy", site.file, "--yes", "--json").ended(0))
    assert site.api_files() == files
    assert differences(before, site.dump(ROUTER, HYPERVISOR)) == []
    assert looked_at(site) == foreign


def test_with_its_hosts_no_place_that_the_code_names_is_left(site: Site, foreign: dict[str, str]) -> None:
    assert site.on(HYPERVISOR, scan()) != "", "destroy leaves what was set up on machines that stay"
    site.provision("destroy", site.file, "--yes", "--host").ended(0)
    for address in (HYPERVISOR, ROUTER):
        assert site.on(address, scan()) == ""
    is_quiet(site.provision("destroy", site.file, "--yes", "--host", "--json").ended(0))
    assert looked_at(site) == foreign


def test_nothing_of_the_lab_is_left(site: Site) -> None:
    site.down()
