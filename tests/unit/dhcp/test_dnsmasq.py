from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.contracts.change import Op
from provision.contracts.effect import Effect
from provision.contracts.query import Frame, Unknown
from provision.contracts.remedy import ByHand, Fix, Impossible
from provision.contracts.resource import changes_of
from provision.contracts.snapshot import Snapshot
from provision.dhcp.backends.dnsmasq import Dnsmasq
from provision.dhcp.backends.manual import ManualReservation, neighbour, table
from provision.dhcp.contract import Lease, Reservation, conflict, fold_mac, router_table
from provision.dhcp.dnsmasq_files import ETHER, HOST, LEASE, OPTION, DnsmasqFilesKind, Row
from provision.dhcp.dnsmasq_hosts import parse_leases, parse_reservations
from provision.dhcp.resources.lease_proof import AddressUsed, LeaseHeld, addresses_of
from provision.dhcp.resources.reservation import RouterReservation
from provision.hosts import host_effects
from provision.hosts.queries.file import ABSENT, FileState, FileStatus
from provision.hosts.queries.shell import ShellResult

MAC = "bc:24:11:00:00:01"
M = "52:54:00:aa:bb"
WANTED = Reservation(MAC, "10.0.0.11", "vm-1")
ROUTER = Dnsmasq("router", "provision-lab-")
OURS = "/etc/dnsmasq.d/hosts/provision-lab-vm-1"


def said(text: str) -> ShellResult:
    return ShellResult(0, text.encode(), b"")


def rows(sort: str, text: str) -> tuple[Row, ...]:
    """Return the rows of `FILE:LINE` lines."""
    return tuple(
        Row(sort, *line.split(":", 1)) if sort != LEASE else Row(sort, "", line) for line in text.splitlines()
    )


def router_snapshot(
    listing: str = "", leases: str = "", ours: bool = False, clock: float = 0.0, sort: str = OPTION
) -> Snapshot:
    resource = RouterReservation(ROUTER, WANTED)
    answers: dict[object, object] = {ROUTER.files: (*rows(sort, listing), *rows(LEASE, leases))}
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
            router_snapshot(line, f"1 {MAC} 10.0.0.11 vm-1 *\n", ours=True, sort=HOST)
        )
        == ()
    )


def test_the_same_reservation_by_somebody_else_is_enough() -> None:
    line = "/etc/dnsmasq.conf:dhcp-host=BC:24:11:0:0:1,vm-1,10.0.0.11,12h\n"
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
    unread = Snapshot("router", answers={**snapshot.answers, ROUTER.files: Unknown("denied")})
    assert [change.op for change in changes_of(RouterReservation(ROUTER, WANTED), unread)] == [Op.ATTENTION]


def test_a_changed_reservation_needs_a_reload() -> None:
    resource = RouterReservation(ROUTER, WANTED)
    snapshot = router_snapshot()
    (query,) = (query for query in resource.queries() if isinstance(query, FileState))
    old = FileStatus("file", "0644", digest="0" * 64, content=f"{MAC},10.0.0.12,vm-1\n".encode())
    fix = resource.fix(Snapshot("router", answers={**snapshot.answers, query: old}))
    assert isinstance(fix, Fix)
    assert fix.effects == (Effect(host_effects.RELOAD, "dnsmasq.service"),)


def test_removal_needs_a_reload() -> None:
    resource = RouterReservation(ROUTER, WANTED, absent=True)
    (query,) = resource.queries()
    assert resource.changes(Snapshot("router", answers={query: ABSENT})) == ()
    fix = resource.fix(Snapshot("router", answers={query: FileStatus("file", "0644")}))
    assert isinstance(fix, Fix)
    assert fix.effects == (Effect(host_effects.RELOAD, "dnsmasq.service"),)


LINES = {
    "blanks around everything": (
        " dhcp-host = 52:54:00:aa:bb:01, 10.0.0.11, nas ",
        [f"{M}:01 10.0.0.11 nas"],
    ),
    "a leading blank": ("  dhcp-host=52:54:00:aa:bb:02,10.0.0.12,tv", [f"{M}:02 10.0.0.12 tv"]),
    "short hex and infinite": (
        "dhcp-host=52:54:0:aa:bb:3,10.0.0.13,vm-3,infinite",
        [f"{M}:03 10.0.0.13 vm-3"],
    ),
    "a comment at the end": ("dhcp-host=52:54:00:aa:bb:04,10.0.0.14,cam # door", [f"{M}:04 10.0.0.14 cam"]),
    "a hash within a word": ("dhcp-host=52:54:00:aa:bb:04,10.0.0.14,cam#1", [f"{M}:04 10.0.0.14 cam#1"]),
    "a tag alone": ("dhcp-host=52:54:00:aa:bb:05,set:lab", []),
    "a name alone": ("dhcp-host=52:54:00:aa:bb:05,lap", []),
    "a lease time alone": ("dhcp-host=52:54:00:aa:bb:05,45m", []),
    "any MAC of a vendor": ("dhcp-host=52:54:00:bb:*:*,10.0.0.16", ["52:54:00:bb:*:* 10.0.0.16 "]),
    "a client id": ("dhcp-host=id:01:52:54:00:aa:bb:07,10.0.0.17,printer", [" 10.0.0.17 printer"]),
    "a name with an address": ("dhcp-host=lap,10.0.0.18", [" 10.0.0.18 lap"]),
    "two cards of one host": (
        "dhcp-host=52:54:00:aa:bb:08,52:54:00:aa:bb:09,10.0.0.19",
        [f"{M}:08 10.0.0.19 ", f"{M}:09 10.0.0.19 "],
    ),
    "a hardware type": ("dhcp-host=06-52:54:00:aa:bb:0a,10.0.0.20", [f"{M}:0a 10.0.0.20 "]),
    "several bytes at once": ("dhcp-host=5254:00aa:bb0b,10.0.0.21", [f"{M}:0b 10.0.0.21 "]),
    "upper case": ("dhcp-host=52:54:00:AA:BB:0C,10.0.0.22", [f"{M}:0c 10.0.0.22 "]),
    "tags around the address": (
        "dhcp-host=tag:known,52:54:00:aa:bb:0d,set:lab,10.0.0.23,net:x,pc,2h",
        [f"{M}:0d 10.0.0.23 pc"],
    ),
    "an IPv6 address beside": ("dhcp-host=52:54:00:aa:bb:0e,[fd00::24],10.0.0.24", [f"{M}:0e 10.0.0.24 "]),
    "a name with its domain": ("dhcp-host=52:54:00:aa:bb:0f,10.0.0.25,pc.lan", [f"{M}:0f 10.0.0.25 pc"]),
    "a quoted name": ('dhcp-host=52:54:00:aa:bb:10,10.0.0.26,"nas" # x', [f"{M}:10 10.0.0.26 nas"]),
    "a time in seconds": ("dhcp-host=52:54:00:aa:bb:11,10.0.0.27,3600", [f"{M}:11 10.0.0.27 "]),
    "a name like a time": ("dhcp-host=52:54:00:aa:bb:12,10.0.0.28,db2w", [f"{M}:12 10.0.0.28 db2w"]),
    "commented out": ("#dhcp-host=52:54:00:aa:bb:13,10.0.0.29", []),
    "another option": ("dhcp-hostsdir=/etc/dnsmasq.d/hosts", []),
}


@pytest.mark.parametrize(("line", "reservations"), LINES.values(), ids=LINES.keys())
def test_reservations_are_read_as_dnsmasq_reads_them(line: str, reservations: list[str]) -> None:
    parsed = parse_reservations([Row(OPTION, "/etc/dnsmasq.conf", line)])
    assert [f"{entry.mac} {entry.address} {entry.name}" for entry in parsed] == reservations


@pytest.mark.parametrize(
    ("line", "holder"),
    [
        ("dhcp-host=id:01:aa,10.0.0.11,printer", "reserved for id:01:aa (printer) in /c"),
        ("dhcp-host=lap,10.0.0.11", "reserved for the host named lap in /c"),
        ("dhcp-host=52:54:00:*:*:*,10.0.0.11", "reserved for 52:54:00:*:*:* (no name) in /c"),
        ("dhcp-host=bc:24:11:*:*:*,ignore", "the router ignores bc:24:11:*:*:* in /c"),
        ("dhcp-host=bc:24:11:0:0:1,ignore", f"the router ignores {MAC} in /c"),
        ("dhcp-host=52:54:00:00:00:01,ignore", ""),
        ("dhcp-host=bc:24:11:0:0:1,set:lab", ""),
        ("dhcp-host=bc:24:11:*:*:*,10.0.0.11", ""),
    ],
)
def test_who_holds_an_address_is_named_whatever_the_router_knows(line: str, holder: str) -> None:
    snapshot = router_snapshot(f"/c:{line}")
    table = router_table(ROUTER, snapshot)
    assert holder in conflict(WANTED, table.like(WANTED), ())
    assert bool(conflict(WANTED, table.like(WANTED), ())) is bool(holder)


def test_ethers_are_reservations() -> None:
    text = [
        "52:54:00:aa:bb:01 10.0.0.11",
        "52:54:00:aa:bb:02 nas # a name",
        "# 52:54:00:aa:bb:03 10.0.0.13",
        "x",
    ]
    parsed = list(parse_reservations([Row(ETHER, "/etc/ethers", line) for line in text]))
    assert [(entry.mac, entry.address) for entry in parsed] == [("52:54:00:aa:bb:01", "10.0.0.11")]


@given(st.text(max_size=60), st.sampled_from([OPTION, HOST, ETHER, LEASE, "?"]))
@settings(max_examples=60)
def test_reading_any_router_text_never_raises(text: str, sort: str) -> None:
    row = [Row(sort, "/x", text), Row(sort, "/x", f"dhcp-host={text}")]
    list(parse_reservations(row))
    list(parse_leases(row))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("begin\t0\nunreadable\t/etc/secret.conf\t\nend\n", "/etc/secret.conf"),
        ("begin\t0\noption\t/c\tdhcp-host=x\n", "cannot be read"),
        ("", "cannot be read"),
        ("\x00\xff\n", "cannot be read"),
    ],
)
def test_files_that_cannot_be_read_are_unknown_not_absent(text: str, reason: str) -> None:
    answer = DnsmasqFilesKind().parse(Frame(text.encode(), b"", 0), [ROUTER.files])[ROUTER.files]
    assert isinstance(answer, Unknown)
    assert reason in answer.reason


def test_an_old_lease_of_the_same_mac_is_named() -> None:
    held = LeaseHeld(ROUTER, "vm-1", MAC, "10.0.0.11")
    old = datetime(2026, 5, 4, 14, 10).astimezone()
    snapshot = router_snapshot(leases=f"{old.timestamp():.0f} {MAC} 10.0.0.21 vm-1 *\n", clock=1000.0)
    assert [change.op for change in held.changes(snapshot)] == [Op.ATTENTION]
    diagnostic = held.fix(snapshot).diagnostic
    assert diagnostic.code == "LEASE_NOT_RESERVED_IP"
    assert diagnostic.evidence == ("the router leased 10.0.0.21 to this MAC until 2026-05-04 14:10",)


def test_leases_are_read_with_and_without_names() -> None:
    text = f"1795960000 {MAC.upper()} 10.0.0.11 vm-1 01:bc\n0 52:54:00:00:00:09 10.0.0.9 * *\nduid 00:01\n"
    assert list(parse_leases(rows(LEASE, text))) == [
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
    _, word = resource.queries()
    snapshot = Snapshot("pve/ssh", answers={resource.query: said(""), word: None})
    assert [change.op for change in resource.changes(snapshot)] == [Op.CREATE]
    assert {system for system, _ in resource.affects(resource.changes(snapshot))} == {"vm-1/ssh"}
    by_hand = resource.fix(snapshot)
    assert isinstance(by_hand, ByHand)
    assert MAC in by_hand.lines[-1]
    here = said(f"10.0.0.11 dev vmbr0 lladdr {MAC} REACHABLE\n")
    assert resource.changes(Snapshot("pve/ssh", answers={resource.query: here, word: None})) == ()


@pytest.mark.parametrize(
    ("word", "neighbours", "waits"),
    [
        (f"{MAC} 10.0.0.11\n", "", False),
        (f"{MAC} 10.0.0.12\n", "", True),  # the inventory has another address by now
        ("bc:24:11:00:00:99 10.0.0.11\n", "", True),  # the VM has another MAC by now
        (f"{MAC} 10.0.0.11\n", "10.0.0.11 dev vmbr0 lladdr 52:54:00:00:00:09 REACHABLE\n", True),
        ("", "", True),
    ],
)
def test_a_word_counts_for_its_own_mac_and_address_alone(word: str, neighbours: str, waits: bool) -> None:
    resource = ManualReservation("pve/ssh", WANTED, guest="vm-1/ssh", inventory="home")
    query, given = resource.queries()
    answers = {query: said(neighbours), given: word.encode()}
    assert bool(resource.changes(Snapshot("pve/ssh", answers=answers))) is waits


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
