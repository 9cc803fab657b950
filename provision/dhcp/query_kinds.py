"""What the DHCP domain asks of hosts."""

from __future__ import annotations

from collections.abc import Mapping

from provision.contracts.query import QueryKind
from provision.dhcp.dnsmasq_files import DnsmasqFiles, DnsmasqFilesKind
from provision.dhcp.listing import KINDS

HOST_KINDS: Mapping[str, QueryKind] = {DnsmasqFiles.kind: DnsmasqFilesKind(), **KINDS}
"""How each kind of question is asked, by `Query.kind`."""
