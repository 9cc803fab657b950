"""Rules about the cards themselves: what a mode or MIG needs of them, as the driver of each node says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from provision.contracts.rule import Evidence, Finding, Rule
from provision.gpu.operator_values import gpu_nodes, mig_profiles
from provision.gpu.queries import CardStatus, GpuState, GpuStatus
from provision.gpu.words import Meaning
from provision.hosts.names import ssh
from provision.hosts.view import View
from provision.inventory import Inventory
from provision.kube.names import has_cluster
from provision.values.diagnostics import Diagnostic

WHOLE = "all-disabled"
"""Configuration of the MIG manager that leaves cards as they are."""


def _by_label(inventory: Inventory) -> bool:
    """Whether the mode reads the labels of a node, which have one value for all of its cards."""
    sharing = inventory.sharing
    return sharing is not None and (sharing.mode == "kai_fractions" or bool(sharing.fractions))


def _by_memory(inventory: Inventory) -> bool:
    """Whether the mode divides the memory of cards."""
    sharing = inventory.sharing
    return sharing is not None and (sharing.mode == "hami" or _by_label(inventory))


def problems(
    inventory: Inventory, node: str, cards: tuple[CardStatus, ...]
) -> Iterator[tuple[str, str, str]]:
    """Yield code, sentence and remedy for what the cards of a node exclude."""
    names = sorted({card.name for card in cards if isinstance(card.name, str)})
    divided = mig_profiles(inventory).get(node, WHOLE) != WHOLE
    unified = [card.address for card in cards if card.memory is Meaning.NOT_APPLICABLE]
    if unified and _by_memory(inventory):
        text = f"{node}: {', '.join(unified)} has no memory of its own, and the mode divides it"
        yield "GPU_MEMORY_UNIFIED", text, "declare `sharing.mode: time_slicing` or `none` for such nodes"
    if len(names) > 1 and (_by_label(inventory) or divided):
        text = f"{node} has several models ({', '.join(names)}), and labels of a node describe one"
        remedy = "declare `sharing.mode: hami`, or remove `gpu.operator.mig` and `fractions`"
        yield "GPU_MODELS_MIXED", text, remedy
    without = [card.address for card in cards if card.mig is Meaning.NOT_APPLICABLE]
    if without and divided:
        text = f"{node}: {', '.join(without)} cannot be divided by MIG"
        yield "MIG_UNSUPPORTED", text, f"remove {node} from `gpu.operator.mig.profiles`"


def cards(evidence: Evidence) -> list[Finding]:
    """Refuse a mode or a division that the cards of a node do not have."""
    inventory = evidence.inventory
    findings: list[Finding] = []
    for node in gpu_nodes(inventory) if has_cluster(inventory) else ():
        system = ssh(node.name)
        snapshot = evidence.snapshots.get(system)
        status = View(snapshot).answer(GpuState()) if snapshot is not None else None
        if not evidence.covers(system) or not isinstance(status, GpuStatus):
            continue
        for code, text, remedy in problems(inventory, node.name, status.cards):
            path = ("gpu", "operator", "mig") if code == "MIG_UNSUPPORTED" else ("sharing",)
            source = inventory.source(path)
            untouched = "Nothing was changed."
            findings.append(
                Diagnostic(code, text, node.name, source=source, untouched=untouched, remedy=remedy)
            )
    return findings


def evidence(inventory: Inventory) -> dict[str, tuple[Any, ...]]:
    """Return what these rules ask: the cards of each GPU node, where something depends on them."""
    if not has_cluster(inventory) or not (_by_memory(inventory) or mig_profiles(inventory)):
        return {}
    return {ssh(node.name): (GpuState(),) for node in gpu_nodes(inventory)}


RULES = (
    Rule(
        ("GPU_MEMORY_UNIFIED", "GPU_MODELS_MIXED", "MIG_UNSUPPORTED"),
        "the sharing mode or MIG needs what the cards of a node do not have: own memory, one model, or MIG",
        "declare another `sharing.mode` for such nodes, or remove them from `gpu.operator.mig.profiles`",
        cards,
    ),
)
