"""What the engine knows about a site: everything of the domain comes in through these hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provision.connections.contracts import Endpoint
from provision.contracts.driver import Driver
from provision.contracts.effect import EffectClass
from provision.contracts.hook import Hook
from provision.contracts.role import Parent, Role
from provision.contracts.rule import Evidence
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import SystemSpec
from provision.engine.generated import GeneratedValues
from provision.engine.model import Checkpoint
from provision.inventory import Inventory, Subject
from provision.inventory.playbook import Playbook
from provision.values.cancel import Cancel
from provision.values.consent import Consent
from provision.values.diagnostics import Diagnostic
from provision.values.outcomes import ExitCode


@dataclass(frozen=True, slots=True)
class Options:
    """What one call is about.

    Args:
        targets: names of subjects; empty for all.
        steps: names of roles; empty for all.
        allow: names of effect classes whose `ask` is lifted for this run; never lifts `never`.
        prune: also remove what left the inventory.
        host: destroy also removes what it would leave on machines that stay.
        strict: verify: an unknown check is exit 7.
        junit: verify: where to write JUnit XML, or None.
        pods: verify: whether checks may make something for a time, as pods.
        rotate: names of generated values that are replaced by new ones.
    """

    targets: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    allow: frozenset[str] = frozenset()
    prune: bool = False
    host: bool = False
    strict: bool = False
    junit: Any = None
    pods: bool = True
    rotate: frozenset[str] = frozenset()

    def includes(self, role: str = "", subject: str = "") -> bool:
        """Whether steps of a role, or of a subject, are chosen."""
        return not (
            (role and self.steps and role not in self.steps)
            or (subject and self.targets and subject not in self.targets)
        )


@dataclass(frozen=True, slots=True)
class Verification:
    """How the playbook's verification ended; `detail` is the full report for the layers above."""

    exit_code: ExitCode
    summary: str
    detail: object = None
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True)
class Environment:
    """A site as the engine sees it.

    Args:
        inventory: what the user declared; only handed through.
        name: the inventory's name.
        playbook: what to do.
        roles: by name; a missing one serves nothing.
        select: subjects of a selector.
        systems: all systems by name.
        open_driver: makes a driver; sends nothing before its first question.
        generated: makes the generated values of one run.
        policy: consent by effect class.
        parents: which subjects come before one.
        rules: preflight: what refuses, or is told.
        home: subjects that this process itself runs on, with what a person who has to reboot one reads.
        evidence: questions of preflight beyond those of roles, by system.
        hooks: what is done on other systems before and after effects.
    """

    inventory: Inventory
    name: str
    playbook: Playbook
    roles: Mapping[str, Role]
    select: Callable[[str], Sequence[Subject]]
    systems: Mapping[str, SystemSpec]
    open_driver: Callable[[SystemSpec, Endpoint], Driver]
    generated: Callable[[], GeneratedValues]
    policy: Callable[[EffectClass], Consent] = lambda cls: cls.default_consent
    parents: Callable[[Subject], tuple[Parent, ...]] = lambda _subject: ()
    rules: Callable[[Evidence], Iterable[Diagnostic]] = lambda _evidence: ()
    home: Callable[[Inventory, Mapping[str, Snapshot]], Mapping[str, Diagnostic]] = (
        lambda _inventory, _answers: {}
    )
    evidence: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    hooks: tuple[Hook, ...] = ()


Verify = Callable[[Checkpoint | None, Cancel], Verification]
"""Runs the checks of the whole site, or compares those at a checkpoint with what was proven before;
wired above the engine."""
