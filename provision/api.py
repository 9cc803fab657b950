"""Composition root and public library: load, plan, apply, verify, destroy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from provision.connections.contracts import Endpoint
from provision.engine.model import Plan, RunReport, Step
from provision.inventory import Inventory
from provision.resources.contracts import Driver
from provision.roles.contracts import SystemSpec
from provision.values.cancel import Cancel
from provision.values.effects import EffectClass
from provision.values.events import Emitter
from provision.verify.model import VerifyReport

OpenDriver = Callable[[SystemSpec, Endpoint], Driver]
"""Makes the driver of one system; nothing is sent before its first question."""

Ask = Callable[[str], bool | None]
"""Puts a question to a person; None when there is nobody to answer."""


def nobody(_question: str) -> bool | None:
    """Answer for a person who is not there."""
    return None


@dataclass(frozen=True, slots=True)
class Options:
    """What one call is about.

    Args:
        targets: names of subjects; empty for all.
        steps: names of roles; empty for all.
        allow: effect classes whose `ask` is lifted for this run; never lifts `never`.
        prune: also remove what left the inventory.
        host: destroy also removes the hypervisor's own files.
        strict: verify: *cannot tell* is exit 7.
        junit: verify: where to write JUnit XML.
    """

    targets: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    allow: frozenset[EffectClass] = frozenset()
    prune: bool = False
    host: bool = False
    strict: bool = False
    junit: Path | None = None


@dataclass(slots=True)
class Site:
    """One inventory with its playbook and, once asked, its open systems; close it when done."""

    inventory: Inventory
    playbook: str = "site"
    state: Path | None = None
    open_driver: OpenDriver | None = None
    _closed: bool = field(default=False, repr=False)

    def steps(self, options: Options = Options()) -> tuple[Step, ...]:  # noqa: B008 - frozen
        """Return the steps in the order in which they would begin; asks nothing."""
        raise NotImplementedError

    def plan(self, options: Options, emit: Emitter, cancel: Cancel) -> Plan:
        """Ask every system and return what apply would do; refusals are part of the plan.

        Raises:
            ProvisionError: the inventory declares what no role serves, or secrets cannot be read.
        """
        raise NotImplementedError

    def save(self, plan: Plan, path: Path, options: Options) -> None:
        """Write the plan of the last `plan` call, for `apply(saved=path)`."""
        raise NotImplementedError

    def apply(
        self,
        plan: Plan | None,
        options: Options,
        emit: Emitter,
        cancel: Cancel,
        confirm: Callable[[Plan], bool],
        *,
        ask: Ask = nobody,
        saved: Path | None = None,
    ) -> RunReport:
        """Make it so.

        Args:
            plan: what `plan` of this site returned, or None to plan first.
            options: targets, steps, consents.
            emit: receives all events.
            cancel: `drain` ends after what runs, `leave` at once.
            confirm: shown the plan when it is not empty; False ends with nothing done (exit 5).
            ask: gates and by-hand steps; an answer of None waits (exit 5).
            saved: plan file; apply is refused when something moved since (exit 4).

        Raises:
            Refused: the plan has refusals, or the saved plan is stale.
            ProvisionError: locked (exit 6), usage (64).
        """
        raise NotImplementedError

    def verify(self, options: Options, emit: Emitter, cancel: Cancel) -> VerifyReport:
        """Prove the site: run all checks on fresh answers."""
        raise NotImplementedError

    def destroy(
        self,
        options: Options,
        emit: Emitter,
        cancel: Cancel,
        confirm: Callable[[Plan], bool],
    ) -> RunReport:
        """Remove what apply made and nothing else, in reverse order."""
        raise NotImplementedError

    def close(self) -> None:
        """Close all connections; safe to call twice."""
        self._closed = True


def load(
    path: str | Path,
    *,
    playbook: str | None = None,
    state: Path | None = None,
    open_driver: OpenDriver | None = None,
) -> Site:
    """Read an inventory and its playbook; opens nothing.

    Args:
        path: the inventory file.
        playbook: name of a shipped playbook, or a file; `site` if None.
        state: folder of caches and the journal; `$PROVISION_STATE`, else the XDG state folder, if None.
        open_driver: how systems are opened; SSH and HTTPS if None.

    Raises:
        UsageError: inventory or playbook are wrong.
    """
    raise NotImplementedError
