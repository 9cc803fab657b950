"""What tests of the cluster share: ask a model, compare resources, and act."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from provision.contracts.change import Change
from provision.contracts.driver import Action, Result
from provision.contracts.remedy import ApiCall, Impossible
from provision.contracts.resource import Resource, changes_of, remedy_of
from provision.contracts.snapshot import Snapshot
from provision.testing.model_cluster import ModelCluster
from provision.values.cancel import Cancel


class Quick(Cancel):
    """Never sleeps."""

    def wait(self, seconds: float) -> None:
        super().wait(0 * seconds)


@cache
def read_yaml(path: Path) -> Any:
    """Return a large YAML file of ../shared, read once and by libyaml; who needs it changed copies it."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(path.read_text(), Loader=loader)  # noqa: S506 - one of the two safe loaders


def ask(cluster: ModelCluster, *queries: Any) -> Snapshot:
    return cluster.driver().answer(frozenset(queries), Cancel())


def changes(cluster: ModelCluster, resource: Resource) -> tuple[Change, ...]:
    return changes_of(resource, ask(cluster, *resource.queries()))


def problem(cluster: ModelCluster, resource: Resource) -> str:
    """Return the code of why a resource cannot be brought about."""
    remedy = remedy_of(resource, ask(cluster, *resource.queries()))
    assert isinstance(remedy, Impossible), remedy
    return remedy.diagnostic.code


def bring(cluster: ModelCluster, *resources: Resource, emitted: list[str] | None = None) -> list[Result]:
    """Bring resources about as a step does, and return how each action ended."""
    results: list[Result] = []
    lines = emitted if emitted is not None else []
    for resource in resources:
        snapshot = ask(cluster, *resource.queries())
        if not changes_of(resource, snapshot):
            continue
        remedy = remedy_of(resource, snapshot)
        assert isinstance(remedy, ApiCall), remedy
        action = Action(resource.key, str(resource.key), remedy)
        results += cluster.driver().act("run-1", [action], [], lines.append, Quick())
    return results


def paths(found: Sequence[Change]) -> list[str]:
    return [f"{change.op} {change.path}" for change in found]
