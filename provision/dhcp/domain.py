"""DHCP, as the composition root sees it."""

from __future__ import annotations

from provision.contracts.domain import Domain

DOMAIN = Domain(
    "dhcp",
    roles={
        "dhcp_reservation": "provision.dhcp.roles.dhcp_reservation:ROLE",
        "address": "provision.dhcp.roles.address:ROLE",
    },
    checks=("provision.dhcp.checks",),
    rules="provision.dhcp.preflight:RULES",
    concerns=lambda inventory: inventory.dhcp is not None,
)
