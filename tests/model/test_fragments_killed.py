"""Every kind of resource, file case and role of hosts, killed at every boundary on ModelHost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from provision.contracts.resource import Resource
from provision.inventory import Subject
from provision.testing.host_cases import FILE_CASES, Case
from provision.testing.model_host import ModelHost
from tests.unit.hosts import test_kinds_converge as kinds
from tests.unit.hosts.converge import differing, killed_everywhere
from tests.unit.hosts.roles.test_shipped_inventories import CASES, host_of, load, name_of, resources_of
from tests.unit.hosts.test_file_cases import ROOT
from tests.unit.hosts.test_file_cases import host_of as host_of_files


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


@pytest.mark.parametrize(("name", "make", "resources"), kinds.CASES, ids=[case[0] for case in kinds.CASES])
def test_killed_at_every_boundary_a_kind_ends_as_an_uninterrupted_run(
    name: str, make: kinds.Make, resources: Sequence[Resource]
) -> None:
    first = ModelHost(kinds.S, make())
    if name != "sysctl goes":
        assert differing(first, resources)
    killed_everywhere(lambda: ModelHost(kinds.S, make()), lambda _host: resources)


@pytest.mark.parametrize(
    "case",
    [file_case for file_case in FILE_CASES if not file_case.unchanged and not file_case.refused],
    ids=lambda case: case.name,
)
def test_killed_at_every_boundary_the_case_ends_alike(case: Case) -> None:
    assert killed_everywhere(lambda: host_of_files(case), lambda _host: [case.make(ROOT)]) >= 2
