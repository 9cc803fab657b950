"""Charts as the inventory declares them: where they come from, and what is pinned of them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from provision.contracts.downloads import Download, LocalFile, RegistryChart, RepositoryChart
from provision.contracts.remedy import Blob
from provision.hosts.pinned_files import Wanted, bundle_file, mirror_url, pinned_blob
from provision.inventory import Inventory
from provision.inventory.models.cluster import Operator
from provision.inventory.tree import KeyPath
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, UsageError


@dataclass(frozen=True, slots=True)
class Chart:
    """Where a chart comes from.

    Args:
        name: of the chart, as its Chart.yaml has it.
        version: exact version.
        repository: URL of a chart repository, or `oci://...` with the chart's name; empty with `content`.
        content: base64 of a chart archive.
        archive: the chart's archive, which the helm CLI takes.
    """

    name: str
    version: str
    repository: str = ""
    content: str = ""
    archive: Blob | None = None


@dataclass(frozen=True, slots=True)
class DeclaredChart:
    """A chart that the inventory wants.

    Args:
        name: of the chart.
        version: exact version.
        repository: URL of its repository, or `oci://` address of the chart.
        path: keys of the section that declares it.
        file: archive on this machine, which is used instead.
        has_file_key: whether the section has a key for such an archive.
    """

    name: str
    version: str
    repository: str
    path: KeyPath
    file: Path | None = None
    has_file_key: bool = True

    @property
    def asset(self) -> str:
        """Its name in a bundle and on a mirror."""
        return f"{self.name}-{self.version}.tgz"


def operator_chart(
    name: str, operator: Operator, repository: str, path: KeyPath, version: str = ""
) -> DeclaredChart:
    """Return the chart of an operator.

    Args:
        name: of the chart.
        operator: what is declared of it.
        repository: the vendor's, which is used where none is declared.
        path: keys of its section.
        version: of the chart, where it is spelled otherwise than declared.
    """
    file = operator.chart.expanduser() if operator.chart is not None else None
    return DeclaredChart(name, version or operator.version, operator.repository or repository, path, file)


def chart_download(
    inventory: Inventory, chart: DeclaredChart, values: Mapping[str, Any] | None = None
) -> Download:
    """Return what `provision pin` pins of a chart, and the values that `provision bundle` renders it with."""
    keys = ".".join(map(str, chart.path))
    otherwise = f"an archive on this machine as {keys}.chart" if chart.has_file_key else f"another {keys}"
    origin: LocalFile | RegistryChart | RepositoryChart
    file = chart.file or bundle_file(inventory, "charts", chart.asset)
    if file is not None:
        origin = LocalFile(file)
    elif chart.repository.startswith("oci://"):
        origin = RegistryChart(chart.repository, chart.version)
    else:
        origin = RepositoryChart(chart.repository, chart.name, chart.version)
    return Download("charts", chart.name, origin, chart.path, otherwise, ("charts", chart.asset), values)


def chart_of(inventory: Inventory, chart: DeclaredChart) -> Chart:
    """Return a chart as its release takes it.

    The cluster downloads it itself, where it can and the Helm controller of k3s installs it; else the
    controller reads its archive.

    Raises:
        Permanent: CHART_UNREADABLE, or it is not the file that was pinned.
        UsageError: CHART_UNPINNED.
    """
    by_cli = inventory.cluster.helm.backend == "cli"
    if chart.file is None and inventory.sources.mode == "online" and not by_cli:
        return Chart(chart.name, chart.version, chart.repository)
    blob = _archive(inventory, chart)
    if by_cli:
        return Chart(chart.name, chart.version, archive=blob)
    return Chart(chart.name, chart.version, content=base64.b64encode(blob.content()).decode())


def _archive(inventory: Inventory, chart: DeclaredChart) -> Blob:
    file = chart.file or bundle_file(inventory, "charts", chart.asset)
    path = (*chart.path, "chart") if chart.file is not None else chart.path
    download = Wanted(
        "charts",
        chart.name,
        f"chart {chart.name} {chart.version}",
        file,
        mirror_url(inventory, "charts", chart.asset),
        chart.version.removeprefix("v"),
        path,
        chart_download(inventory, chart).otherwise,
    )
    try:
        return pinned_blob(inventory, download)
    except UsageError as error:
        if file is None:
            raise
        raise Permanent([_unreadable(problem, chart, file) for problem in error.diagnostics]) from None


def _unreadable(problem: Diagnostic, chart: DeclaredChart, file: Path) -> Diagnostic:
    if problem.code != "FILE_UNREADABLE":
        return problem
    keys = ".".join(map(str, chart.path))
    remedy = f"Name the chart's archive in {keys}.chart." if chart.file else "Correct `sources.bundle`."
    return replace(problem, code="CHART_UNREADABLE", summary=f"{file} cannot be read", remedy=remedy)
