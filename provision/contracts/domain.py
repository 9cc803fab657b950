"""What a domain brings into the house: its one entry in the composition root.

What is slow to import is named as `module:attribute`, as entry points are, and loaded when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from provision.connections.contracts import Endpoint
from provision.connections.ssh_pool import SshPool
from provision.contracts.effect import EffectClass
from provision.contracts.query import QueryKind
from provision.contracts.support import Untested
from provision.contracts.system import SystemSpec
from provision.inventory import Inventory
from provision.inventory.vocabulary import DhcpBackend, ResourceKind
from provision.values.redaction import Redactor


def _always(_inventory: Inventory) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Domain:
    """One link of the chain.

    Args:
        name: of its folder.
        concerns: whether an inventory declares anything of it; where not, nothing of it is imported.
        effects: the effect classes that it declares.
        systems: `(inventory) -> Iterable[SystemSpec]`: the systems that it brings; empty for none.
        drivers: by system kind, `(Opening) -> Driver`.
        query_kinds: by system kind, a mapping of `QueryKind` by the kind of question.
        parents: `(inventory, subject) -> tuple[Parent, ...]`: whose steps come first; empty for none.
        roles: its `Role` objects by role name.
        planned_roles: names of roles that are known and not supported yet.
        destroy_keeps: roles whose work `destroy` leaves on machines that stay, unless it is told `--host`.
        rules: its preflight rules, a tuple of `Rule`; empty for none.
        evidence: `(inventory) -> Mapping[str, tuple[Query, ...]]`: what its rules look at beyond the
            questions of roles, by system; empty for nothing.
        doctor: what `provision doctor` looks for on hosts, a tuple of `HostRule`; empty for nothing.
        checks: packages of its checks, which are pytest files.
        backends: DHCP servers that it brings, by the name in `network.dhcp.backend`.
        resource_kinds: kinds of `host_resources` that it adds.
        unsupported: `(inventory) -> Iterator[Unsupported]`: what is declared and waits for one of its roles.
        untested: what it supports and nobody has run yet.
        sections: parts of the inventory that a run for the whole cluster reads; their secrets must be
            readable.
        hooks: `(inventory) -> Iterable[Hook]`: what it does before and after effects on others;
            empty for nothing.
        downloads: `(inventory) -> Iterable[Download]`: what it downloads and `provision pin` pins; empty for
            nothing.
        packages: `(inventory, node, archive) -> Iterable[PackageRequest]`: what its roles may install on a
            node; `archive` gives the offers of apt by name. Empty for nothing.
        commands: functions with typer's annotations by the name of the command that they add to the CLI.
    """

    name: str
    concerns: Callable[[Inventory], bool] = _always
    effects: tuple[EffectClass, ...] = ()
    systems: str = ""
    drivers: Mapping[str, str] = field(default_factory=dict)
    query_kinds: Mapping[str, str] = field(default_factory=dict)
    parents: str = ""
    roles: Mapping[str, str] = field(default_factory=dict)
    planned_roles: tuple[str, ...] = ()
    destroy_keeps: frozenset[str] = frozenset()
    rules: str = ""
    evidence: str = ""
    doctor: str = ""
    checks: tuple[str, ...] = ()
    backends: Mapping[str, DhcpBackend] = field(default_factory=dict)
    resource_kinds: Mapping[str, ResourceKind] = field(default_factory=dict)
    unsupported: str = ""
    untested: tuple[Untested, ...] = ()
    sections: tuple[tuple[str, ...], ...] = ()
    hooks: str = ""
    downloads: str = ""
    packages: str = ""
    commands: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Opening:
    """All that the driver of a system is made from; nothing is sent before its first question.

    Args:
        spec: the system.
        endpoint: where it is.
        inventory: what was declared.
        redactor: masks secrets in all output.
        ssh_pool: what the site's SSH connections share.
        who: user and machine on whose behalf it acts.
        effects: all effect classes.
        query_kinds: how each kind of question to this kind of system is asked.
    """

    spec: SystemSpec
    endpoint: Endpoint
    inventory: Inventory
    redactor: Redactor
    ssh_pool: SshPool
    who: str
    effects: Collection[EffectClass]
    query_kinds: Mapping[str, QueryKind]
