"""The routers that we speak to, by the name of their back end in an inventory: a line for each file here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from provision.dhcp.backends.dnsmasq import Dnsmasq
from provision.dhcp.contract import Router
from provision.inventory.dhcp_backends import BackendName
from provision.inventory.models.site import Dhcp

ROUTERS: Mapping[BackendName, Callable[[str, str, Dhcp], Router]] = {"dnsmasq": Dnsmasq.declared}
"""Made from the router's system, from how the names of our entries begin, and from what is declared."""
