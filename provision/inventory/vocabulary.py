"""Names that domains bring and that an inventory may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Order = Literal["reserve_first", "boot_first"]


@dataclass(frozen=True, slots=True)
class DhcpBackend:
    """A DHCP server that `network.dhcp.backend` may name.

    Args:
        reached: the key of `network.dhcp` that says how the server is reached, or by hand: a person types;
            nowhere: VMs get their addresses without a server.
        keys: what else of `network.dhcp` it uses to find the server and the place of reservations there.
        orders: values of `network.dhcp.order` that are supported.
        tested: somebody has run it.
        router: `module:attribute` of `(system, prefix, Dhcp) -> Router`, which speaks to it; empty by hand.
    """

    reached: Literal["by hand", "nowhere", "ssh", "api"]
    keys: tuple[str, ...] = ()
    orders: tuple[Order, ...] = ()
    tested: bool = False
    router: str = ""


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind of `host_resources` that a domain adds; all references are `module:attribute`.

    Args:
        model: its model, a subclass of `AddedResource`.
        resources: `(HostSite, declared, source) -> Iterator[Resource]`: what is brought about.
        removed: the same for what `destroy --host` removes; empty where nothing is.
    """

    model: str
    resources: str
    removed: str = ""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Names that are no part of the models; `load` holds the inventory against them.

    Args:
        effect_classes: what `policy` may list.
        dhcp_backends: what `network.dhcp.backend` may be.
        resource_kinds: kinds of `host_resources` besides those of the models.
    """

    effect_classes: tuple[str, ...] = ()
    dhcp_backends: Mapping[str, DhcpBackend] = field(default_factory=dict)
    resource_kinds: Mapping[str, ResourceKind] = field(default_factory=dict)
