"""KAI Scheduler with GPU fractions over MPS: two charts of the controller that belong together.

Sources: the charts of kai-scheduler/KAI-Scheduler and kai-scheduler/kai-gpu-fractioning, whose images are
built under one registry and named after their component.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provision.inventory.models.cluster import LocalChart, Sharing
from provision.k3s.runtimes import NRI, SOCKET
from provision.kube.chart_archive import described
from provision.kube.charts import DeclaredChart
from provision.kube.kinds import KubeKind
from provision.kube.queries import object_query
from provision.kube.readiness import Conditions
from provision.kube.values import laid_over
from provision.sharing import names

MODE = "kai_fractions"
CHART, NAMESPACE = "gpu-fractioning", names.FRACTIONING_NAMESPACE
OPERATOR_MINIMUM = "v26.7.1"
"""The first GPU Operator whose toolkit and device plugin are new enough."""
RESERVED = 1024
"""MiB of each card that the cap leaves to the driver and to MPS."""
CONFIG = KubeKind(
    "gpu-fractioning.kai.scheduler/v1alpha1",
    "GpuFractioningConfig",
    "gpufractioningconfigs",
    namespaced=False,
)
CONFIG_CRD = "gpufractioningconfigs.gpu-fractioning.kai.scheduler"
DEFAULT = object_query(CONFIG, "default")
DAEMONS = ("gpu-fractioning-mpsd", "gpu-fractioning-fractiond")
READY = Conditions(
    (
        ("conditions[FractiondReady].status", "True"),
        ("conditions[MpsdReady].status", "True"),
        ("conditions[Ready].status", "True"),
    ),
    broken=(
        ("conditions[Ready].reason", "GPUDriverVersionUnsupported"),
        ("conditions[Ready].reason", "GPUOperandVersionUnsupported"),
    ),
)
_COMPONENTS = ("operator", "fractiond", "metricsd", "mpsd")


def memory_cap(total: int, fraction: float) -> int:
    """Return how much memory a pod with a fraction of a card may use.

    Args:
        total: memory of the card, in MiB.
        fraction: of the card, 0 to 1.

    Returns:
        MiB, as `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` has it.
    """
    return int((total - RESERVED) * fraction)


def kai_fork_values(sharing: Sharing) -> Mapping[str, Any]:
    """Return the values of KAI's chart."""
    values: dict[str, Any] = {
        "global": {"gpuSharingMode": "NvFractions", **_image(sharing.kai)},
        # Without it reservation pods do not find the driver's library.
        "binder": {"runtimeClassName": "nvidia"},
    }
    return laid_over(values, sharing.values)


def fractioning_values(sharing: Sharing) -> Mapping[str, Any]:
    """Return the values of the chart that enforces the fractions; empty tags would fall back in silence."""
    chart = sharing.fractioning
    images: dict[str, Any] = {}
    if chart is not None:
        for component in _COMPONENTS:
            place = {"repository": f"{chart.registry}/{component}"} if chart.registry else {}
            images[component] = {**place, **({"tag": chart.tag} if chart.tag else {})}
    return {
        "images": images,
        "gpuOperator": {"minimumVersion": OPERATOR_MINIMUM},
        "runtimeClassName": "nvidia",
        "supportSmSharing": True,
        # Containerd of k3s has a socket of its own.
        "fractioningAgent": {"criSocketPath": SOCKET, "nriSocketPath": NRI},
    }


def _image(chart: LocalChart | None) -> dict[str, str]:
    if chart is None:
        return {}
    pairs = (("registry", chart.registry), ("tag", chart.tag))
    return {key: value for key, value in pairs if value}


def charts(sharing: Sharing) -> tuple[DeclaredChart, ...]:
    """Return the two charts, in the order in which they are installed."""
    rows = ((names.KAI, "kai", sharing.kai), (CHART, "fractioning", sharing.fractioning))
    return tuple(_chart(name, key, local) for name, key, local in rows if local is not None)


def _chart(name: str, key: str, local: LocalChart) -> DeclaredChart:
    file = local.chart.expanduser()
    return DeclaredChart(name, _version(file) or local.tag or "", "", ("sharing", key), file)


def _version(file: Path) -> str:
    """Return the version that an archive says of itself; empty where it cannot be read."""
    try:
        description = described(file.read_bytes())
    except OSError:
        return ""
    return description[1] if description is not None else ""
