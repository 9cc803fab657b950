"""DHCP, as the composition root sees it."""

from __future__ import annotations

from provision.contracts.domain import Domain
from provision.dhcp.backends.table import BACKENDS

DOMAIN = Domain(
    "dhcp",
    concerns=lambda inventory: inventory.dhcp is not None,
    systems="provision.dhcp.systems:systems",
    drivers={"router-api": "provision.dhcp.systems:open_api"},
    roles={
        "dhcp_reservation": "provision.dhcp.roles.dhcp_reservation:ROLE",
        "address": "provision.dhcp.roles.address:ROLE",
    },
    rules="provision.dhcp.preflight:RULES",
    query_kinds={"host": "provision.dhcp.query_kinds:HOST_KINDS"},
    checks=("provision.dhcp.checks",),
    backends=BACKENDS,
    unsupported="provision.dhcp.unsupported:unsupported",
    sections=(("network", "dhcp", "api"),),
)
