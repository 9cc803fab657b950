"""What ModelHost answers about dnsmasq, from its files: a simpler reading than that of the shell fragment."""

from __future__ import annotations

from collections.abc import Iterator

from provision.dhcp.dnsmasq_files import HOST, LEASE, OPTION, DnsmasqFiles, Row
from provision.testing.model_state import HostState

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
