"""What every back end for reservations must do, as cases for its own tests.

    @pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
    def test_contract(case, bench): case(bench)

A bench runs a server, or what stands for one, and asks and changes it as a host would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, cast

from provision.contracts.change import Op
from provision.contracts.remedy import ApiCall, Fix, Impossible
from provision.contracts.resource import Resource
from provision.contracts.snapshot import Snapshot
from provision.dhcp.contract import Reservation, Router, fold_mac, router_table
from provision.dhcp.resources.reservation import RouterReservation


class Bench(Protocol):
    """A server under test, in the network 198.51.100.0/24 without reservations."""

    @property
    def router(self) -> Router:
        """The back end."""

    def ask(self, resource: Resource) -> Snapshot:
        """Return the answers to a resource's questions."""

    def act(self, fix: Fix | ApiCall) -> None:
        """Carry out a fix and the effects that it names, or the requests of a call."""

    def reserve(self, reservation: Reservation) -> None:
        """Make a reservation as somebody else does."""


OURS = Reservation("bc:24:11:00:00:01", "198.51.100.21", "vm-1")
SECOND = Reservation("bc:24:11:00:00:02", "198.51.100.22", "vm-2")
FOREIGN = Reservation("52:54:00:aa:bb:01", "198.51.100.11", "nas")


def _entry(bench: Bench, reservation: Reservation, *, absent: bool = False) -> RouterReservation:
    return RouterReservation(bench.router, reservation, absent=absent)


def ensure(bench: Bench, reservation: Reservation, *, absent: bool = False) -> None:
    """Make a reservation, or remove it, and see that it is so."""
    resource = _entry(bench, reservation, absent=absent)
    snapshot = bench.ask(resource)
    _require(resource.changes(snapshot), f"nothing differs before {reservation} is ensured")
    remedy = resource.fix(snapshot)
    _require(isinstance(remedy, Fix | ApiCall), f"no fix, but {remedy}")
    bench.act(cast("Fix | ApiCall", remedy))
    again = resource.changes(bench.ask(resource))
    _require(not again, f"{reservation} still differs: {again}")


def _require(condition: object, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _require_listed(bench: Bench, expected: Mapping[str, tuple[str, str]]) -> None:
    listed = _listed(bench)
    if not bench.router.capabilities.names:
        listed = {mac: (row[0], expected.get(mac, ("", ""))[1]) for mac, row in listed.items()}
    _require(listed == expected, f"listed: {listed}, expected: {dict(expected)}")


def _listed(bench: Bench) -> dict[str, tuple[str, str]]:
    """Return address and place by MAC."""
    table = router_table(bench.router, bench.ask(_entry(bench, OURS)))
    return {entry.mac: (entry.address, entry.place) for entry in table.reservations}


def check_an_empty_server_lists_nothing(bench: Bench) -> None:
    """Nothing there is an answer, and not an unknown one."""
    _require_listed(bench, {})


def check_what_is_ensured_is_listed(bench: Bench) -> None:
    """A reservation has its MAC, address and place, and a second run changes nothing."""
    ensure(bench, OURS)
    ensure(bench, SECOND)
    expected = {entry.mac: (entry.address, bench.router.place(entry.name)) for entry in (OURS, SECOND)}
    _require_listed(bench, expected)


def check_a_changed_address_replaces_the_old_one(bench: Bench) -> None:
    """The old address is free afterwards."""
    ensure(bench, OURS)
    moved = Reservation(OURS.mac, "198.51.100.31", OURS.name)
    ensure(bench, moved)
    _require_listed(bench, {moved.mac: (moved.address, bench.router.place(moved.name))})


def check_a_changed_mac_replaces_the_old_one(bench: Bench) -> None:
    """A machine that was made again has another MAC; without names, that is refused."""
    ensure(bench, OURS)
    other = Reservation(SECOND.mac, OURS.address, OURS.name)
    if not bench.router.capabilities.names:
        resource = _entry(bench, other)
        _require(isinstance(resource.fix(bench.ask(resource)), Impossible), "not refused")
        return
    ensure(bench, other)
    _require_listed(bench, {other.mac: (other.address, bench.router.place(other.name))})


def check_another_holder_is_named(bench: Bench) -> None:
    """An address that somebody else reserved is refused with the holder's MAC, and nothing changes."""
    bench.reserve(FOREIGN)
    resource = _entry(bench, Reservation(OURS.mac, FOREIGN.address, OURS.name))
    snapshot = bench.ask(resource)
    _require([change.op for change in resource.changes(snapshot)] == [Op.ATTENTION], "not refused")
    refused = resource.fix(snapshot)
    _require(isinstance(refused, Impossible), f"not refused, but {refused}")
    diagnostic = cast("Impossible", refused).diagnostic
    _require(diagnostic.code == "IP_LEASED_TO_OTHER", diagnostic.code)
    _require(FOREIGN.mac in diagnostic.summary, diagnostic.summary)


def check_the_same_reservation_by_somebody_else_is_enough(bench: Bench) -> None:
    """What a person reserved already is taken as it is."""
    bench.reserve(OURS)
    resource = _entry(bench, OURS)
    changes = resource.changes(bench.ask(resource))
    _require(not changes, f"still differs: {changes}")


def check_only_our_entry_is_removed(bench: Bench) -> None:
    """What others reserved stays."""
    bench.reserve(FOREIGN)
    ensure(bench, OURS)
    ensure(bench, SECOND)
    mac = "" if bench.router.capabilities.names else OURS.mac
    ensure(bench, Reservation(mac, OURS.address, OURS.name), absent=True)
    listed = _listed(bench)
    _require(sorted(listed) == sorted((FOREIGN.mac, SECOND.mac)), f"listed: {listed}")
    _require(listed[FOREIGN.mac][0] == FOREIGN.address, f"listed: {listed}")


def check_macs_are_listed_in_one_spelling(bench: Bench) -> None:
    """Lower case, colons, two digits a byte."""
    bench.reserve(Reservation(FOREIGN.mac.upper(), FOREIGN.address, FOREIGN.name))
    _require(list(_listed(bench)) == [fold_mac(FOREIGN.mac)], f"listed: {_listed(bench)}")


CASES: Mapping[str, Callable[[Bench], None]] = {
    name.removeprefix("check_"): check
    for name, check in sorted(globals().items())
    if name.startswith("check_")
}
"""All cases by name."""
