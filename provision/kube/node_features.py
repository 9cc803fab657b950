"""Node Feature Discovery, which the charts of both NVIDIA operators bring: exactly one of them does."""

from __future__ import annotations

NFD_CRDS = {
    f"{plural}.nfd.k8s-sigs.io": "v1alpha1"
    for plural in ("nodefeatures", "nodefeaturegroups", "nodefeaturerules")
}
"""With them go the NodeFeatures of all namespaces; helm leaves them, as all CRDs of a chart."""
NFD_TRACES = ("feature.node.kubernetes.io/", "nfd.node.kubernetes.io/")
"""With which its labels and annotations of nodes begin."""
