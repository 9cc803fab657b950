"""One model of a release, two back ends: the Helm controller of k3s, or the program helm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from provision.contracts.effect import Effect
from provision.contracts.resource import AnswerId, Resource
from provision.inventory import Inventory
from provision.inventory.tree import KeyPath
from provision.kube.charts import DeclaredChart, chart_of
from provision.kube.helm_program import program, uses_program
from provision.kube.names import API
from provision.kube.resources.cli_release import CliAbsent, CliRelease
from provision.kube.resources.release import HelmAbsent, HelmRelease


def helm_release(
    inventory: Inventory,
    chart: DeclaredChart,
    namespace: str,
    values: Mapping[str, Any],
    role: str,
    *,
    affected: tuple[AnswerId, ...] = (),
    source_path: KeyPath,
) -> Resource:
    """Return the release of a chart, which has the chart's name.

    Args:
        inventory: which back end it declares.
        chart: what is installed.
        namespace: in which it is installed.
        values: of the chart; none of them is a secret.
        role: which role declares it.
        affected: answers that a change alters for others.
        source_path: keys of the inventory that declare it.

    Raises:
        UsageError, Permanent: a file or a pin is missing.
    """
    text = json.dumps(values, sort_keys=True)
    origin = chart_of(inventory, chart)
    source = inventory.source(source_path)
    if uses_program(inventory):
        tool = program(inventory)
        return CliRelease(API, chart.name, origin, namespace, text, tool, affected=affected, source=source)
    return HelmRelease(API, chart.name, origin, namespace, text, role, affected=affected, source=source)


def helm_absent(inventory: Inventory, name: str, namespace: str, risks: tuple[Effect, ...] = ()) -> Resource:
    """Return that a release is gone.

    Raises:
        UsageError: the program is not pinned.
    """
    if uses_program(inventory):
        return CliAbsent(API, name, namespace, program(inventory), risks=risks)
    return HelmAbsent(API, name, risks=risks)
