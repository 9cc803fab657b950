from __future__ import annotations

import pytest

from provision.dhcp.backends.table import BACKENDS
from provision.dhcp.contract import as_seconds
from provision.inventory.models.site import Dhcp
from provision.values.references import load_object

ROUTERS = [name for name, backend in BACKENDS.items() if backend.router]


@pytest.mark.parametrize("name", BACKENDS)
def test_a_back_end_has_a_router_or_needs_none(name: str) -> None:
    backend = BACKENDS[name]
    assert bool(backend.router) is (backend.reached not in ("by hand", "nowhere"))
    assert backend.orders


@pytest.mark.parametrize("name", ROUTERS)
def test_a_router_keeps_our_entries_by_host_and_inventory(name: str) -> None:
    make = load_object(BACKENDS[name].router)
    router = make("router", "provision-lab-", Dhcp(backend=name))
    other = make("router", "provision-other-", Dhcp(backend=name))
    assert router.system == "router"
    assert len({router.place("vm-1"), router.place("vm-2"), other.place("vm-1")}) == 3


@pytest.mark.parametrize("text", ["", "-1", "1e9", "\u0663", "9" * 21, "9" * 5000])
def test_an_end_of_a_lease_that_is_no_number_of_64_bits_is_none(text: str) -> None:
    assert as_seconds(text) == 0
    assert as_seconds("1764547200") == 1764547200
