"""All systems of a site, who opens them, and whose steps come first."""

from __future__ import annotations

from collections.abc import Iterator

from provision.api.domains import domains, effect_classes
from provision.api.run_identity import who
from provision.connections.contracts import Endpoint
from provision.connections.ssh_pool import SshPool
from provision.contracts.domain import Domain, Opening
from provision.contracts.driver import Driver
from provision.contracts.hook import Hook
from provision.contracts.query import QueryKind
from provision.contracts.role import Parent
from provision.contracts.system import SystemSpec
from provision.inventory import Inventory, Subject
from provision.values.redaction import Redactor
from provision.values.references import load_object


def _concerned(inventory: Inventory) -> Iterator[Domain]:
    return (domain for domain in domains() if domain.concerns(inventory))


def systems(inventory: Inventory) -> dict[str, SystemSpec]:
    """Return all systems by name."""
    specs: list[SystemSpec] = []
    for domain in _concerned(inventory):
        if domain.systems:
            specs += load_object(domain.systems)(inventory)
    return {spec.name: spec for spec in specs}


def parents(inventory: Inventory, subject: Subject) -> tuple[Parent, ...]:
    """Return whose steps come before those of a subject."""
    return tuple(
        parent
        for domain in domains()
        if domain.parents and domain.concerns(inventory)  # in this order: it is asked once a subject
        for parent in load_object(domain.parents)(inventory, subject)
    )


def hooks(inventory: Inventory) -> tuple[Hook, ...]:
    """Return what is done on other systems before and after effects."""
    return tuple(
        hook
        for domain in _concerned(inventory)
        if domain.hooks
        for hook in load_object(domain.hooks)(inventory)
    )


def query_kinds(system_kind: str) -> dict[str, QueryKind]:
    """Return how each kind of question to a kind of system is asked, by the kind of question."""
    kinds: dict[str, QueryKind] = {}
    for domain in domains():
        if system_kind in domain.query_kinds:
            kinds |= load_object(domain.query_kinds[system_kind])
    return kinds


def open_system(
    inventory: Inventory, redactor: Redactor, ssh_pool: SshPool, spec: SystemSpec, endpoint: Endpoint
) -> Driver:
    """Return the driver of a real system; nothing is sent yet."""
    opener = next(domain.drivers[spec.kind] for domain in domains() if spec.kind in domain.drivers)
    opening = Opening(
        spec,
        endpoint,
        inventory,
        redactor,
        ssh_pool,
        who(),
        effect_classes().values(),
        query_kinds(spec.kind),
    )
    driver: Driver = load_object(opener)(opening)
    return driver
