from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.contracts.change import Op
from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.remedy import ByHand, Fix, Impossible
from provision.contracts.resource import changes_of
from provision.contracts.snapshot import Snapshot
from provision.dhcp.backends.dnsmasq import LEASES, Dnsmasq, parse_leases, parse_reservations
from provision.dhcp.backends.manual import ManualReservation, neighbour, table
from provision.dhcp.contract import Lease, Reservation, conflict, fold_mac
from provision.dhcp.resources.lease_proof import AddressUsed, LeaseHeld, addresses_of
from provision.dhcp.resources.reservation import RouterReservation
from provision.hosts import host_effects
from provision.hosts.queries.file import ABSENT, FileState, FileStatus
from provision.hosts.queries.shell import ShellResult

MAC = "bc:24:11:00:00:01"
WANTED = Reservation(MAC, "10.0.0.11", "vm-1")
ROUTER = Dnsmasq("router", "provision-lab-")
OURS = "/etc/dnsmasq.d/hosts/provision-lab-vm-1"


def said(text: str) -> ShellResult:
    return ShellResult(0, text.encode(), b"")


def router_snapshot(listing: str = "", leases: str = "", ours: bool = False, clock: float = 0.0) -> Snapshot:
    resource = RouterReservation(ROUTER, WANTED)
    listing_query, _ = ROUTER.queries()
    answers: dict[object, object] = {listing_query: said(listing), LEASES: leases.encode()}
    for query in resource.queries():
        if isinstance(query, FileState):
            answers[query] = FileStatus("file", "0644", digest=query.want) if ours else ABSENT
    return Snapshot("router", answers=answers, clock=clock)


def test_a_new_reservation_is_one_file_that_acts_at_once() -> None:
    resource = RouterReservation(ROUTER, WANTED)
    snapshot = router_snapshot()
    (change,) = resource.changes(snapshot)
    assert (change.op, change.new) == (Op.CREATE, f"{MAC},10.0.0.11,vm-1\n")
    fix = resource.fix(snapshot)
    assert isinstance(fix, Fix)
    assert OURS in fix.script
    assert fix.effects == ()


def test_our_own_file_does_not_conflict_with_itself() -> None:
    line = f"{OURS}:{MAC},10.0.0.11,vm-1\n"
    assert (
        RouterReservation(ROUTER, WANTED).changes(
            router_snapshot(line, f"1 {MAC} 10.0.0.11 vm-1 *\n", ours=True)
        )
        == ()
    )


def test_the_same_reservation_by_somebody_else_is_enough() -> None:
    line = "/etc/dnsmasq.conf:dhcp-host=BC-24-11-00-00-01,vm-1,10.0.0.11,12h\n"
    assert RouterReservation(ROUTER, WANTED).changes(router_snapshot(line)) == ()


@pytest.mark.parametrize(
    ("listing", "leases", "holder"),
    [
        (
            "/etc/dnsmasq.d/x:dhcp-host=52:54:00:00:00:09,10.0.0.11,printer\n",
            "",
            "reserved for 52:54:00:00:00:09",
        ),
        ("/etc/dnsmasq.d/x:dhcp-host=BC:24:11:00:00:01,10.0.0.77\n", "", "has the reservation 10.0.0.77"),
        ("/etc/dnsmasq.d/x:dhcp-host=52:54:00:00:00:09,10.0.0.9,vm-1\n", "", "the name vm-1"),
        ("", "1795960000 52:54:00:00:00:09 10.0.0.11 printer *\n", "leased to 52:54:00:00:00:09 (printer)"),
    ],
)
def test_another_holder_of_the_address_is_named_and_left_alone(
    listing: str, leases: str, holder: str
) -> None:
    resource = RouterReservation(ROUTER, WANTED)
    snapshot = router_snapshot(listing, leases)
    assert [change.op for change in resource.changes(snapshot)] == [Op.ATTENTION]
    refused = resource.fix(snapshot)
    assert isinstance(refused, Impossible)
    assert refused.diagnostic.code == "IP_LEASED_TO_OTHER"
    assert holder in refused.diagnostic.summary


def test_an_expired_lease_does_not_count() -> None:
    lease = "1000 52:54:00:00:00:09 10.0.0.11 printer *\n"
    (change,) = RouterReservation(ROUTER, WANTED).changes(router_snapshot(leases=lease, clock=2000.0))
    assert change.op is Op.CREATE


def test_a_router_that_cannot_be_read_is_not_free() -> None:
    snapshot = router_snapshot()
    listing, _ = ROUTER.queries()
    unread = Snapshot("router", answers={**snapshot.answers, listing: Unknown("denied")})
    assert [change.op for change in changes_of(RouterReservation(ROUTER, WANTED), unread)] == [Op.ATTENTION]


def test_removal_needs_a_reload() -> None:
    resource = RouterReservation(ROUTER, WANTED, absent=True)
    (query,) = resource.queries()
    assert resource.changes(Snapshot("router", answers={query: ABSENT})) == ()
    fix = resource.fix(Snapshot("router", answers={query: FileStatus("file", "0644")}))
    assert isinstance(fix, Fix)
    assert fix.effects == (Effect(host_effects.RELOAD, "dnsmasq.service"),)


@given(st.text(max_size=200))
def test_reading_any_router_text_never_raises(text: str) -> None:
    list(parse_reservations(text))
    list(parse_leases(text))


def test_leases_are_read_with_and_without_names() -> None:
    text = f"1795960000 {MAC.upper()} 10.0.0.11 vm-1 01:bc\n0 52:54:00:00:00:09 10.0.0.9 * *\nduid 00:01\n"
    assert list(parse_leases(text)) == [
        Lease(MAC, "10.0.0.11", "vm-1", 1795960000),
        Lease("52:54:00:00:00:09", "10.0.0.9", "", 0),
    ]


def test_macs_are_compared_in_any_spelling() -> None:
    assert fold_mac(" BC-24-11-00-00-01") == MAC
    assert conflict(WANTED, [Reservation(MAC, "10.0.0.11", "")], [Lease(MAC, "10.0.0.11")]) == ""


def test_the_lines_for_a_person_are_a_table() -> None:
    assert table([WANTED]) == ("MAC address        IP address  Name", f"{MAC}  10.0.0.11   vm-1")


def test_a_person_waits_until_the_vm_answers_at_its_address() -> None:
    resource = ManualReservation("pve/ssh", WANTED, guest="vm-1/ssh")
    snapshot = Snapshot("pve/ssh", answers={resource.query: said("")})
    assert [change.op for change in resource.changes(snapshot)] == [Op.CREATE]
    assert {system for system, _ in resource.affects(resource.changes(snapshot))} == {"vm-1/ssh"}
    by_hand = resource.fix(snapshot)
    assert isinstance(by_hand, ByHand)
    assert MAC in by_hand.lines[-1]
    here = said(f"10.0.0.11 dev vmbr0 lladdr {MAC} REACHABLE\n")
    assert resource.changes(Snapshot("pve/ssh", answers={resource.query: here})) == ()


@pytest.mark.parametrize(
    "line", ["10.0.0.11 dev vmbr0  FAILED", "10.0.0.11 dev vmbr0 lladdr aa FAILED", "", "lladdr"]
)
def test_a_neighbour_that_did_not_answer_proves_nothing(line: str) -> None:
    assert neighbour(said(line)) == ""


LINKS = f"1: lo: <UP> link/loopback 00:00:00:00:00:00\n2: ens18@x: <UP> \\    link/ether {MAC} brd ff\n"


@pytest.mark.parametrize(
    ("addresses", "held"),
    [
        ("2: ens18    inet 10.0.0.11/24 scope global ens18\n", ("10.0.0.11",)),
        ("2: ens19    inet 10.0.0.11/24 scope global ens19\n", ()),
        ("", ()),
    ],
)
def test_an_address_counts_on_the_device_with_the_mac(addresses: str, held: tuple[str, ...]) -> None:
    assert addresses_of(said(LINKS), said(addresses), MAC) == held
    used = AddressUsed("vm-1/ssh", "vm-1", MAC, "10.0.0.11")
    links, listing = used.queries()
    snapshot = Snapshot("vm-1/ssh", answers={links: said(LINKS), listing: said(addresses)})
    assert bool(used.changes(snapshot)) is not bool(held)


def test_a_lease_of_another_mac_is_named() -> None:
    held = LeaseHeld(ROUTER, "vm-1", MAC.upper(), "10.0.0.11")
    assert held.changes(router_snapshot(leases=f"5 {MAC} 10.0.0.11 vm-1 *\n")) == ()
    snapshot = router_snapshot(leases="5 52:54:00:00:00:09 10.0.0.11 x *\n")
    assert held.changes(snapshot)[0].old == "52:54:00:00:00:09"
    assert held.fix(snapshot).diagnostic.code == "LEASE_NOT_RESERVED_IP"
