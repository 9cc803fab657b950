from __future__ import annotations

import typing

import pytest

from provision.dhcp.contract import SshRouter
from provision.dhcp.routers import ROUTERS
from provision.inventory.dhcp_backends import DHCP_BACKENDS, BackendName
from provision.inventory.models.site import Dhcp


def test_every_name_of_a_back_end_is_known() -> None:
    assert tuple(DHCP_BACKENDS) == typing.get_args(BackendName)
    assert DHCP_BACKENDS.keys() >= ROUTERS.keys()


@pytest.mark.parametrize("name", DHCP_BACKENDS)
def test_a_back_end_counts_as_served_when_something_or_somebody_serves_it(name: BackendName) -> None:
    backend = DHCP_BACKENDS[name]
    assert backend.served is (name in ROUTERS or backend.reached == "by hand")


@pytest.mark.parametrize("name", ROUTERS)
def test_a_router_keeps_our_entries_by_host_and_inventory(name: BackendName) -> None:
    router = ROUTERS[name]("router", "provision-lab-", Dhcp(backend=name))
    other = ROUTERS[name]("router", "provision-other-", Dhcp(backend=name))
    assert router.system == "router"
    assert len({router.place("vm-1"), router.place("vm-2"), other.place("vm-1")}) == 3
    assert isinstance(router, SshRouter) is (DHCP_BACKENDS[name].reached == "ssh")
