"""What an effect on one system costs another system, and what is done there before and after it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from provision.contracts.effect import EffectClass
from provision.contracts.resource import Resource
from provision.contracts.role import Context, Questions
from provision.inventory import Inventory, Subject


class Readiness(StrEnum):
    """How a system sees a subject; all but the first count as away."""

    READY = "ready"
    SET_ASIDE = "set aside"
    AWAY = "not ready"


@dataclass(frozen=True, slots=True)
class Hook:
    """Prepares a system for effects that take subjects away from it, and looks after it afterwards.

    Its resources are brought about as those of a step are. What `before` does must show in answers, and an
    ordinary role must name the resources of `undo`, so that every plan finds what a killed run left behind.

    Args:
        name: what it does to a subject, for reports (`drain`).
        affected: `(inventory, subject, effect class)`: the subjects that an effect on a subject takes away.
        questions: what `readiness` and the resources read.
        readiness: how the system sees the subjects that it knows. Nothing is done for one that it does not
            know, or that is not ready already. What is ready and in no use (by a run that died) is set aside.
        before: what must be so before the effect; while it is not, there is no effect.
        undo: what takes back `before` where there is no effect after all.
        after: what must be so once the steps of the subject have ended.
        limit: how many subjects may be away at once.
        works_without: whether the system goes on working while some subjects are away.
        excess: whose consent one effect needs that takes away more than `limit` allows.
        risks: whose consent `before` needs for its subject, so that a plan says so.
        needs_answer: whether an effect is withheld where the system gives no answer.
    """

    name: str
    affected: Callable[[Inventory, str, EffectClass], Sequence[Subject]]
    questions: Callable[[Inventory], Questions]
    readiness: Callable[[Context], Mapping[str, Readiness]]
    before: Callable[[Context], Sequence[Resource]]
    undo: Callable[[Context], Sequence[Resource]]
    after: Callable[[Context], Sequence[Resource]]
    limit: Callable[[Inventory], int]
    works_without: Callable[[Inventory, frozenset[str]], bool]
    excess: EffectClass
    risks: tuple[EffectClass, ...] = ()
    needs_answer: bool = True

    def taken_away(self, names: Iterable[str], readiness: Mapping[str, Readiness]) -> list[str]:
        """Return the subjects among some whom the system would miss."""
        return [name for name in names if readiness.get(name, Readiness.AWAY) is not Readiness.AWAY]

    def is_excessive(self, inventory: Inventory, names: Collection[str]) -> bool:
        """Whether some subjects are too many for one effect, so that no waiting helps."""
        is_enough = len(names) < 2 or self.works_without(inventory, frozenset(names))  # noqa: PLR2004 - several
        return len(names) > self.limit(inventory) or not is_enough
