"""Who allowed what: the policy, this run's `--allow`, and what was born in this run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from provision.contracts.effect import Effect, EffectClass
from provision.contracts.hook import Hook
from provision.engine.environment import Environment
from provision.engine.model import ConsentNeed
from provision.inventory import Subject
from provision.values.consent import Consent


@dataclass(slots=True)
class Consents:
    """Decides effects of one run.

    Args:
        policy: consent by effect class, as the inventory says.
        allow: names of classes whose `ask` is lifted for this run.
        subject_of: whose system it is, by system.
        subjects: all subjects' names: an effect's target may be one.
        everything: destroy is its own consent, though not to a reboot of what it leaves behind.
        born: subjects that did not exist before this run; nothing of theirs needs protection.
        answers: what a person said in this run, by subject and class.
    """

    policy: Callable[[EffectClass], Consent]
    allow: frozenset[str]
    subject_of: Callable[[str], str]
    subjects: frozenset[str]
    everything: bool = False
    born: set[str] = field(default_factory=set)
    answers: dict[tuple[str, EffectClass], bool] = field(default_factory=dict)

    def affected_subject(self, system: str, effect: Effect) -> str:
        """Return the subject that an effect affects."""
        return effect.target if effect.target in self.subjects else self.subject_of(system)

    def of(self, system: str, effect: Effect) -> Consent:
        """Return the consent of an effect on a system."""
        if self.everything and not effect.cls.reboots:
            return Consent.ALLOW
        if not effect.cls.affects_existing and self.affected_subject(system, effect) in self.born:
            return Consent.ALLOW
        consent = self.policy(effect.cls)
        if consent is Consent.ASK and effect.cls.name in self.allow:
            return Consent.ALLOW
        return consent

    def allows(self, system: str, effects: Iterable[Effect]) -> bool:
        """Whether effects may happen without a question."""
        return all(self.of(system, effect) is Consent.ALLOW for effect in effects)

    def ask_ahead(self, needs: Iterable[ConsentNeed], ask: Callable[[str], bool | None]) -> None:
        """Ask now for what a plan needs, so that nobody has to sit beside the run."""
        effects: dict[tuple[str, EffectClass], Effect] = {}
        for need in needs:
            if self.of(need.system, need.effect) is Consent.ASK:
                subject = self.affected_subject(need.system, need.effect) or need.system
                effects.setdefault((subject, need.effect.cls), need.effect)
        for (subject, effect_class), effect in effects.items():
            answer = ask(f"{subject}: allow {effect}?")
            if answer is not None:
                self.answers[subject, effect_class] = answer


def hook_targets(
    environment: Environment, consents: Consents, effects: Iterable[tuple[str, Effect]]
) -> dict[Hook, dict[str, Subject]]:
    """Return whom some effects take away from other systems, by name; a removal concerns none of them.

    Args:
        environment: the site.
        consents: whom an effect affects.
        effects: by system.
    """
    targets: dict[Hook, dict[str, Subject]] = {}
    for system, effect in () if consents.everything else effects:
        subject = consents.affected_subject(system, effect)
        for hook in environment.hooks:
            for target in hook.affected(environment.inventory, subject, effect.cls):
                targets.setdefault(hook, {})[target.name] = target
    return targets


def ranked(needs: Iterable[ConsentNeed]) -> tuple[ConsentNeed, ...]:
    """Return needs without repetition, highest risk first."""
    return tuple(
        sorted(
            dict.fromkeys(needs), key=lambda need: (-need.effect.cls.rank, need.system, need.effect.target)
        )
    )
