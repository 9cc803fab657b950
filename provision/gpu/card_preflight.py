"""Rules about virtual cards: what may be done with a part of a card, as its driver answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule
from provision.gpu.queries import CardStatus, GpuState, GpuStatus
from provision.hosts import names
from provision.hosts.view import View
from provision.inventory import Inventory
from provision.inventory.models.node import Node
from provision.kube.names import has_cluster
from provision.values.diagnostics import Diagnostic, Severity

VGPU = re.compile(r"(-[0-9]+[ABCQ](\s|$))|^GRID ")
"""A vGPU by its name: `NVIDIA H100L-2-24C`, `GRID T4-4Q`."""
_UNTOUCHED = "Nothing was changed."


def shares(inventory: Inventory) -> bool:
    """Whether pods get parts of cards."""
    return inventory.sharing is not None and inventory.sharing.mode != "none" and has_cluster(inventory)


def _nodes(evidence: Evidence) -> Iterator[tuple[Node, GpuStatus]]:
    """Yield the nodes whose driver has answered."""
    for node in evidence.inventory.nodes.values():
        system = names.ssh(node.name)
        snapshot = evidence.snapshot(system)
        if not node.manage or isinstance(snapshot, Unknown) or not evidence.covers(system):
            continue
        status = View(snapshot).answer(GpuState())
        if isinstance(status, GpuStatus):
            yield node, status


def _finding(
    evidence: Evidence, node: Node, code: str, summary: str, remedy: str, rows: Iterator[str]
) -> Diagnostic:
    source = evidence.inventory.source(("nodes", node.name))
    return Diagnostic(
        code,
        f"{node.name}: {summary}",
        node.name,
        evidence=tuple(rows),
        source=source,
        untouched=_UNTOUCHED,
        remedy=remedy,
    )


def _shown(cards: tuple[CardStatus, ...]) -> Iterator[str]:
    for card in cards:
        memory = f"{card.memory} MiB" if isinstance(card.memory, int) else f"memory {card.memory.value}"
        name = card.name if isinstance(card.name, str) else card.name.value
        yield f"{card.address}: {name}, {memory}"


def _virtual(evidence: Evidence) -> Iterator[tuple[Node, GpuStatus, tuple[CardStatus, ...]]]:
    for node, status in _nodes(evidence):
        cards = tuple(card for card in status.cards if VGPU.search(str(card.name)))
        if cards:
            yield node, status, cards


def divided(evidence: Evidence) -> list[Finding]:
    """Refuse to divide a vGPU again."""
    findings: list[Finding] = []
    for node, _, cards in _virtual(evidence):
        has_mig = node.gpu_cards is not None and bool(node.gpu_cards.mig)
        if has_mig or (shares(evidence.inventory) and node.wants_gpu):
            summary = "it has a vGPU, which is a part of a card already and cannot be divided again"
            remedy = "declare `sharing.mode: none`, and remove `gpu_cards.mig`"
            findings.append(_finding(evidence, node, "VGPU_DIVIDED", summary, remedy, _shown(cards)))
    return findings


def unlicensed(evidence: Evidence) -> list[Finding]:
    """Name a vGPU without a license, which slows down after some minutes."""
    findings: list[Finding] = []
    for node, status, cards in _virtual(evidence):
        if status.license.lower().startswith("unlicensed"):
            summary = f"its vGPU has no license ({status.license}): it becomes slow after some minutes"
            remedy = "license it: see `nvidia-smi -q` and `systemctl status nvidia-gridd` on the node"
            finding = _finding(evidence, node, "VGPU_UNLICENSED", summary, remedy, _shown(cards))
            findings.append(replace(finding, severity=Severity.WARNING))
    return findings


RULES = (
    Rule(
        ("VGPU_DIVIDED",),
        "MIG or a sharing mode is declared for a vGPU",
        "declare `sharing.mode: none`, and remove `gpu_cards.mig`",
        divided,
    ),
    Rule(
        ("VGPU_UNLICENSED",),
        "a vGPU has no license",
        "license it: see `nvidia-smi -q` on the node",
        unlicensed,
        Severity.WARNING,
    ),
)
