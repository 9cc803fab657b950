"""What a resource brings to a machine that does not exist yet is what it would bring to an empty one."""

from __future__ import annotations

import pytest

from provision.contracts.resource import Creatable, Resource, changes_of
from provision.hosts.resources.file import File, FileLine
from provision.hosts.resources.package import Package
from provision.testing.model_host import ModelHost, guest_state
from provision.values.cancel import Cancel

SYSTEM = "vm-1/ssh"


@pytest.mark.parametrize(
    "resource",
    [
        File(SYSTEM, "/etc/new", b"text\n"),
        File(SYSTEM, "/etc/new", b"planted-1f2e", mode="0600", secret=True),
        File(SYSTEM, "/etc/new", absent=True),
        FileLine(SYSTEM, "/etc/new", "a line"),
        Package(SYSTEM, ("nvtop", "jq")),
        Package(SYSTEM, ("nvtop",), absent=True),
    ],
    ids=lambda resource: type(resource).__name__,
)
def test_a_creation_is_the_change_on_an_empty_machine(resource: Resource) -> None:
    assert isinstance(resource, Creatable)
    host = ModelHost(SYSTEM, guest_state())
    snapshot = host.answer(frozenset(resource.queries()), Cancel())
    assert resource.creation() == changes_of(resource, snapshot)
    assert "planted" not in str(resource.creation())
