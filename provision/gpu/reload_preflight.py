"""A reload of systemd on a node whose cards systemd does not know: running pods lose them.

Source: NVIDIA/nvidia-container-toolkit#48: systemd sets the devices of a container again, by the links in
/dev/char, which the driver does not make.
"""

from __future__ import annotations

from provision.contracts.query import Unknown
from provision.contracts.remedy import Fix
from provision.contracts.rule import Evidence, Finding, Rule
from provision.gpu.queries import GpuState, GpuStatus
from provision.hosts import names
from provision.hosts.host_effects import DAEMON_RELOAD
from provision.hosts.view import View
from provision.inventory.models.node import Node
from provision.k3s import join_preflight
from provision.k3s.join_network import JoinNetworkStatus
from provision.values.diagnostics import Diagnostic, Severity

CURE = "nvidia-ctk system create-dev-char-symlinks --create-all"


def reloads(evidence: Evidence) -> list[Finding]:
    """Name nodes on which this run reloads systemd while pods have cards that systemd does not know."""
    findings: list[Finding] = []
    for node in evidence.inventory.nodes.values():
        changed = [
            str(resource.key.name)
            for resource in evidence.of_system(names.ssh(node.name))
            if isinstance(remedy := evidence.remedy(resource), Fix)
            and any(effect.cls is DAEMON_RELOAD for effect in remedy.effects)
        ]
        unlinked = _unlinked(evidence, node) if changed else ()
        if unlinked:
            findings.append(
                Diagnostic(
                    "GPU_RELOAD_TAKES_CARDS",
                    f"{node.name}: this run reloads systemd, and running pods would lose their cards",
                    node.name,
                    Severity.WARNING,
                    evidence=(
                        f"no link in /dev/char: {', '.join(unlinked)}",
                        f"changed: {', '.join(changed)}",
                    ),
                    source=evidence.inventory.source(("nodes", node.name)),
                    remedy=f"run `{CURE}` on {node.name} first, or start its GPU pods again afterwards",
                )
            )
    return findings


def _unlinked(evidence: Evidence, node: Node) -> tuple[str, ...]:
    snapshot = evidence.snapshot(names.ssh(node.name))
    if isinstance(snapshot, Unknown) or node.k3s is None:
        return ()
    view = View(snapshot)
    status, network = view.answer(GpuState()), view.answer(join_preflight.query(evidence.inventory, node))
    runs = isinstance(network, JoinNetworkStatus) and network.runs
    return status.unlinked if runs and isinstance(status, GpuStatus) else ()


RULES = (
    Rule(
        ("GPU_RELOAD_TAKES_CARDS",),
        "a run reloads systemd on a node with GPU pods, whose cards have no links in /dev/char",
        f"run `{CURE}` on the node, or start its GPU pods again",
        reloads,
        Severity.WARNING,
        of_resources=True,
    ),
)
