"""Volumes that one node alone has: k3s's local-path keeps them on its disk, and a new disk has none of them.

Nothing else says so: the PersistentVolume stays `Bound`, and local-path makes an empty folder under the same
path (its `hostPath` is of type DirectoryOrCreate), so that a database begins anew without any error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from provision.contracts.change import Op
from provision.contracts.effect import EffectClass
from provision.contracts.hook import Hook, Readiness
from provision.contracts.query import Unknown
from provision.contracts.role import Context
from provision.contracts.rule import Evidence, Finding, Rule
from provision.hosts.view import View
from provision.inventory import Inventory, Subject
from provision.inventory.models.node import Node
from provision.kube.facts import NODES, find_node, node_fact
from provision.kube.kinds import VOLUME
from provision.kube.kube_effects import VOLUME_LOSS
from provision.kube.names import API, is_member
from provision.kube.queries import Listing, Live, list_query
from provision.values.diagnostics import Diagnostic, Severity

VOLUMES = list_query(VOLUME)
CODE = "NODE_HAS_VOLUMES"
_SHOWN = 10


def hooks(inventory: Inventory) -> tuple[Hook, ...]:
    """Return the hook, where VMs are nodes of the cluster: nothing else is created again from an image."""
    return (_HOOK,) if any(_members(inventory)) else ()


def only_on(volumes: Listing, node: str) -> tuple[Live, ...]:
    """Return the volumes that pods can use on one node alone, whatever label their affinity names it by.

    Args:
        volumes: all PersistentVolumes.
        node: name of the Node.
    """
    return tuple(volume for volume in volumes.objects if _needs(volume, node))


def _needs(volume: Live, node: str) -> bool:
    """Whether every alternative of a volume's node affinity wants this node."""
    terms = volume.at("spec", "nodeAffinity", "required", "nodeSelectorTerms") or ()
    return bool(terms) and all(
        any(
            row.get("operator") == "In" and row.get("values") == [node]
            for key in ("matchExpressions", "matchFields")
            for row in term.get(key) or ()
        )
        for term in terms
    )


def _members(inventory: Inventory) -> Iterator[Node]:
    for node in inventory.nodes.values():
        if node.manage and node.hypervisor is not None and is_member(inventory, node):
            yield node


def _titled(volume: Live) -> str:
    """Return a volume by its claim, as people know it."""
    claim = volume.at("spec", "claimRef")
    owner = (
        f"claim {claim.get('namespace')}/{claim.get('name')}" if isinstance(claim, Mapping) else "no claim"
    )
    path = volume.at("spec", "local", "path") or volume.at("spec", "hostPath", "path")
    return f"{volume.name}: {owner}" + (f", {path}" if path else "")


def _held(view: View, inventory: Inventory) -> Mapping[str, tuple[str, ...]]:
    """Return what is on each VM alone, by node; where the API does not tell, it may be anything."""
    nodes, volumes = view.answer_as(NODES, Listing), view.answer_as(VOLUMES, Listing)
    if isinstance(nodes, Unknown):
        return {}
    facts = tuple(map(node_fact, nodes.objects))
    held: dict[str, tuple[str, ...]] = {}
    for node in _members(inventory):
        fact = find_node(facts, node)
        if fact is None:
            continue
        if isinstance(volumes, Unknown):
            held[node.name] = (f"nobody can tell which ones: {volumes.reason}",)
        elif on_it := only_on(volumes, fact.name):
            held[node.name] = tuple(map(_titled, on_it))
    return held


# ---------------------------------------------------------------- consent


def _affected(inventory: Inventory, subject: str, cls: EffectClass) -> Sequence[Subject]:
    if not cls.replaces_target:
        return ()
    return [Subject("node", node.name) for node in _members(inventory) if node.name == subject]


def _readiness(context: Context) -> Mapping[str, Readiness]:
    """Say who has volumes that nobody else has; Ready or not does not matter to them."""
    context.require(API, NODES, "cannot list the nodes of the cluster")
    held = _held(View(context.snapshots[API]), context.inventory)
    return {
        node.name: Readiness.READY if node.name in held else Readiness.AWAY
        for node in _members(context.inventory)
    }


_HOOK = Hook(
    name="volumes",
    affected=_affected,
    questions=lambda _inventory: {API: (NODES, VOLUMES)},
    readiness=_readiness,
    before=lambda _context: (),
    undo=lambda _context: (),
    after=lambda _context: (),
    limit=lambda _inventory: 0,
    works_without=lambda _inventory, _away: True,
    excess=VOLUME_LOSS,
)


# ---------------------------------------------------------------- names


def named(evidence: Evidence) -> list[Finding]:
    """Name the volumes of a VM that is created again, before anybody is asked."""
    snapshot = evidence.snapshots.get(API)
    if snapshot is None:
        return []
    replaced = {
        resource.key.name
        for resource in evidence.resources
        if resource.key.kind == "vm" and any(change.op is Op.REPLACE for change in evidence.changes(resource))
    }
    held = _held(View(snapshot), evidence.inventory) if replaced else {}
    return [
        Diagnostic(
            CODE,
            f"{name}: volumes that only this node has may be lost with its system disk",
            name,
            severity=Severity.WARNING,
            source=evidence.inventory.source(("nodes", name)),
            evidence=(*lines[:_SHOWN], *([f"and {len(lines) - _SHOWN} more"] if lines[_SHOWN:] else ())),
            remedy=f"copy them elsewhere; `--allow {VOLUME_LOSS}` if a data disk has them or they may go",
        )
        for name, lines in held.items()
        if name in replaced
    ]


RULES = (
    Rule(
        (CODE,),
        "a VM is created again, and PersistentVolumes are bound to its node alone (k3s's local-path keeps"
        " them on the system disk)",
        "copy what they hold, then give `--allow volume-loss`",
        named,
        Severity.WARNING,
        of_resources=True,
    ),
)
