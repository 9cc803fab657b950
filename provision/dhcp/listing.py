"""Routers that list all reservations and leases by one command: what they answer, and our entry there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op
from provision.contracts.query import Frame, QueryKind, Unknown
from provision.contracts.snapshot import Snapshot
from provision.dhcp import uci
from provision.dhcp.contract import Lease, Reservation, as_seconds, fold_mac
from provision.dhcp.operations import KeaEdit, UciEdit, kea_shell
from provision.hosts.resources.base import HostResource, Operations, no_answer

RouterRow = Reservation | Lease


@dataclass(frozen=True, slots=True)
class KeaState:
    """All reservations and leases of Kea; the answer is a tuple of `RouterRow`.

    Args:
        socket: its control socket.
    """

    kind: ClassVar[str] = "kea-state"
    socket: str


@dataclass(frozen=True, slots=True)
class UciState:
    """All reservations and leases of OpenWrt; the answer is a tuple of `RouterRow`."""

    kind: ClassVar[str] = "uci-dhcp"


class KeaStateKind:
    """One program for a socket; it prints no part of the configuration but reservations and leases."""

    query = KeaState

    def script(self, queries: Sequence[KeaState]) -> str:
        """Return the fragment; each socket has rows of its own after a line with its number."""
        return "\n".join(
            f"printf 'begin\\t{index}\\n'\n(\n{kea_shell('state', query.socket)}) || :"
            for index, query in enumerate(queries)
        )

    def parse(
        self, frame: Frame, queries: Sequence[KeaState]
    ) -> Mapping[KeaState, tuple[RouterRow, ...] | Unknown]:
        """Return the rows for each socket."""
        parts: dict[str, list[str]] = {}
        lines: list[str] = []
        for line in frame.stdout.decode("utf-8", "replace").split("\n"):
            if line.startswith("begin\t"):
                lines = parts.setdefault(line.partition("\t")[2], [])
            else:
                lines.append(line)
        return {query: _rows(parts.get(str(index), []), frame, "Kea") for index, query in enumerate(queries)}


class UciStateKind:
    """`uci show dhcp` and the lease files that it names."""

    query = UciState

    def script(self, queries: Sequence[UciState]) -> str:
        """Return the fragment."""
        del queries
        return uci.SHOW

    def parse(
        self, frame: Frame, queries: Sequence[UciState]
    ) -> Mapping[UciState, tuple[RouterRow, ...] | Unknown]:
        """Return the rows."""
        lines = frame.stdout.decode("utf-8", "replace").split("\n")
        if "end" not in lines or frame.dropped:
            return dict.fromkeys(queries, no_answer(frame, "OpenWrt's reservations"))
        return dict.fromkeys(queries, uci.rows(lines[: lines.index("end")]))


def _rows(lines: Sequence[str], frame: Frame, what: str) -> tuple[RouterRow, ...] | Unknown:
    if "end" not in lines or frame.dropped:
        return no_answer(frame, f"{what}'s reservations")
    return tuple(_read(lines[: lines.index("end")]))


def _read(lines: Sequence[str]) -> Iterator[RouterRow]:
    for line in lines:
        fields = line.split("\t")
        if fields[0] == "r" and len(fields) == 6 and fields[2]:  # noqa: PLR2004 - fields of a reservation
            _, mac, address, name, place, client = fields
            yield Reservation(fold_mac(mac), address, name, place, client=client)
        elif fields[0] == "l" and len(fields) == 5:  # noqa: PLR2004 - fields of a lease
            _, mac, address, name, end = fields
            yield Lease(fold_mac(mac), address, name, as_seconds(end))


KINDS: Mapping[str, QueryKind] = {KeaState.kind: KeaStateKind(), UciState.kind: UciStateKind()}
"""How these questions are asked, by `Query.kind`."""


def reservation_changes(
    own: Sequence[Reservation], desired: Reservation, *, absent: bool
) -> tuple[Change, ...]:
    """Return how our entries on a router differ from the one that is desired, or from none."""
    old = ", ".join(map(str, own)) or None
    if absent:
        return (Change(Op.DELETE, "reservation", old, None),) if own else ()
    if old == str(desired):
        return ()
    return (Change(Op.UPDATE if own else Op.CREATE, "reservation", old, str(desired)),)


@dataclass(frozen=True, slots=True)
class ListedEntry(HostResource):
    """Our reservation on a router that lists it, or that there is none.

    Args:
        listing: the question whose answer lists it.
        place: its place there, as `Reservation.place`.
        reservation: MAC, address, name.
        edit: what makes it so.
        absent: it must not be there.
    """

    kind: ClassVar[str] = "dhcp-reservation"

    listing: KeaState | UciState
    place: str
    reservation: Reservation
    edit: KeaEdit | UciEdit
    absent: bool = False

    def _key_name(self) -> str:
        return self.place

    def queries(self) -> tuple[KeaState | UciState, ...]:
        """Ask for the listing."""
        return (self.listing,)

    def _held(self, snapshot: Snapshot) -> list[Reservation]:
        return [
            row for row in snapshot[self.listing] if isinstance(row, Reservation) and row.place == self.place
        ]

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Compare MAC, address and name; two entries of ours are one too many."""
        return reservation_changes(self._held(snapshot), self.reservation, absent=self.absent)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return the one edit."""
        del snapshot
        return (self.edit,)
