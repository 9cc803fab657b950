"""What a change costs. Domains declare the classes; the engine knows only their rank and properties."""

from __future__ import annotations

from dataclasses import dataclass, field

from provision.values.consent import Consent


@dataclass(frozen=True, slots=True, order=True)
class EffectClass:
    """A kind of cost; its name is also the key of the consent policy.

    Args:
        rank: position in the order of risk; effects of one host run in this order.
        name: as the policy and `--allow` spell it.
        meaning: what it does to the site, as plans say it (`the machine reboots`).
        default_consent: consent where the policy does not list it.
        reboots: a new boot id proves it.
        is_final: it removes what nobody can bring back, so that old answers are not enough.
        replaces_target: its target is another one afterwards, of which nothing is known before.
        voids_target: its target's systems are not what they were: answers and connections no longer count.
        affects_existing: it affects what existed before, even where its target is created in this run.
        boots_target: its target boots without the engine waiting for it, as a reboot does otherwise.
        script: POSIX text by which a host performs it, with `{target}` for the quoted target; empty if a host
            cannot by itself.
        timeout: seconds that the script may take (generous: emulated machines are slow).
        done_by_boot: any other boot of the host performs it as well.
        needs_boot: it is of use only to a boot that comes after it.
    """

    rank: int
    name: str
    meaning: str = field(compare=False)
    default_consent: Consent = field(default=Consent.ASK, compare=False)
    reboots: bool = field(default=False, compare=False)
    is_final: bool = field(default=False, compare=False)
    replaces_target: bool = field(default=False, compare=False)
    voids_target: bool = field(default=False, compare=False)
    affects_existing: bool = field(default=False, compare=False)
    boots_target: bool = field(default=False, compare=False)
    script: str = field(default="", compare=False, repr=False)
    timeout: float = field(default=300.0, compare=False)
    done_by_boot: bool = field(default=False, compare=False)
    needs_boot: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, order=True)
class Effect:
    """One cost of a change; equal effects of one system happen once.

    Args:
        cls: the effect class, the key of the consent policy.
        target: what it affects: a unit (`chrony.service`), a subject, or empty for the whole system.
    """

    cls: EffectClass
    target: str = ""

    def __str__(self) -> str:
        return f"{self.cls} {self.target}".rstrip()
