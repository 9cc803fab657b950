"""Every DHCP back end against one contract: real servers where they are installed, with a real client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from provision.dhcp.contract import Reservation, router_table
from provision.dhcp.resources.reservation import RouterReservation
from provision.testing.dhcp_contract import CASES, OURS, Bench, ensure
from tests.contract.dhcp_benches import BENCHES, DnsmasqBench, KeaBench, UciBench, bench, missing

SERVERS = ["dnsmasq", "kea"]


@pytest.fixture(params=list(BENCHES))
def any_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    why = missing(*BENCHES[request.param][1]) if request.param in SERVERS else ""
    if why:
        pytest.skip(why)
    with bench(request.param, tmp_path) as running:
        yield running


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_contract(case: Callable[[Bench], None], any_bench: Bench) -> None:
    case(any_bench)


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    why = missing(*BENCHES[request.param][1], "udhcpc")
    if why:
        pytest.skip(why)
    with bench(request.param, tmp_path) as running:
        yield running


def leased(running: Any, mac: str) -> list[str]:
    """Return the addresses that the server says it leased to a MAC."""
    snapshot = running.ask(RouterReservation(running.router, OURS))
    return [lease.address for lease in router_table(running.router, snapshot).held_by(mac)]


def test_a_real_client_gets_what_was_reserved_and_its_lease_is_listed(server: Any) -> None:
    ensure(server, OURS)
    time.sleep(0.3)  # dnsmasq notices a new file by itself
    assert server.space.client(OURS.mac) == OURS.address
    assert leased(server, OURS.mac) == [OURS.address]


def test_a_real_client_gets_the_changed_address(server: Any) -> None:
    ensure(server, OURS)
    time.sleep(0.3)
    server.space.client(OURS.mac)
    moved = Reservation(OURS.mac, "198.51.100.31", OURS.name)
    ensure(server, moved)
    assert server.space.client(OURS.mac) == moved.address


def test_reservations_outlive_a_restart_of_dnsmasq(tmp_path: Path) -> None:
    why = missing(*BENCHES["dnsmasq"][1])
    if why:
        pytest.skip(why)
    with bench("dnsmasq", tmp_path) as running:
        assert isinstance(running, DnsmasqBench)
        ensure(running, OURS)
        running.start()
        resource = RouterReservation(running.router, OURS)
        assert resource.changes(running.ask(resource)) == ()


def test_kea_keeps_its_configuration_in_its_file(tmp_path: Path) -> None:
    why = missing(*BENCHES["kea"][1])
    if why:
        pytest.skip(why)
    with bench("kea", tmp_path) as running:
        assert isinstance(running, KeaBench)
        ensure(running, OURS)
        assert OURS.mac in (tmp_path / "kea.conf").read_text()


def test_an_openwrt_whose_server_is_odhcpd_is_read_and_reloaded(tmp_path: Path) -> None:
    with bench("openwrt", tmp_path) as running:
        assert isinstance(running, UciBench)
        ensure(running, OURS)
        assert (tmp_path / "reloads").read_text() == "reload\n"
        with running.file.open("a") as file:
            file.write("dhcp.odhcpd=odhcpd\ndhcp.odhcpd.maindhcp='1'\n")
        # as statefiles.c of odhcpd writes it, by two releases, among lines for /etc/hosts and DHCPv6
        (tmp_path / "leases").write_text(
            "198.51.100.21\tvm-1.lan\tvm-1\n"
            "# br-lan bc2411000001 ipv4 vm-1 1764547200 c6336415 32 198.51.100.21/32\n"
            "# br-lan bc:24:11:0:0:2 ipv4 broken\\x20- -1 c6336416 32 198.51.100.22/32\n"
            "# br-lan bc2411000003 ipv4 - 0 c6336417 32 198.51.100.23/32\n"
            "# br-lan 000300010a 2b1 vm-1 -1 415 128 fd00::415/128\n"
        )
        table = router_table(running.router, running.ask(RouterReservation(running.router, OURS)))
        assert [(lease.mac, lease.name, lease.expires) for lease in table.leases_of(OURS.address)] == [
            (OURS.mac, "vm-1", 1764547200)
        ]
        (endless,) = table.held_by("bc:24:11:00:00:02")
        assert (endless.address, endless.name, endless.until) == ("198.51.100.22", "", "for ever")
        assert table.held_by("bc:24:11:00:00:03") == ()
        ensure(running, OURS, absent=True)
        assert (tmp_path / "reloads").read_text() == "reload\nreload\nodhcpd\n"


def test_what_somebody_staged_on_openwrt_is_not_committed(tmp_path: Path) -> None:
    with bench("openwrt", tmp_path) as running:
        assert isinstance(running, UciBench)
        Path(f"{running.file}.changes").write_text("dhcp.lan.start='50'\n")
        resource = RouterReservation(running.router, OURS)
        fix = resource.fix(running.ask(resource))
        frame = running.shell(fix.script)  # type: ignore[union-attr]  # it is a fix
        assert frame.rc == 1
        assert b"uci commit dhcp" in frame.stderr
        assert OURS.mac not in running.file.read_text()
