"""One inventory and its systems: plan, apply, verify, destroy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from provision.api import saved_plan
from provision.api.check_session import Answers
from provision.api.checks import excused, shipped_checks
from provision.api.collections import fewer_collections
from provision.api.defaults import OpenDriver, Verifier, accept, ignore, nobody
from provision.api.domains import roles_kept_by_destroy
from provision.api.events import guarded, is_worth_asking, plan_code, plan_events
from provision.api.masking import checks_masked, explained_masked, plan_masked
from provision.api.plan_key import plan_key
from provision.api.refusals import check_destroy, check_plan
from provision.api.remembered_queries import RememberedQueries
from provision.api.run_identity import new_run_id, who
from provision.api.systems import hooks, open_system, parents, systems
from provision.api.wiring import (
    is_shipped,
    planned_roles,
    read_playbook,
    roles_of,
    state_folder,
)
from provision.connections.contracts import (
    Endpoint,
    SshEndpoint,
)
from provision.connections.ssh_pool import SshPool
from provision.connections.trust import TrustStore
from provision.contracts import common_effects
from provision.contracts.driver import Driver
from provision.contracts.effect import EffectClass
from provision.contracts.resource import Resource
from provision.contracts.system import NotThere, SystemSpec
from provision.engine.environment import Environment, Options
from provision.engine.generated import GeneratedValues
from provision.engine.model import Plan, RunReport, Step, StepId
from provision.engine.plan import Planner
from provision.engine.planned import Planned
from provision.engine.run import Ask
from provision.engine.run_lock import run_lock
from provision.engine.session import Session
from provision.engine.steps import expand
from provision.inventory import Inventory, open_at_hand, select
from provision.inventory.host_keys import key_place
from provision.inventory.playbook import VERIFY
from provision.report.explained import Explained, explained
from provision.values.cancel import Cancel, Interrupted
from provision.values.consent import Consent
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Refused, UsageError
from provision.values.events import Emitter, RunEnded, RunStarted
from provision.values.outcomes import ExitCode
from provision.values.redaction import Redactor
from provision.verify.model import CheckResult, VerifyReport


@dataclass
class Site:
    """One inventory with its playbook and, once asked, its open systems; close it when done.

    Args:
        inventory: what the user declared.
        playbook: name of a shipped playbook, or a file.
        state: folder of caches and the journal; `state_folder()` if None.
        open_driver: how systems are opened; SSH and HTTPS if None.
        verifier: how the site is verified; the checks in `provision.verify` if None.
    """

    inventory: Inventory
    playbook: str = "site"
    state: Path | None = None
    open_driver: OpenDriver | None = None
    verifier: Verifier | None = None
    _ssh_pool: SshPool = field(default_factory=SshPool)
    _planned: Planned | None = None
    _shown: Plan | None = None
    """The last plan as callers got it: secrets masked."""
    _session: Session | None = None

    # ------------------------------------------------------------ parts

    @property
    def redactor(self) -> Redactor:
        """Masks all secrets of the inventory and of its systems."""
        return self.inventory.redactor

    @property
    def folder(self) -> Path:
        """Folder of this inventory's caches."""
        return (self.state or state_folder()) / self.inventory.name

    @property
    def journal_path(self) -> Path:
        """The journal of all runs."""
        return (self.state or state_folder()) / "journal.sqlite"

    @cached_property
    def environment(self) -> Environment:
        """The site as the engine sees it.

        Raises:
            UsageError: the playbook is wrong.
        """
        # Only when something is asked: not for --help.
        from provision.api.preflight import check, evidence  # noqa: PLC0415 - slow, late
        from provision.hosts.preflight import home  # noqa: PLC0415 - slow, late

        playbook = read_playbook(self.playbook)
        return Environment(
            inventory=self.inventory,
            name=self.inventory.name,
            playbook=playbook,
            roles=roles_of(playbook),
            select=lambda selector: select(self.inventory, selector),
            systems=systems(self.inventory),
            open_driver=self._open,
            generated=self._generated,
            policy=self._consent,
            parents=lambda subject: parents(self.inventory, subject),
            rules=check,
            home=home,
            evidence=evidence(self.inventory),
            hooks=hooks(self.inventory),
        )

    @property
    def session(self) -> Session:
        """The open systems; whatever they answer is masked of every secret that is at hand."""
        if self._session is None:
            open_at_hand(self.inventory)
            self._session = Session(self.environment.systems, self.environment.open_driver, self.redactor.add)
        return self._session

    def keeps_on_hosts(self) -> bool:
        """Return whether destroy leaves something on machines that stay, unless it is told `--host`."""
        return any(step.id.role in roles_kept_by_destroy() for step in self.steps())

    def awaited(self) -> tuple[str, ...]:
        """Return the systems that were asked and have not answered yet; safe from any thread."""
        return () if self._session is None else tuple(self._session.awaited.copy())

    def _open(self, spec: SystemSpec, endpoint: Endpoint) -> Driver:
        if self.open_driver is not None:
            return self.open_driver(spec, endpoint)
        accepted = self._accepted(spec.name, endpoint)
        return open_system(self.inventory, self.redactor, self._ssh_pool, spec, accepted)

    @property
    def trust(self) -> TrustStore:
        """Host keys that a person accepted; beside the inventory, so that no controller's loss loses them."""
        file = Path(self.inventory.file or self.inventory.name)
        return TrustStore(file.with_suffix(".trust"))

    def endpoint(self, system: str, cancel: Cancel) -> Endpoint | NotThere:
        """Return how a system is reached, with the host keys that are accepted for it.

        Raises:
            ProvisionError: what it follows from cannot be asked.
        """
        endpoint_or_reason = self.session.endpoint(system, cancel)
        return (
            endpoint_or_reason
            if isinstance(endpoint_or_reason, NotThere)
            else self._accepted(system, endpoint_or_reason)
        )

    def _accepted(self, system: str, endpoint: Endpoint) -> Endpoint:
        if not isinstance(endpoint, SshEndpoint):
            return endpoint
        place = key_place(self.inventory, self.environment.systems[system].subject, system)
        accepted = endpoint.fingerprints or self.trust.fingerprints(system)
        return replace(endpoint, fingerprints=accepted, accept=place.accept)

    def _generated(self) -> GeneratedValues:
        from provision.connections.keys import new_host_key  # noqa: PLC0415 - slow

        return GeneratedValues(new_host_key, self.redactor.add)

    def _consent(self, cls: EffectClass) -> Consent:
        return self.inventory.consent(cls.name) or cls.default_consent

    @cached_property
    def queries(self) -> RememberedQueries:
        """What was asked in former runs."""
        return RememberedQueries(self.folder / "query_cache.json")

    def remember(self, options: Options, verified: Mapping[str, Iterable[Any]] | None = None) -> None:
        """Keep the questions of this run, and those of its checks, for the next one."""
        late = self._planned is not None and any(step.late for step in self._planned.plan.steps)
        partial = bool(options.targets or options.steps or late)
        self.queries.update(self.session, verified or {}, partial=partial)

    # ------------------------------------------------------------ calls

    def steps(self, options: Options | None = None) -> tuple[Step, ...]:
        """Return the steps in the order in which they would begin; asks nothing."""
        return expand(self.environment, options or Options())

    def plan(
        self,
        options: Options | None = None,
        emit: Emitter = ignore,
        cancel: Cancel | None = None,
        *,
        detailed: bool = False,
    ) -> Plan:
        """Ask every system and return what apply would do; refusals are part of the plan.

        Args:
            options: targets, steps, consents.
            emit: receives the plan as events.
            cancel: ends it early.
            detailed: the exit code of the last event tells changes by 2.

        Raises:
            UsageError: the inventory declares what no role serves, or is wrong otherwise.
            Interrupted: the run was told to drain or to leave; nothing acts yet.
        """
        run, emit = new_run_id(), guarded(emit, self.redactor.text)
        began = time.monotonic()
        emit(RunStarted(run=run, inventory=self.inventory.name, verb="plan"))
        self._plan(options or Options(), cancel or Cancel())
        plan = self._leaving()
        for event in plan_events(run, plan):
            emit(event)
        code = plan_code(plan, detailed=detailed)
        emit(RunEnded(run=run, outcomes={}, exit_code=int(code), seconds=time.monotonic() - began))
        return plan

    @fewer_collections()
    def _plan(
        self, options: Options, cancel: Cancel, *, destroying: bool = False, verifying: bool = False
    ) -> Planned:
        if self._session is not None:
            for name in self._session.systems:
                self._session.reset(name, cancel, close=False)
        environment = self.environment
        if destroying and not options.host:
            kept_roles = roles_kept_by_destroy()
            kept = tuple(entry for entry in environment.playbook.entries if entry.role not in kept_roles)
            environment = replace(environment, playbook=replace(environment.playbook, entries=kept))
        check = check_destroy if destroying else check_plan
        steps = expand(environment, options)
        check(environment, options, steps)
        # What only the checks ask is asked along where they follow: one round trip for both.
        verifying = verifying and not options.steps and _verifies(environment)
        remembered = self.queries.recall(verify=verifying)
        planner = Planner(environment, self.session, options, remembered, cancel, destroying=destroying)
        self._planned, self._shown = planner.plan(steps), None
        notes = planned_roles(environment.playbook, options, shipped=is_shipped(self.playbook))
        plan = self._planned.plan
        self._planned.plan = replace(plan, warnings=(*plan.warnings, *notes))
        if cancel.draining:  # it may have come after the last answer
            raise Interrupted
        if not destroying:
            self.remember(options)
        return self._planned

    def _leaving(self) -> Plan:
        """Return the last plan as callers may see it."""
        if self._planned is None:
            raise RuntimeError("nothing was planned")
        if self._shown is None:
            self._shown = plan_masked(self._planned.plan, self.redactor.text)
        return self._shown

    def explain(self, text: str, cancel: Cancel) -> tuple[Explained, ...]:
        """Plan, and return what is known of the resources whose key is, or contains, a text."""
        planned = self._plan(Options(), cancel)
        explanations = explained(planned.states, self.session.snapshots(), text)
        return tuple(explained_masked(explanation, self.redactor.text) for explanation in explanations)

    def resources(self, cancel: Cancel) -> dict[StepId, tuple[Resource, ...]]:
        """Plan, and return all desired states by step: each resource where it is owned or shared."""
        states = self._plan(Options(), cancel).states
        return {step: state.resources for step, state in states.items()}

    def save(self, plan: Plan, path: Path) -> None:
        """Write the plan of the last `plan` call, for `apply(saved=path)`.

        Raises:
            UsageError: it is not the last plan of this site.
        """
        if self._planned is None or self._shown is not plan:
            raise UsageError(Diagnostic("PLAN_NOT_LAST", "only the last plan of a site can be saved"))
        saved_plan.save(path, self._content(self._planned), self.inventory.file, self.playbook)

    def _content(self, planned: Planned) -> dict[str, Any]:
        """Return what a saved plan holds."""
        digests = saved_plan.Digests(
            lambda: plan_key(self.journal_path.parent),
            self.redactor.text,
            planned.expander.generated.redactor_of_made().text,
        )
        return saved_plan.content(planned, self.inventory.digest, self.session.snapshots(), digests)

    def apply(
        self,
        plan: Plan | None = None,
        options: Options | None = None,
        emit: Emitter = ignore,
        cancel: Cancel | None = None,
        confirm: Callable[[Plan], bool] = accept,
        *,
        ask: Ask = nobody,
        saved: Path | None = None,
    ) -> RunReport:
        """Bring the site to its desired state.

        Without `confirm` the plan is accepted, as `--yes` does; effects that the policy asks about still need
        `options.allow`, or an answer of `ask`.

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
        from provision.api.execution import perform  # noqa: PLC0415 - it needs this class

        run, started = new_run_id(), time.time()
        options, cancel = options or Options(), cancel or Cancel()
        promise = saved_plan.read(saved) if saved is not None else None
        if promise is not None:
            given = saved_plan.options_of(promise)
            options = replace(given, allow=given.allow | options.allow)
        with run_lock(self.folder / "lock", run, who()):
            planned = self._planned
            if planned is None or plan is None or self._shown is not plan:
                planned = self._plan(options, cancel, verifying=True)
            planned.consents.allow = options.allow
            if planned.plan.refusals:
                raise Refused(self._leaving().refusals)
            if promise is not None:
                saved_plan.check(promise, self._content(planned))
            if is_worth_asking(planned.plan) and not confirm(self._leaving()):
                return RunReport(run, self.inventory.name, (), exit_code=int(ExitCode.WAITING))
            planned.consents.ask_ahead(planned.plan.risks, ask)
            return perform(self, run, "apply", planned, options, emit, cancel, ask, started)

    def verify(
        self, options: Options | None = None, emit: Emitter = ignore, cancel: Cancel | None = None
    ) -> VerifyReport:
        """Prove the site: run all checks on fresh answers, after an apply those of its end.

        Args:
            options: targets, strict.
            emit: receives all events.
            cancel: ends it early.

        Raises:
            UsageError: targets do not exist, or what is needed to ask cannot be opened.
            Interrupted: the run was told to drain or to leave; nothing acts.
        """
        from provision.api.verification import verify_site  # noqa: PLC0415 - it needs this class

        return verify_site(self, options or Options(), emit, cancel or Cancel())

    def run_checks(
        self, answers: Answers, options: Options, tell: Callable[[CheckResult], None]
    ) -> VerifyReport:
        """Run the checks; what they return has secrets masked."""
        away = excused(self.session)
        if self.verifier is not None:
            report = self.verifier(answers, away, options, tell)
        else:
            report = shipped_checks(self.inventory, answers, away, options, tell, self._domains())
        report = checks_masked(report, self.redactor.text)
        if options.junit is not None:
            from provision.report.junit import junit_xml  # noqa: PLC0415 - only where it is asked for

            text = junit_xml(self.inventory.name, report.checks, report.seconds)
            Path(options.junit).write_text(text, encoding="utf-8")
        return report

    def _domains(self) -> tuple[str, ...]:
        """Return the domains whose checks the playbook names; none for all."""
        entries = [entry for entry in self.environment.playbook.entries if entry.role == VERIFY]
        return tuple(dict.fromkeys(name for entry in entries for name in entry.checks))

    def is_strict(self, options: Options) -> bool:
        """Whether an unknown check counts: by option, or by the inventory's `verify.strict`."""
        return options.strict or self.inventory.verify.strict

    def destroy(
        self,
        options: Options | None = None,
        emit: Emitter = ignore,
        cancel: Cancel | None = None,
        confirm: Callable[[Plan], bool] | None = None,
    ) -> RunReport:
        """Remove what apply made and nothing else, in reverse order; the confirmation is the consent.

        Args:
            options: `host` also removes what destroy leaves on machines that stay.
            emit: receives all events.
            cancel: `drain` ends after what runs, `leave` at once.
            confirm: shown the plan; False ends with nothing done (exit 5). Without it `delete` must be in
                `options.allow`, or allowed by the policy.

        Raises:
            UsageError: nobody has agreed to the loss of data.
        """
        from provision.api.execution import perform  # noqa: PLC0415 - it needs this class

        run, started = new_run_id(), time.time()
        options, cancel = options or Options(), cancel or Cancel()
        delete = common_effects.DELETE.name
        if confirm is None:
            if delete not in options.allow and self.inventory.consent(delete) is not Consent.ALLOW:
                summary = "destroy removes machines and their data, and nobody has agreed to that"
                remedy = 'pass confirm=..., or options with allow={"delete"}'
                raise UsageError(Diagnostic("CONFIRMATION_MISSING", summary, remedy=remedy))
            confirm = accept
        with run_lock(self.folder / "lock", run, who()):
            planned = self._plan(options, cancel, destroying=True)
            if planned.plan.refusals:
                raise Refused(self._leaving().refusals)
            if not confirm(self._leaving()):
                return RunReport(run, self.inventory.name, (), exit_code=int(ExitCode.WAITING))
            return perform(self, run, "destroy", planned, options, emit, cancel, nobody, started)

    @staticmethod
    def options(
        *,
        targets: Iterable[str] = (),
        steps: Iterable[str] = (),
        allow: Iterable[str] = (),
        prune: bool = False,
        host: bool = False,
        strict: bool = False,
    ) -> Options:
        """Return options for `plan`, `apply`, `verify` and `destroy`; see `Options` for what each means."""
        return Options(tuple(targets), tuple(steps), frozenset(allow), prune, host, strict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; safe to call twice."""
        if self._session is not None:
            self._session.close()


def _verifies(environment: Environment) -> bool:
    return any(entry.role == VERIFY or entry.verify_each for entry in environment.playbook.entries)
