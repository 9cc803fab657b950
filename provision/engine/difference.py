"""How a resource differs from its desired state, and which effects earlier runs left open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from provision.contracts.change import Change, Key, Settles
from provision.contracts.effect import Effect
from provision.contracts.remedy import ByHand, Impossible, Remedy
from provision.contracts.resource import AnswerId, Resource, affected_answers, changes_of, remedy_of
from provision.contracts.snapshot import Snapshot
from provision.engine.model import PlannedChange


def pending_effects(snapshot: Snapshot, *, destroying: bool) -> tuple[Effect, ...]:
    """Return the effects that earlier runs left open; the driver leaves out what a boot has satisfied.

    A removal needs no reboot that an apply left open: nobody who destroys has asked for it.
    """
    effects = (pending.effect for pending in snapshot.pending)
    return tuple(dict.fromkeys(effect for effect in effects if not (destroying and effect.cls.reboots)))


def pending_change(system: str, effect: Effect) -> PlannedChange:
    """Return an effect that an earlier run left open on a system as a change of its own."""
    return PlannedChange(Key(system, "pending", str(effect)), (), (effect,), pending=True)


def settles_without_action(changes: Sequence[Change]) -> bool:
    """Whether all changes come true by themselves, within their deadlines."""
    return bool(changes) and all(change.settles is Settles.WITHIN for change in changes)


@dataclass(frozen=True, slots=True)
class Difference:
    """A resource that differs, and its remedy."""

    resource: Resource
    changes: tuple[Change, ...]
    remedy: Remedy

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What must happen after the remedy."""
        return () if isinstance(self.remedy, ByHand | Impossible) else self.remedy.effects

    @property
    def risks(self) -> tuple[Effect, ...]:
        """What must be allowed before the remedy."""
        return () if isinstance(self.remedy, ByHand | Impossible) else self.remedy.risks

    @property
    def creates(self) -> str:
        """The subject that the remedy creates, as it declares itself; names alone prove nothing."""
        return "" if isinstance(self.remedy, ByHand | Impossible) else self.remedy.creates

    @property
    def affects(self) -> frozenset[AnswerId]:
        """Answers that the remedy alters for other steps."""
        return affected_answers(self.resource, self.changes)

    def planned(self) -> PlannedChange:
        """Return it as data."""
        by_hand = self.remedy if isinstance(self.remedy, ByHand) else None
        return PlannedChange(
            self.resource.key,
            self.changes,
            self.effects,
            self.risks,
            by_hand,
            creates=self.creates,
            affects=self.affects,
        )


def difference(resource: Resource, snapshot: Snapshot) -> Difference | None:
    """Return how a resource differs from a snapshot, or None."""
    changes = changes_of(resource, snapshot)
    return Difference(resource, changes, remedy_of(resource, snapshot)) if changes else None
