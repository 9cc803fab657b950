"""Every role of hosts with every shipped inventory, killed at every boundary on ModelHost."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from provision.inventory import Subject
from tests.unit.host.converge import killed_everywhere
from tests.unit.roles_host.test_shipped_inventories import CASES, host_of, load, name_of, resources_of


@pytest.mark.parametrize(("path", "role", "kind", "name"), CASES, ids=name_of)
def test_killed_at_every_boundary_the_role_ends_as_an_uninterrupted_run(
    path: Path, role: ModuleType, kind: str, name: str
) -> None:
    inventory = load(path)
    subject = Subject("hypervisor" if kind == "hypervisor" else "node", name)
    boundaries = killed_everywhere(
        lambda: host_of(inventory, subject), lambda host: resources_of(role, inventory, subject, host)
    )
    assert boundaries > 2
