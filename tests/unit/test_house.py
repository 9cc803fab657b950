"""The house: which words may stand in which room, and what each room may be called."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from provision.api.domains import domains, role_references
from provision.contracts.domain import Domain
from provision.values.references import load_object

PACKAGE = Path(__file__).parents[2] / "provision"
DOMAIN_WORDS = re.compile(
    r"k3s|proxmox|hypervisor|qemu|dnsmasq|\bvms?\b|\bpve\b|nvidia|multus", re.IGNORECASE
)
KERNEL = ("engine", "contracts", "values", "report")
NAMED_AFTER_A_DOMAIN = {
    "api": {
        "bootstrap",
        "discover",
        "import_vms",
        "vm_marker",
        "cards",
        "reserved",
        "domains",
        "cluster_snapshots",
    },
    "cli": {"bootstrap", "discover", "vms", "cards", "reserved", "labs", "lab_network", "main"},
}
"""Modules of commands that are named after a domain, and the two tables that name all."""


def words(path: Path) -> set[str]:
    """Return the domain words of a file."""
    return {match.lower() for match in DOMAIN_WORDS.findall(path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("room", KERNEL)
def test_the_kernel_names_no_domain(room: str) -> None:
    named = {str(path.relative_to(PACKAGE)): words(path) for path in (PACKAGE / room).rglob("*.py")}
    assert {path: found for path, found in named.items() if found} == {}


@pytest.mark.parametrize("room", NAMED_AFTER_A_DOMAIN)
def test_only_commands_of_a_domain_name_it(room: str) -> None:
    paths = [path for path in (PACKAGE / room).glob("*.py") if path.stem not in NAMED_AFTER_A_DOMAIN[room]]
    assert {path.name: words(path) for path in paths if words(path)} == {}


def test_roles_are_named_by_one_domain_each() -> None:
    names = [name for domain in domains() for name in (*domain.roles, *domain.planned_roles)]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("domain", domains(), ids=lambda domain: domain.name)
def test_what_a_domain_names_exists(domain: Domain) -> None:
    references = [domain.systems, domain.parents, domain.rules, domain.evidence, domain.unsupported]
    references += [*domain.drivers.values(), *domain.query_kinds.values(), *domain.roles.values()]
    references += [*domain.commands.values(), *(backend.router for backend in domain.backends.values())]
    for reference in filter(None, references):
        assert load_object(reference) is not None, reference


def test_a_role_is_called_as_its_domain_calls_it() -> None:
    for name, reference in role_references().items():
        assert load_object(reference).name == name


@pytest.mark.parametrize("room", ["engine", "contracts", "values", "report", "connections", "inventory"])
def test_no_room_is_empty(room: str) -> None:
    assert len(list((PACKAGE / room).glob("*.py"))) > 1


def test_names_of_tests_are_short() -> None:
    names = [
        name
        for path in Path(__file__).parents[1].rglob("test_*.py")
        for name in re.findall(r"^ *def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert [name for name in names if len(name) > 70] == []
