"""The DHCP back ends that an inventory may name: how each is reached, which keys it uses, what is served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

BackendName = Literal["manual", "dnsmasq", "openwrt", "opnsense", "opnsense_kea", "pfsense", "unifi", "kea"]
Order = Literal["reserve_first", "boot_first"]


@dataclass(frozen=True, slots=True)
class DhcpBackend:
    """What the inventory knows of a back end.

    Args:
        reached: the key of `network.dhcp` that says how its router is reached, or by hand: a person types.
        keys: what else of `network.dhcp` it uses to find its router and the place of reservations there.
        orders: values of `network.dhcp.order` that are served; none while nothing speaks to it.
        proven: somebody has run it.
    """

    reached: Literal["by hand", "ssh", "api"]
    keys: tuple[str, ...] = ()
    orders: tuple[Order, ...] = ()
    proven: bool = False

    @property
    def served(self) -> bool:
        """Whether reservations can be made with it."""
        return bool(self.orders)


DHCP_BACKENDS: Mapping[BackendName, DhcpBackend] = {
    "manual": DhcpBackend("by hand", orders=("reserve_first", "boot_first"), proven=True),
    "dnsmasq": DhcpBackend("ssh", ("address", "file"), orders=("reserve_first",), proven=True),
    "openwrt": DhcpBackend("ssh", ("address",)),
    "opnsense": DhcpBackend("api", ("address", "server")),
    "opnsense_kea": DhcpBackend("api", ("address", "server")),
    "pfsense": DhcpBackend("api", ("address", "server")),
    "unifi": DhcpBackend("api", ("address", "server")),
    "kea": DhcpBackend("ssh", ("address", "file")),
}
