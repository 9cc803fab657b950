"""Charts of operators, as the inventory declares them."""

from __future__ import annotations

from provision.contracts.downloads import Download, LocalFile, RegistryChart, RepositoryChart
from provision.inventory.models.cluster import Operator
from provision.inventory.tree import KeyPath


def chart_download(
    name: str, operator: Operator, repository: str, path: KeyPath, version: str = ""
) -> Download:
    """Return where the chart of an operator comes from.

    Args:
        name: of the chart.
        operator: what is declared of it.
        repository: the vendor's, which is used where none is declared.
        path: keys of its section.
        version: of the chart, where it is spelled otherwise than declared.
    """
    otherwise = f"an archive on this machine as {'.'.join(map(str, path))}.chart"
    origin: LocalFile | RegistryChart | RepositoryChart
    address = operator.repository or repository
    if operator.chart is not None:
        origin = LocalFile(operator.chart.expanduser())
    elif address.startswith("oci://"):
        origin = RegistryChart(address, version or operator.version)
    else:
        origin = RepositoryChart(address, name, version or operator.version)
    return Download("charts", name, origin, path, otherwise)
