"""How a resource differs from its desired state, and which effects earlier runs left open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from provision.contracts.change import Change, Key, Settles
from provision.contracts.effect import Effect
from provision.contracts.remedy import ApiCall, ByHand, Fix, Remedy
from provision.contracts.resource import Resource, affected_answers, changes_of, remedy_of
from provision.contracts.snapshot import Snapshot
from provision.engine.model import PlannedChange
from provision.engine.session import Session


def pending_effects(snapshot: Snapshot, *, destroying: bool) -> tuple[Effect, ...]:
    """Return the effects that earlier runs left open; the driver leaves out what a boot has satisfied.

    A removal needs no reboot that an apply left open: nobody who destroys has asked for it.
    """
    effects = (pending.effect for pending in snapshot.pending)
    return tuple(dict.fromkeys(effect for effect in effects if not (destroying and effect.cls.reboots)))


def pending_change(system: str, effect: Effect) -> PlannedChange:
    """Return an effect that an earlier run left open on a system as a change of its own."""
    return PlannedChange(Key(system, "pending", str(effect)), (), (effect,), pending=True)


def pending_changes(snapshots: Iterable[Snapshot], *, destroying: bool) -> list[PlannedChange]:
    """Return all effects that earlier runs left open, as changes."""
    return [
        pending_change(snapshot.system, effect)
        for snapshot in snapshots
        for effect in pending_effects(snapshot, destroying=destroying)
    ]


def settles_without_action(changes: Sequence[Change]) -> bool:
    """Whether all changes come true by themselves, within their deadlines."""
    return bool(changes) and all(change.settles is Settles.WITHIN for change in changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(PlannedChange):
    """A resource that differs, with what brings it to its desired state."""

    resource: Resource = field(repr=False, compare=False)
    remedy: Remedy = field(repr=False, compare=False)


def difference(resource: Resource, snapshot: Snapshot) -> Difference | None:
    """Return how a resource differs from a snapshot, or None."""
    changes = changes_of(resource, snapshot)
    if not changes:
        return None
    remedy = remedy_of(resource, snapshot)
    action = remedy if isinstance(remedy, Fix | ApiCall) else Fix("")
    return Difference(
        key=resource.key,
        changes=changes,
        effects=action.effects,
        risks=action.risks,
        by_hand=remedy if isinstance(remedy, ByHand) else None,
        creates=action.creates,
        affects=affected_answers(resource, changes),
        resource=resource,
        remedy=remedy,
    )


def differences(resources: Iterable[Resource], session: Session) -> list[Difference]:
    """Return what differs by the answers at hand; what is on a silent system is left out."""
    pairs = ((resource, session.snapshot(resource.key.system)) for resource in resources)
    differing = (difference(resource, snapshot) for resource, snapshot in pairs if snapshot is not None)
    return [item for item in differing if item is not None]
