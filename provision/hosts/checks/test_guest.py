"""Nodes from inside: what the roles of a host promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from testinfra.host import Host

from provision.contracts.check import NotDeclared, Site, Trivial
from provision.hosts.managed import Managed
from provision.hosts.names import DAEMONS
from provision.hosts.public_keys import login_keys
from provision.hosts.systemd_units import failed_units, unit
from provision.inventory import Subject
from provision.inventory.models.node import Node

SKEW = 10
"""Seconds that a node's clock may differ from the controller's."""
TIME_SOURCES = (
    "/etc/chrony/chrony.conf /etc/chrony/sources.d/*.sources /etc/systemd/timesyncd.conf"
    " /etc/systemd/timesyncd.conf.d/*.conf"
)
"""Files in which chrony and systemd-timesyncd read their servers, on Debian and Ubuntu."""

SWAP_UNITS = r"""for f in /etc/systemd/system/*.wants/* /etc/systemd/system/*.requires/* \
  /run/systemd/generator*/*.wants/* /run/systemd/generator*/*.requires/* \
  /usr/lib/systemd/system/*.wants/*.swap /etc/systemd/zram-generator.conf; do
  n=${f##*/}
  case $n in
    zram-generator.conf)
      grep -qs '^ *.zram' "$f" && [ -e /usr/lib/systemd/system-generators/zram-generator ] || continue
      n=dev-zram0.swap;;
    *.swap | *zram*.service | dphys-swapfile.service | swapspace.service | systemd-swap.service)
      [ -e "$f" ] || continue;;
    *) continue;;
  esac
  [ "$(readlink "/etc/systemd/system/$n")" != /dev/null ] || continue
  ! grep -qs '^SourcePath=/etc/fstab' "/run/systemd/generator/$n" || continue
  echo "$n"
done | sort -u"""
"""Prints the units that systemd starts at boot for swap: those of fstab(5) and masked ones are left out."""

SWAP_SCRIPTS = r"""for f in /etc/rc.local /etc/crontab /etc/cron.*/* /var/spool/cron/crontabs/*; do
  case $f in /etc/rc.local) [ -x "$f" ] || continue;; esac
  ! sed 's/#.*//' "$f" 2>/dev/null | grep -qw swapon || echo "$f"
done"""
"""Prints the files of commands that rc.local or cron runs, and that start swap."""


@pytest.fixture
def host(site: Site, node: str) -> Host:
    """The node by SSH."""
    return site.host(f"{node}/ssh")


@pytest.fixture
def declared(site: Site, node: str) -> Node:
    """What the inventory says of it."""
    return site.inventory.nodes[node]


def test_hostname(host: Host, declared: Node) -> None:
    """The host name is the declared one, now and at boot, and /etc/hosts names it."""
    if declared.managed_hostname is None:
        raise NotDeclared("the host name is unmanaged")
    seen = host.check_output("uname -n")
    assert seen == declared.managed_hostname, f"it calls itself {seen}"
    at_boot = host.check_output("cat /etc/hostname")
    assert at_boot == declared.managed_hostname, f"/etc/hostname says {at_boot}"
    rows = (row.partition("#")[0].split() for row in host.check_output("cat /etc/hosts").splitlines())
    assert any(declared.managed_hostname in row[1:] for row in rows), "/etc/hosts does not name it"


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
    flag, tracking = "timedatectl show -p NTPSynchronized --value", "chronyc -n tracking 2>/dev/null || true"

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
    rows = host.check_output("cat /proc/swaps").splitlines()[1:]
    assert not rows, "; ".join(rows)


def test_no_swap_at_next_boot(host: Host, declared: Node) -> None:
    """Nothing brings swap at the next boot: no line of /etc/fstab, no unit, rc.local or job of cron."""
    if declared.swap != "off":
        raise NotDeclared("swap is unmanaged")
    rows = (row.split() for row in host.run("cat /etc/fstab").stdout.splitlines())
    areas = [row[0] for row in rows if row[2:3] == ["swap"] and not row[0].startswith("#")]
    areas += host.check_output(SWAP_UNITS).split() + host.check_output(SWAP_SCRIPTS).split()
    assert not areas, f"swap at boot: {', '.join(areas)}"


def test_timezone(host: Host, declared: Node) -> None:
    """The time zone is the declared one, for the system and for Debian's own note of it."""
    if declared.timezone is None:
        raise NotDeclared("the time zone is unmanaged")
    link = host.run("readlink /etc/localtime").stdout.strip()
    assert link.endswith(f"/zoneinfo/{declared.timezone}"), f"/etc/localtime is {link or 'no link'}"
    noted = host.check_output("cat /etc/timezone")
    assert noted == declared.timezone, f"/etc/timezone says {noted}"


def test_hosts_entries(host: Host, declared: Node) -> None:
    """Every declared name has its address in /etc/hosts, and no other."""
    if not declared.hosts:
        raise NotDeclared("no entries of /etc/hosts")
    rows = [row.partition("#")[0].split() for row in host.check_output("cat /etc/hosts").splitlines()]
    for name, address in declared.hosts.items():
        addresses = [row[0] for row in rows if name in row[1:]]
        assert addresses == [address], f"{name} has {', '.join(addresses) or 'no address'}, not {address}"


def _is_container(host: Host) -> bool:
    return host.run("systemd-detect-virt -c || true").stdout.strip() not in ("", "none")


def test_time_servers(host: Host, declared: Node) -> None:
    """Every declared time server is in the time daemon's configuration."""
    if not declared.ntp:
        raise NotDeclared("no time servers")
    if _is_container(host):
        raise Trivial("a container has the clock of its machine")
    words = host.check_output(f"cat {TIME_SOURCES} 2>/dev/null || true").replace("=", " ").split()
    absent = [server for server in declared.ntp if server not in words]
    assert not absent, f"not configured: {', '.join(absent)}"


def test_time_daemon(host: Host, declared: Node) -> None:
    """A time daemon runs, and starts at boot."""
    if declared.ntp is None:
        raise NotDeclared("time is unmanaged")
    if _is_container(host):
        raise Trivial("a container has the clock of its machine")
    states = {name: unit(host, name) for name in DAEMONS.values()}
    running = [name for name, state in states.items() if state.runs and state.starts_at_boot]
    assert running, ", ".join(f"{name} is {state.active}, {state.file}" for name, state in states.items())


def test_authorized_keys(site: Site, host: Host, node: str, declared: Node) -> None:
    """The login has exactly the declared public keys, in a folder and a file that only its owner reads."""
    if site.inventory.access.authorized_keys is None:
        raise NotDeclared("the keys are unmanaged")
    user = site.inventory.login(node).user
    home = host.check_output("getent passwd %s | cut -d : -f 6", user)
    file = f"{home}/.ssh/authorized_keys"
    problems = [
        f"{path}: {state}"
        for path, mode in ((f"{home}/.ssh", "700"), (file, "600"))
        if (state := _owner_and_mode(host, path)) != f"{user} {mode}"
    ]
    rows = {row.strip() for row in host.run("cat -- %s", file).stdout.splitlines() if row.strip()}
    keys = {key.strip() for key in login_keys(site.inventory, declared)}
    if missing := keys - rows:
        problems.append(f"{file}: {len(missing)} of {len(keys)} keys are missing")
    if further := rows - keys:
        problems.append(f"{file}: {len(further)} further keys")
    assert not problems, "; ".join(problems)


def _owner_and_mode(host: Host, path: str) -> str:
    result = host.run("stat -c '%%U %%a' -- %s", path)
    return "missing" if result.rc else str(result.stdout.strip())


def test_no_unit_has_failed(site: Site, host: Host, node: str, note: Callable[[str], None]) -> None:
    """No unit that is declared or managed has failed; others are named."""
    own, others = failed_units(host, Managed(site.inventory, Subject("node", node)).units())
    assert not own, "; ".join(own)
    if others:
        note(f"not of this inventory, and failed: {', '.join(others)}")


def test_card_is_visible(site: Site, gpu_vm: str) -> None:
    """Every card that is passed through is visible in the guest with its vendor and device id."""
    host = site.host(f"{gpu_vm}/ssh")
    declared = site.inventory.nodes[gpu_vm]
    hypervisor = declared.hypervisor or ""
    owner = site.inventory.hypervisors[hypervisor]
    wanted = [owner.cards[card].id for alias in declared.cards for card in owner.cards_of(alias)[:1]]
    seen = host.check_output(
        'for f in /sys/bus/pci/devices/*; do read -r v <"$f/vendor"; read -r d <"$f/device"; '
        'echo "${v#0x}:${d#0x}"; done'
    ).splitlines()
    declared_ids = {each for each in wanted if each}
    for each in declared_ids:
        count = wanted.count(each)
        assert seen.count(each) >= count, f"{each} is visible {seen.count(each)} times, not {count}"
    if not declared_ids:
        raise Trivial("no id of a card is declared")
    if site.inventory.lab is not None:
        raise Trivial("a card that the lab emulates answered")
