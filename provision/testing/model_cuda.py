"""What pods of checks see of a node's cards: CUDA programs and diagnostics that pretend."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from provision.lab.kube.store import Object
from provision.testing.model_gpu_operator import GpuOperator
from provision.testing.model_pods import Run

RESOURCE = "nvidia.com/gpu"
_DONE = "provision: done"
NO_DRIVER = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
"""What nvidia-smi prints, to its standard output, where it is there and no driver is."""


def uuid_of(index: int) -> str:
    """Return the UUID of a card by its place, as ModelHost has it."""
    return f"GPU-{index + 1:08d}-0000-4000-8000-{index + 1:012d}"


@dataclass
class CudaPods:
    """Answers for pods whose script looks at cards; a Behaviour of PodRunner.

    Args:
        gpus: whose cards they are.
        memlock: what `ulimit -l` prints.
        leaks: whether pods that ask for nothing see all cards.
        code: what vectorAdd ends with.
        message: what it prints.
        diagnostics: status of each test of DCGM.
    """

    gpus: GpuOperator
    memlock: str = "unlimited"
    leaks: bool = False
    code: int = 0
    message: str = "Test PASSED"
    diagnostics: dict[str, str] = field(default_factory=lambda: {"Denylist": "Pass", "NVML Library": "Pass"})

    def __call__(self, pod: Object) -> Run | None:
        """Return what a pod prints; None if it does not look at cards."""
        (container,) = pod["spec"]["containers"]
        script = container["command"][-1]
        if "dcgmi diag" in script:
            return Run(self._diagnosed())
        if "--query-gpu=uuid" not in script:
            return None
        count = self.gpus.cards.get(pod["spec"]["nodeName"], 0)
        asked = container["resources"]["limits"].get(RESOURCE)
        index = int(pod["metadata"]["name"].rpartition("-")[2])
        visible = [index % count] if asked and count else list(range(count)) if self.leaks else []
        lines = [f"uuid {uuid_of(card)}" for card in visible] or [f"uuid {NO_DRIVER}"]
        lines += [f"device /dev/nvidia{card}" for card in visible]
        lines.append(f"memlock {self.memlock}")
        if "vectorAdd" in script:
            return Run("\n".join([*lines, self.message, f"vectoradd {self.code}", _DONE, ""]), None)
        return Run("\n".join(lines), 0)

    def _diagnosed(self) -> str:
        tests = [
            {"name": name, "results": [{"entity_group": "GPU", "entity_id": 0, "status": status}]}
            for name, status in self.diagnostics.items()
        ]
        body = {"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": tests}]}}
        return f"{json.dumps(body, indent=2)}\ndcgmi 0\n"
