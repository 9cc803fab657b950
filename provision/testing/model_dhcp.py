"""What ModelHost answers about dnsmasq, from its files: a simpler reading than that of the shell fragment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from provision.dhcp.contract import Reservation
from provision.dhcp.dnsmasq_files import HOST, LEASE, OPTION, DnsmasqFiles, Row
from provision.dhcp.dnsmasq_hosts import parse_leases
from provision.dhcp.listing import KeaState, RouterRow, UciState
from provision.dhcp.operations import KeaEdit, UciEdit
from provision.testing.model_state import HostState, ModelFile

CONFIGURATION = "/etc/dnsmasq.conf"
FOLDER = "/etc/dnsmasq.d/"
LEASES = "/var/lib/misc/dnsmasq.leases"


def dnsmasq_rows(state: HostState, query: DnsmasqFiles) -> tuple[Row, ...]:
    """Return all lines of the configuration, the reservations and the leases."""
    rows = [*_rows(state, CONFIGURATION, OPTION)]
    for path in state.below(FOLDER):
        if "/" not in path.removeprefix(FOLDER):
            rows += _rows(state, path, OPTION)
    folder = f"{query.folder}/"
    for path in state.below(folder):
        if not path.removeprefix(folder).startswith("."):
            rows += _rows(state, path, HOST)
    return (*rows, *_rows(state, LEASES, LEASE))


def _rows(state: HostState, path: str, sort: str) -> Iterator[Row]:
    file = state.files.get(path)
    for line in (file.content or b"" if file is not None else b"").decode(errors="replace").splitlines():
        if line.strip():
            yield Row(sort, path, line)


LISTED = "/model/reservations/"
"""Files of the model that stand for the reservations of Kea and OpenWrt, named after their places."""


def listed_rows(state: HostState, query: KeaState | UciState) -> tuple[RouterRow, ...]:
    """Return all reservations and leases of a router that lists them."""
    del query
    rows: list[RouterRow] = []
    for path in state.below(LISTED):
        mac, address, name = (state.files[path].content or b"").decode().split("\t")
        rows.append(Reservation(mac, address, name, path.removeprefix(LISTED)))
    return (*rows, *parse_leases(_rows(state, LEASES, LEASE)))


def edit_listed(state: HostState, op: KeaEdit | UciEdit) -> None:
    """Make or remove a reservation."""
    place = f"kea:{op.own}" if isinstance(op, KeaEdit) else f"dhcp.{op.section}"
    if op.mac:
        state.files[LISTED + place] = ModelFile(f"{op.mac}\t{op.address}\t{op.name}".encode())
    else:
        state.files.pop(LISTED + place, None)


ANSWERS: dict[type[Any], Any] = {DnsmasqFiles: dnsmasq_rows, KeaState: listed_rows, UciState: listed_rows}
"""How each query of routers is answered."""

OPERATIONS: dict[type[Any], Any] = {KeaEdit: edit_listed, UciEdit: edit_listed}
"""How each operation on routers is done."""
