"""What is wrong with a site, or with one host, with evidence and remedy; nothing is changed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence

from provision.api.domains import domains, effect_classes
from provision.api.run_identity import who
from provision.api.site import Site
from provision.connections.contracts import ShellConnection
from provision.contracts.snapshot import Snapshot
from provision.engine.environment import Options
from provision.engine.observe import observe
from provision.engine.session import AwayError
from provision.hosts.doctor import HostRule, problems
from provision.hosts.driver import HostDriver
from provision.hosts.query_kinds import HOST_KINDS
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic, Severity
from provision.values.events import Emitter
from provision.values.outcomes import ExitCode
from provision.values.references import load_object

SKEW = 60.0
"""Seconds that a host's clock may differ from the controller's."""
FREE = 50 * 1024 * 1024
"""Bytes that the controller should have for its journal."""


def host_rules() -> tuple[HostRule, ...]:
    """Return what all domains look for on hosts."""
    return tuple(rule for domain in domains() if domain.doctor for rule in load_object(domain.doctor))


def examine(site: Site, options: Options, emit: Emitter, cancel: Cancel) -> tuple[Diagnostic, ...]:
    """Return all problems of a site: of the controller, of preflight, of silent systems, of its hosts.

    Args:
        site: what is examined.
        options: targets.
        emit: receives the plan as events.
        cancel: ends it early.

    Raises:
        UsageError, Interrupted: as `Site.plan`.
    """
    plan = site.plan(options, emit, cancel)
    session, rules = site.session, host_rules()
    hosts = [
        name for name, system in session.systems.items() if system.spec.kind == "host" and system.snapshot
    ]
    queries = [rule.query for rule in rules]
    observe(session, dict.fromkeys(hosts, queries), {}, cancel)
    diagnostics = [*controller(site), *plan.refusals, *plan.warnings]
    diagnostics += [step.problem for step in plan.steps if step.problem is not None]
    for system in session.systems.values():
        if system.snapshot is None:
            if system.error is not None and not isinstance(system.error, AwayError):
                diagnostics += system.error.diagnostics
        elif system.spec.kind == "host":
            diagnostics += of_host(rules, system.snapshot, system.spec.subject or system.spec.name)
            diagnostics += _due(site, system.snapshot, system.spec.subject or system.spec.name)
    mask = site.redactor.text
    return tuple(dict.fromkeys(diagnostic.masked(mask) for diagnostic in diagnostics))


def examine_host(connection: ShellConnection, host: str, cancel: Cancel) -> tuple[Diagnostic, ...]:
    """Return all problems of a host that no inventory needs to know, by one execution.

    Raises:
        ProvisionError: it does not answer.
    """
    driver = HostDriver(host, connection, HOST_KINDS, who=who(), effects=effect_classes().values())
    rules = host_rules()
    return tuple(of_host(rules, driver.answer(frozenset(rule.query for rule in rules), cancel), host))


def of_host(rules: Sequence[HostRule], snapshot: Snapshot, subject: str) -> Iterator[Diagnostic]:
    """Yield the problems of a host that has answered."""
    yield from problems(rules, snapshot, subject)
    if abs(snapshot.skew) > SKEW:
        direction = "ahead of" if snapshot.skew > 0 else "behind"
        yield Diagnostic(
            "CLOCK_DIFFERS",
            f"the clock of {subject} is {abs(snapshot.skew):.0f} s {direction} the clock of this machine",
            subject,
            Severity.WARNING,
            remedy="declare `ntp:` of the node, and synchronize this machine: `timedatectl set-ntp true`",
        )


def controller(site: Site) -> Iterator[Diagnostic]:
    """Yield the problems of the machine that provision runs on."""
    if shutil.which("ssh") is None:
        yield Diagnostic(
            "CONTROLLER_WITHOUT_SSH",
            "this machine has no ssh program: `provision ssh` and ~/.ssh/config need it",
            severity=Severity.WARNING,
            remedy="install it: `apt-get install openssh-client`",
        )
    folder = site.journal_path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < FREE:
        yield Diagnostic(
            "CONTROLLER_DISK_FULL",
            f"{folder} has {free // 1024 // 1024} MiB left, and the journal of runs is kept there",
            remedy="free space, or name another folder by the variable PROVISION_STATE",
        )


def doctor_code(diagnostics: Sequence[Diagnostic]) -> ExitCode:
    """Return the exit code: an error among the problems makes it 4."""
    wrong = any(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics)
    return ExitCode.REFUSED if wrong else ExitCode.DONE


def _due(site: Site, snapshot: Snapshot, subject: str) -> Iterator[Diagnostic]:
    for pending in snapshot.pending:
        yield Diagnostic(
            "EFFECT_DUE",
            f"{pending.effect} of {subject} is still due from run {pending.run}",
            subject,
            Severity.WARNING,
            remedy=f"continue: `provision apply {site.inventory.file or 'INVENTORY'}`",
        )
