"""What changes of k3s cost."""

from __future__ import annotations

from provision.contracts.effect import EffectClass

RESTART_K3S = EffectClass(
    50,
    "restart-k3s",
    "k3s restarts on the node",
    script="""for unit in k3s k3s-agent; do
if systemctl --quiet is-enabled "$unit.service" 2>/dev/null; then systemctl restart "$unit.service"; fi
done""",
    timeout=900.0,
    done_by_boot=True,
)

EFFECTS = (RESTART_K3S,)
