"""All kinds of questions about GPUs that hosts answer."""

from __future__ import annotations

from provision.gpu.fabric import FABRIC_STATE_KIND, FabricState
from provision.gpu.mps import MPS_STATE_KIND, MpsState
from provision.gpu.queries import GPU_STATE_KIND, GpuState

HOST_KINDS = {
    GpuState.kind: GPU_STATE_KIND,
    FabricState.kind: FABRIC_STATE_KIND,
    MpsState.kind: MPS_STATE_KIND,
}
