"""The table of domains: what the house knows, in the order of the chain."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, distributions
from importlib.resources import files
from pathlib import Path

from provision.contracts import common_effects
from provision.contracts.domain import Domain
from provision.contracts.effect import EffectClass
from provision.dhcp.domain import DOMAIN as DHCP
from provision.dynamo.domain import DOMAIN as DYNAMO
from provision.gpu.domain import DOMAIN as GPU
from provision.hosts.domain import DOMAIN as HOSTS
from provision.inventory import Inventory, Vocabulary, load
from provision.k3s.domain import DOMAIN as K3S
from provision.kube.domain import DOMAIN as KUBE
from provision.proxmox.domain import DOMAIN as PROXMOX
from provision.rdma.domain import DOMAIN as RDMA
from provision.sharing.domain import DOMAIN as SHARING
from provision.values.redaction import Redactor

GROUP = "provision.domains"
"""Entry point group by which an installed package adds a domain of its own."""


@cache
def domains() -> tuple[Domain, ...]:
    """Return the built-in domains in the order of the chain, then those of installed packages by name."""
    built_in = (HOSTS, PROXMOX, DHCP, KUBE, K3S, GPU, RDMA, SHARING, DYNAMO)
    return (*built_in, *(added.load() for added in _added_domains()))


def _added_domains() -> list[EntryPoint]:
    """Return the entry points of the group by name.

    `importlib.metadata.entry_points` parses those of all packages, which takes three times as long.
    """
    added = {
        entry.name: entry
        for distribution in distributions()
        if f"[{GROUP}]" in (distribution.read_text("entry_points.txt") or "")
        for entry in distribution.entry_points.select(group=GROUP)
    }
    return [added[name] for name in sorted(added)]


def effect_classes() -> dict[str, EffectClass]:
    """Return all effect classes by name, in rising order of risk."""
    declared = (*common_effects.EFFECTS, *(cls for domain in domains() for cls in domain.effects))
    return {cls.name: cls for cls in sorted(declared)}


def role_references() -> dict[str, str]:
    """Return where each role is, by name."""
    return {name: reference for domain in domains() for name, reference in domain.roles.items()}


def planned_role_names() -> tuple[str, ...]:
    """Return the names of roles that are known and not supported yet."""
    return tuple(name for domain in domains() for name in domain.planned_roles)


def vocabulary() -> Vocabulary:
    """Return the names that domains bring and that an inventory may use."""
    backends = {name: backend for domain in domains() for name, backend in domain.backends.items()}
    kinds = {name: kind for domain in domains() for name, kind in domain.resource_kinds.items()}
    return Vocabulary(tuple(effect_classes()), backends, kinds)


def load_inventory(
    path: Path,
    *,
    overlays: Sequence[Path] = (),
    environ: Mapping[str, str] | None = None,
    redactor: Redactor | None = None,
) -> Inventory:
    """Return the inventory of a file, resolved and validated against what the domains know.

    Args:
        path: the file, as the user typed it.
        overlays: further files that change it, in order.
        environ: values for `${NAME}`; unset, the process's own.
        redactor: learns every secret that is opened; unset, one of the inventory's own.

    Raises:
        UsageError: with every problem that was found, each with its position.
    """
    return load(path, vocabulary=vocabulary(), overlays=overlays, environ=environ, redactor=redactor)


def check_folders(names: Collection[str] = ()) -> tuple[Path, ...]:
    """Return the folders of checks, which are pytest files: of domains, or of all."""
    packages = [
        package for domain in domains() for package in domain.checks if not names or domain.name in names
    ]
    return tuple(Path(str(files(package))) for package in packages)


def roles_kept_by_destroy() -> frozenset[str]:
    """Return the roles whose work `destroy` leaves on machines that stay, unless it is told `--host`."""
    return frozenset().union(*(domain.destroy_keeps for domain in domains()))
