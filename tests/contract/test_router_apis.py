"""Routers with a web API: logins, certificates, what they refuse, and what they hold of others."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from provision.api.domains import vocabulary
from provision.connections.contracts import WebEndpoint
from provision.connections.web import HttpsWebConnection
from provision.contracts.query import Unknown
from provision.contracts.remedy import ApiCall, Impossible
from provision.contracts.snapshot import Snapshot
from provision.dhcp.contract import Reservation, is_own
from provision.dhcp.resources.reservation import RouterReservation
from provision.dhcp.router_driver import RouterDriver
from provision.dhcp.router_sessions import session_of
from provision.inventory.models.site import Dhcp
from provision.testing.dhcp_contract import OURS, SECOND, ensure
from provision.values.cancel import Cancel
from provision.values.errors import Permanent, Refused, Transient
from provision.values.redaction import Redactor
from provision.values.references import load_object
from tests.contract.router_benches import (
    ROUTERS,
    SECRET,
    USER,
    OpnSenseBench,
    PiHoleBench,
    RouterOsBench,
    SdnBench,
    UniFiBench,
    UniFiServerBench,
    WebBench,
)

WEB_BACKENDS = sorted(
    name for name, backend in vocabulary().dhcp_backends.items() if backend.reached == "api"
)


@contextmanager
def running(kind: type[Any], folder: Path) -> Iterator[Any]:
    with closing(kind(folder)) as bench:
        yield bench


@pytest.fixture(params=list(ROUTERS))
def router(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WebBench]:
    with running(ROUTERS[request.param], tmp_path) as bench:
        yield bench


def test_every_back_end_with_a_web_api_has_a_stand_in() -> None:
    assert sorted({kind.backend for kind in ROUTERS.values()}) == WEB_BACKENDS


def test_a_wrong_secret_is_refused_without_being_shown(router: WebBench) -> None:
    wrong = router.open(replace(router.endpoint, token=SecretStr("wrong-secret")))
    with closing(wrong), pytest.raises(Permanent, match="API_AUTH_FAILED") as caught:
        wrong.answer(frozenset(router.router.queries()), Cancel())
    assert "wrong-secret" not in str(caught.value.diagnostics)
    assert "network.dhcp.api.token" in caught.value.diagnostics[0].remedy


def test_another_certificate_is_refused_before_anything_is_sent(router: WebBench) -> None:
    other = router.open(replace(router.endpoint, fingerprint=":".join(["AB"] * 32)))
    with closing(other), pytest.raises(Refused, match="CERTIFICATE_UNKNOWN"):
        other.answer(frozenset(router.router.queries()), Cancel())
    assert router.asked == []


def test_without_a_fingerprint_the_authorities_of_the_system_decide(router: WebBench) -> None:
    unpinned = router.open(replace(router.endpoint, fingerprint=""))
    with closing(unpinned), pytest.raises(Refused, match="trusts") as caught:
        unpinned.answer(frozenset(router.router.queries()), Cancel())
    assert "api.fingerprint" in caught.value.diagnostics[0].remedy
    assert router.asked == []


def test_an_address_without_https_gets_no_credentials() -> None:
    endpoint = WebEndpoint("http://127.0.0.1:9", USER, SecretStr(SECRET))
    with pytest.raises(Permanent, match="https://"):
        session_of("opnsense", HttpsWebConnection(endpoint), endpoint, Redactor()).request("GET", "/")


def test_only_the_login_says_the_secret(router: WebBench) -> None:
    ensure(router, OURS)
    bodies = [body for _, path, body in router.asked if not path.endswith(("/login", "/api/auth"))]
    assert SECRET not in json.dumps(bodies)


def test_an_unchanged_reservation_costs_one_request_for_each_list(router: WebBench) -> None:
    ensure(router, OURS)
    resource = RouterReservation(router.router, OURS)
    before = router.driver.round_trips
    assert resource.changes(router.ask(resource)) == ()
    assert router.driver.round_trips - before == len(router.router.queries())
    assert {method for method, *_ in router.asked[-len(router.router.queries()) :]} == {"GET"}


def fix_of(bench: WebBench, reservation: Reservation, *, absent: bool = False) -> Any:
    resource = RouterReservation(bench.router, reservation, absent=absent)
    return resource.fix(bench.ask(resource))


def test_opnsense_serves_what_was_reserved_and_frees_what_was_removed(tmp_path: Path) -> None:
    with running(OpnSenseBench, tmp_path) as bench:
        ensure(bench, OURS)
        assert bench.served == {OURS.mac: OURS.address}
        ensure(bench, OURS, absent=True)
        assert bench.served == {}


def test_what_a_killed_run_wrote_to_opnsense_is_applied_by_the_next_one(tmp_path: Path) -> None:
    with running(OpnSenseBench, tmp_path) as bench:
        fix = fix_of(bench, OURS)
        assert isinstance(fix, ApiCall)
        for count in range(len(fix.requests)):
            bench.entries, bench.served = {}, {}
            bench.act(replace(fix, requests=fix.requests[:count]))
            ensure(bench, OURS)  # it sees a difference, and none afterwards
            assert bench.served == {OURS.mac: OURS.address}


@pytest.mark.parametrize(
    ("general", "words"),
    [
        ({"enabled": "0", "manual_config": "0"}, "Kea DHCPv4 server is off"),
        ({"enabled": "1", "manual_config": "1"}, "written by hand"),
    ],
)
def test_a_server_that_would_not_serve_it_is_named(
    tmp_path: Path, general: dict[str, str], words: str
) -> None:
    with running(OpnSenseBench, tmp_path) as bench:
        bench.general = general
        fix = fix_of(bench, OURS)
        assert isinstance(fix, Impossible)
        assert (fix.diagnostic.code, words in fix.diagnostic.summary) == ("DHCP_SERVER_UNUSABLE", True)


def test_an_address_of_no_network_is_named(router: WebBench) -> None:
    if isinstance(router, RouterOsBench):
        router.servers = []
    fix = fix_of(router, Reservation(OURS.mac, "192.0.2.7", OURS.name))
    assert isinstance(fix, Impossible)
    assert fix.diagnostic.code == "DHCP_SERVER_UNUSABLE"


def test_a_reload_that_fails_is_a_failure(tmp_path: Path) -> None:
    with running(OpnSenseBench, tmp_path) as bench:
        bench.reload = "failed"
        with pytest.raises(AssertionError, match="status failed"):
            ensure(bench, OURS)


def test_what_the_router_finds_wrong_is_said(tmp_path: Path) -> None:
    with running(OpnSenseBench, tmp_path) as bench:
        fix = fix_of(bench, OURS)
        bench.reserve(Reservation(OURS.mac, SECOND.address, "meanwhile"))
        with pytest.raises(AssertionError, match=r"reservation.hw_address: Duplicate entry exists\."):
            bench.act(fix)


def test_a_list_that_was_cut_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(OpnSenseBench, tmp_path) as bench:
        whole = bench.answer

        def cut(*request: Any) -> Any:
            status, body = whole(*request)
            return status, {**body, "total": 900} if "rows" in body else body

        monkeypatch.setattr(bench, "answer", cut)
        answers = bench.ask(RouterReservation(bench.router, OURS)).answers.values()
        assert sum("0 of 900" in answer.reason for answer in answers if isinstance(answer, Unknown)) == 2


def test_a_missing_privilege_is_unknown_and_not_absence(
    router: WebBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_request: Any) -> Any:
        return 403, {
            "status": 403,
            "message": "Forbidden",
            "meta": {"rc": "error", "msg": "api.err.Forbidden"},
        }

    ensure(router, OURS)
    monkeypatch.setattr(router, "answer", forbidden)
    answers = router.ask(RouterReservation(router.router, OURS)).answers.values()
    assert answers
    assert all(isinstance(answer, Unknown) and "403" in answer.reason for answer in answers)


def test_passwords_beside_the_networks_are_dropped(tmp_path: Path) -> None:
    with running(UniFiBench, tmp_path) as bench:
        assert "isp-secret" not in repr(bench.ask(RouterReservation(bench.router, OURS)))


def test_a_client_that_the_console_knows_keeps_the_rest_of_its_note(tmp_path: Path) -> None:
    with running(UniFiBench, tmp_path) as bench:
        bench.know({"mac": OURS.mac.upper(), "name": "unknown", "note": "rack 2"})
        ensure(bench, OURS)
        assert bench.users["user0"]["note"] == "rack 2 provision-lab-vm-1"
        ensure(bench, OURS, absent=True)
        assert (bench.users["user0"]["note"], bench.users["user0"]["use_fixedip"]) == ("rack 2", False)


@pytest.mark.parametrize("kind", [UniFiBench, UniFiServerBench])
def test_the_token_of_each_answer_is_sent_with_the_next_write(tmp_path: Path, kind: type[Any]) -> None:
    with running(kind, tmp_path) as bench:
        ensure(bench, OURS)
        bench.renew("second-token")  # the answer to the next GET has it
        ensure(bench, SECOND)
        assert b"second-token" not in bench.redactor.data(b"X-CSRF-Token: second-token")


@pytest.mark.parametrize("kind", [UniFiBench, UniFiServerBench])
def test_a_session_that_ended_is_begun_again(tmp_path: Path, kind: type[Any]) -> None:
    with running(kind, tmp_path) as bench:
        ensure(bench, OURS)
        bench.logins += 1  # the cookie of the first login is void
        ensure(bench, SECOND)
        assert sorted(user["mac"] for user in bench.users.values()) == [OURS.mac, SECOND.mac]


def test_a_router_that_wants_fewer_requests_is_asked_again_later(
    router: WebBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "answer", lambda *_request: (429, {"message": "rate limit"}))
    with pytest.raises(Transient, match="API_UNREACHABLE"):
        router.ask(RouterReservation(router.router, OURS))


def test_a_dynamic_lease_of_the_same_mac_makes_room(tmp_path: Path) -> None:
    with running(RouterOsBench, tmp_path) as bench:
        bench.lease(Reservation(OURS.mac, "198.51.100.150", ""), dynamic="true")
        ensure(bench, OURS)
        assert [lease["address"] for lease in bench.leases.values()] == [OURS.address]


def test_our_lease_that_somebody_switched_off_is_switched_on(tmp_path: Path) -> None:
    with running(RouterOsBench, tmp_path) as bench:
        ensure(bench, OURS)
        (lease,) = bench.leases.values()
        lease["disabled"] = "true"
        ensure(bench, OURS)
        assert [(each["disabled"], each["address"]) for each in bench.leases.values()] == [
            ("false", OURS.address)
        ]
        lease = next(iter(bench.leases.values()))
        lease |= {"disabled": "true", "comment": "printer"}
        resource = RouterReservation(bench.router, OURS)
        (held,) = bench.router.reservations(bench.ask(resource))
        assert held.place == "RouterOS lease printer (disabled)"


def test_several_dhcp_servers_need_a_name(tmp_path: Path) -> None:
    with running(RouterOsBench, tmp_path) as bench:
        bench.servers.append({".id": "*2", "name": "guests", "disabled": "false"})
        fix = fix_of(bench, OURS)
        assert isinstance(fix, Impossible)
        assert "network.dhcp.server" in fix.diagnostic.summary


def test_pihole_restarts_once_for_a_change_and_is_waited_for(tmp_path: Path) -> None:
    with running(PiHoleBench, tmp_path) as bench:
        ensure(bench, OURS)
        assert (bench.hosts, bench.restarts) == (
            [f"{OURS.mac},set:provision-lab-vm-1,{OURS.address},vm-1"],
            1,
        )
        ensure(bench, replace(OURS, mac=SECOND.mac))
        assert (bench.hosts, bench.restarts) == (
            [f"{SECOND.mac},set:provision-lab-vm-1,{OURS.address},vm-1"],
            2,
        )


def test_lines_of_others_on_pihole_are_read_and_kept(tmp_path: Path) -> None:
    with running(PiHoleBench, tmp_path) as bench:
        bench.hosts = [
            "52:54:00:AA:BB:01,set:iot,198.51.100.9,camera,24h",
            "laptop,198.51.100.8",
            "id:x,ignore",
        ]
        bench.leased = [{"hwaddr": SECOND.mac, "ip": SECOND.address, "name": "*", "expires": 0}]
        snapshot = bench.ask(RouterReservation(bench.router, OURS))
        held = [(entry.mac, entry.address, entry.name) for entry in bench.router.reservations(snapshot)]
        assert held == [
            ("52:54:00:aa:bb:01", "198.51.100.9", "camera"),
            ("", "198.51.100.8", "laptop"),
            ("", "", ""),
        ]
        assert [(lease.mac, lease.name) for lease in bench.router.leases(snapshot)] == [(SECOND.mac, "")]
        others = list(bench.hosts)
        ensure(bench, OURS)
        ensure(bench, OURS, absent=True)
        assert bench.hosts == others


def test_a_pihole_that_would_not_serve_it_is_named(tmp_path: Path) -> None:
    with running(PiHoleBench, tmp_path) as bench:
        bench.dhcp["active"] = False
        assert "its DHCP server is off" in fix_of(bench, OURS).diagnostic.summary


def test_an_app_password_without_rights_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hint = "The current app session is not allowed to modify Pi-hole config settings"
    error = {"key": "forbidden", "message": "Unable to change configuration (read-only)", "hint": hint}
    with running(PiHoleBench, tmp_path) as bench:
        monkeypatch.setattr(bench, "_change", lambda *_request: (403, {"error": error}))
        with pytest.raises(AssertionError, match=r"403 Unable to change .* The current app session"):
            ensure(bench, OURS)


def test_the_session_of_pihole_is_ended_with_the_connection(tmp_path: Path) -> None:
    with running(PiHoleBench, tmp_path) as bench:
        ensure(bench, OURS)
        (sid,) = bench.sessions
        assert sid.encode() not in bench.redactor.data(f"X-FTL-SID: {sid}".encode())
        bench.driver.close()
        assert bench.sessions == set()


def test_an_address_that_proxmox_gave_by_itself_becomes_the_declared_one(tmp_path: Path) -> None:
    with running(SdnBench, tmp_path) as bench:
        bench.ips["198.51.100.1"] = {"gateway": 1}
        bench.ips["198.51.100.100"] = {"mac": OURS.mac.upper(), "vmid": 101, "hostname": "vm-1"}
        ensure(bench, OURS)
        assert bench.ips.pop(OURS.address) == {"mac": OURS.mac.upper(), "vmid": "101"}
        assert list(bench.ips) == ["198.51.100.1"]
        refused = fix_of(bench, replace(OURS, address="198.51.100.1"))
        assert "the gateway" in refused.diagnostic.summary


@pytest.mark.parametrize(
    ("zone", "words"),
    [
        ({"dhcp": ""}, "the DHCP server none"),
        ({"ipam": "netbox"}, "IPAM netbox"),
        ({"type": "vxlan"}, "vxlan"),
    ],
)
def test_a_zone_that_serves_no_addresses_is_named(tmp_path: Path, zone: dict[str, str], words: str) -> None:
    with running(SdnBench, tmp_path) as bench:
        bench.zone |= zone
        assert words in fix_of(bench, OURS).diagnostic.summary
        bench.router = replace(bench.router, server="")
        assert "network.dhcp.server" in fix_of(bench, OURS).diagnostic.summary


class RealRouter:
    """A router that somebody has: PROVISION_TEST_DHCP_<NAME> names a JSON file about it.

    The file has `url`, `user`, `token`, `fingerprint` and `server` as `network.dhcp.api` has them, and
    `address`: a free one in a network that the router serves.
    """

    def __init__(self, backend: str, path: str) -> None:
        declared = json.loads(Path(path).read_text())
        endpoint = WebEndpoint(
            declared["url"],
            declared.get("user", ""),
            SecretStr(declared["token"]),
            declared.get("fingerprint", ""),
        )
        self.ours = Reservation(OURS.mac, declared["address"], "provision-test")
        dhcp = Dhcp.model_construct(backend=backend, server=declared.get("server"))
        opener = load_object(vocabulary().dhcp_backends[backend].router)
        self.router = opener("router", "provision-test-", dhcp)
        session = session_of(backend, HttpsWebConnection(endpoint), endpoint, Redactor())
        self.driver = RouterDriver("router", session)

    ask = WebBench.ask
    act = WebBench.act

    def reserve(self, reservation: Reservation) -> None:
        raise NotImplementedError(f"nothing is made by hand on a real router: {reservation}")

    def snapshot(self) -> Snapshot:
        return self.driver.answer(frozenset(self.router.queries()), Cancel())


@pytest.mark.parametrize("backend", WEB_BACKENDS)
def test_a_real_router_makes_changes_and_removes_our_reservation(backend: str) -> None:
    path = os.environ.get(f"PROVISION_TEST_DHCP_{backend.upper()}", "")
    if not path:
        pytest.skip(f"PROVISION_TEST_DHCP_{backend.upper()} is not set: no such router")
    bench = RealRouter(backend, path)
    others = set(bench.router.reservations(bench.snapshot()))
    try:
        ensure(bench, bench.ours)
        if bench.router.capabilities.names:
            ensure(bench, replace(bench.ours, mac=SECOND.mac))
    finally:
        if any(
            is_own(bench.router, entry, bench.ours) for entry in bench.router.reservations(bench.snapshot())
        ):
            ensure(bench, bench.ours, absent=True)
    assert set(bench.router.reservations(bench.snapshot())) == others
