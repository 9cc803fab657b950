"""Kills of the controller, of what it runs, of the lab's API: the next apply ends as if there were none."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.site import (
    HYPERVISOR,
    ROUTER,
    Done,
    Site,
    brought_up,
    differences,
    eventually,
    inventory,
    kill,
)

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and containers"),
]
ALL = (ROUTER, HYPERVISOR, "198.18.0.11", "198.18.0.12")
FIRST = "198.18.0.11"
POINTS = 12
ROUNDS = 3
CONFIG = "etc/chrony/conf.d/site.conf"
# Stands before the target's own systemctl in PATH: what is between a file and its effect becomes long.
SLOW = """#!/bin/sh
case "$*" in *restart*) echo "$$" >/run/slow; sleep 45; rm /run/slow ;; esac
exec /usr/bin/systemctl "$@"
"""


@dataclass(frozen=True)
class Uninterrupted:
    """What a run without kills did: its gaps between two changes in seconds, and how the site was then."""

    gaps: tuple[float, ...]
    dump: tuple[str, ...]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Site:
    made = Site(tmp_path_factory.mktemp("kills"), inventory("e2e-c-kills"))
    return brought_up(made, request)


@pytest.fixture(scope="module")
def seed() -> str:
    return os.environ.get("PROVISION_TEST_SEED") or str(random.SystemRandom().randrange(10**6))


@pytest.fixture(scope="module")
def chance(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 - points of kills


@pytest.fixture(scope="module")
def uninterrupted(site: Site) -> Uninterrupted:
    result = site.apply("--json").ended(0)
    times = [result.events("run_started")[0]["at"]]
    times += [each["at"] for each in result.events() if each["type"] in {"change", "effect"}]
    gaps = tuple(after - before for before, after in itertools.pairwise(times))
    assert len(gaps) > POINTS
    return Uninterrupted(gaps, site.dump(*ALL))


def from_nothing(site: Site) -> None:
    site.provision("destroy", site.file, "--yes", "--host").ended(0)


def applied(site: Site) -> Done:
    """Apply to the end; what a killed run left running on a target is named, and waited for."""

    def tried() -> Done | None:
        result = site.apply("--json")
        assert "Traceback" not in result.said, result.said[-4000:]
        if result.code == 6:  # a fix that outlived its controller still holds its host
            assert "LOCKED" in result.said
            return None
        return result

    return eventually(tried).ended(0)  # type: ignore[no-any-return]  # eventually() is untyped on purpose


def killed_at(site: Site, point: int, delay: float) -> int | None:
    """Apply, kill -9 after some changes and a delay; return how many were told, None if it ended first."""

    def tried() -> tuple[int, int, str]:
        process = site.start("apply", site.file, "--yes", "--json")
        seen = 0
        assert process.stdout is not None
        for line in process.stdout:
            seen += json.loads(line)["type"] in {"change", "effect"}
            if seen >= point:
                time.sleep(delay)
                break
        process.kill()
        _, err = process.communicate()
        return process.returncode, seen, err

    # A fix that outlived the kill before may still hold its host: such a run was refused, not killed.
    code, seen, said = eventually(lambda: (ended := tried())[0] != 6 and ended)
    assert code in {-signal.SIGKILL, 0}, (code, said[-3000:])
    return seen if code else None


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_site_converges_to_the_same_state_after_kills_at_sampled_points(
    site: Site,
    uninterrupted: Uninterrupted,
    seed: str,
    chance: random.Random,
    turn: int,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("PROVISION_TEST_SEED", seed)  # told in the summary: the same points again
    left = chance.sample(range(len(uninterrupted.gaps)), POINTS // ROUNDS)
    told, kills = 0, 0
    from_nothing(site)
    while left:
        point = min(left)
        left.remove(point)
        delay = chance.uniform(0, uninterrupted.gaps[point])
        print(f"round {turn}: kill after change {point} and {delay:.3f} s")  # noqa: T201 - to repeat it
        seen = killed_at(site, max(0, point - told), delay)
        if seen is None:  # some changes happened and were never told, so that few were left: another point
            from_nothing(site)
            told = 0
            left.append(chance.randrange(min([point, *left]) // 2 + 1))
        else:
            told += seen
            kills += 1
    assert kills == POINTS // ROUNDS
    applied(site)
    assert differences(uninterrupted.dump, site.dump(*ALL)) == []
    assert nothing_is_owed(site)


def nothing_is_owed(site: Site) -> bool:
    """Tell whether no marker of an effect is left on any machine."""
    script = "find /var/lib/provision/pending -type f 2>/dev/null || :"
    return not any(site.on(address, script) for address in ALL)


def test_after_a_kill_of_the_api_amid_the_run(site: Site, uninterrupted: Uninterrupted) -> None:
    from_nothing(site)
    process = site.start("apply", site.file, "--yes", "--json")
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        event = json.loads(line)
        if event["type"] == "change" and event["role"] == "virtual_machine":
            kill(int((site.lab / "daemon.pid").read_text()))
            break
    rest, err = process.communicate(timeout=site.deadline)
    Done(("apply",), process.returncode, "".join(lines) + rest, err).ended(1)
    applied(site)
    assert differences(uninterrupted.dump, site.dump(*ALL)) == []


# ---------------------------------------------------------------- between a file and its effect


@pytest.fixture
def slow(site: Site, uninterrupted: Uninterrupted, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A first guest that restarts slowly, and an inventory that changes a file with a restart."""
    assert uninterrupted.dump
    script = f"cat >/usr/local/sbin/systemctl <<'END'\n{SLOW}END\nchmod 755 /usr/local/sbin/systemctl"
    site.on(FIRST, script)
    profile: dict[str, Any] = site.declared["profiles"]["small"]
    before = profile["host_resources"][1]["content"]
    profile["host_resources"][1]["content"] = f"# {request.node.name}\n{before}"
    site.write()
    yield site.lab / "guests/201/upper"
    site.on(FIRST, "rm -f /usr/local/sbin/systemctl; [ ! -e /run/slow ] || pkill -f 'sleep 45' || :")


def amid(site: Site, upper: Path) -> subprocess.Popen[str]:
    """Begin an apply and return it when the file is there and its effect is not."""
    process = site.start("apply", site.file, "--yes", "--target", "vm-1")
    wanted = site.declared["profiles"]["small"]["host_resources"][1]["content"]
    eventually(lambda: process.poll() is not None or (upper / CONFIG).read_text() == wanted)
    eventually(lambda: process.poll() is not None or remote(site, "sleep 45"))
    assert process.poll() is None, process.communicate()
    return process


def remote(site: Site, part: str) -> list[int]:
    """Return the processes on the first guest whose command line holds a text."""
    inode = Path(f"/run/netns/{site.namespace}.201").stat().st_ino
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                argv = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                if (entry / "ns/net").stat().st_ino == inode and part.encode() in argv:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def started(site: Site) -> str:
    """Return when the restarted service was started, in its guest's monotonic microseconds."""
    return site.on(FIRST, "/usr/bin/systemctl show -p ExecMainStartTimestampMonotonic --value chrony")


def owed(site: Site) -> str:
    return site.on(FIRST, "cat /var/lib/provision/pending/* 2>/dev/null || :")


def test_an_effect_that_a_kill_swallowed_is_done_by_the_next_run(site: Site, slow: Path) -> None:
    before = started(site)
    process = amid(site, slow)
    process.kill()
    for pid in (*remote(site, "sh -s"), *remote(site, "sbin/systemctl"), *remote(site, "sleep 45")):
        kill(pid)
    process.communicate()
    assert started(site) == before, "the effect was to be swallowed"
    assert "chrony" in owed(site)
    site.on(FIRST, "rm /usr/local/sbin/systemctl")
    plan = site.provision("plan", site.file, "--target", "vm-1", "--detailed-exitcode").ended(2)
    assert "restart chrony.service" in plan.out
    result = applied(site)
    effects = {(each["system"], each["effect"]) for each in result.events("effect")}
    assert ("vm-1/ssh", "restart chrony.service") in effects
    assert started(site) != before
    assert nothing_is_owed(site)


def test_a_fix_that_outlives_its_controller_is_named_and_not_disturbed(site: Site, slow: Path) -> None:
    before = started(site)
    process = amid(site, slow)
    process.kill()
    process.communicate()
    second = site.provision("apply", site.file, "--yes", "--target", "vm-1")
    held = bool(remote(site, "sleep 45"))
    assert second.code in ({6} if held else {0, 6}), second.said
    if held:
        assert "LOCKED" in second.said
        assert "20" in second.said.split("LOCKED", 1)[1]
    site.on(FIRST, "pkill -f 'sleep 45' || :")
    applied(site)
    assert started(site) != before
    assert nothing_is_owed(site)


def test_the_first_interrupt_lets_what_runs_end_and_the_next_run_completes(site: Site, slow: Path) -> None:
    before = started(site)
    process = amid(site, slow)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    assert process.poll() is None, "it waits for what runs"
    site.on(FIRST, "rm /usr/local/sbin/systemctl; pkill -f 'sleep 45' || :")
    out, err = process.communicate(timeout=120)
    Done(("apply",), process.returncode, out, err).ended(130)
    assert started(site) != before, "what ran has ended well"
    assert nothing_is_owed(site)
    applied(site)


def test_the_second_interrupt_leaves_and_nothing_runs_on(site: Site, slow: Path) -> None:
    process = amid(site, slow)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    Done(("apply",), process.returncode, out, err).ended(130)
    eventually(lambda: not remote(site, "sleep 45") and not remote(site, "sh -s"), 30)
    site.on(FIRST, "rm /usr/local/sbin/systemctl; rm -f /run/slow")
    before = started(site)
    applied(site)
    assert started(site) != before, "the effect is still owed"
    assert nothing_is_owed(site)


def test_nothing_of_the_lab_is_left(site: Site) -> None:
    site.down()
