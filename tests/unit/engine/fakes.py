"""A site of small fakes: roles are objects, and their hosts are those of fake_hosts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from provision.api import query_cache
from provision.connections.contracts import Endpoint, LocalEndpoint
from provision.contracts.effect import EffectClass
from provision.contracts.hook import Hook
from provision.contracts.resource import Resource
from provision.contracts.role import Context, Need, Parent, Role
from provision.contracts.rule import Evidence
from provision.contracts.snapshot import Snapshot
from provision.contracts.system import NotThere, SystemSpec
from provision.engine.environment import Environment, Options, Verification
from provision.engine.generated import GeneratedValues
from provision.engine.journal import Journal, _Entry
from provision.engine.model import Checkpoint, RunReport
from provision.engine.plan import Planner
from provision.engine.planned import Planned
from provision.engine.run import Run
from provision.engine.run_plan import run_plan
from provision.engine.session import Session
from provision.inventory import Inventory, Subject
from provision.inventory.playbook import Entry, Playbook
from provision.values.cancel import Cancel
from provision.values.consent import Consent
from provision.values.diagnostics import Diagnostic
from provision.values.events import Event
from tests.unit.engine.fake_hosts import FakeDriver, Host, Item, KilledError, Value


@dataclass
class FakeRole:
    """A role whose resources are a function of the context."""

    name: str
    make: Callable[[Context], Sequence[Item]]
    asks: Callable[[str], Mapping[str, tuple[Any, ...]]]
    needs: tuple[str | Need, ...] = ()
    needs_new_boot: bool = False
    unreached_stops: bool = False
    subjects: frozenset[str] | None = None
    gone: Callable[[Context], Sequence[Item]] | None = None
    left: Callable[[Context], Sequence[Item]] | None = None
    unchosen: Callable[[Context], Sequence[Item]] | None = None
    unchosen_on: tuple[str, ...] = ()
    expanded: int = 0

    def declared(self, inventory: Inventory, subject: Subject) -> bool:
        del inventory
        return self.subjects is None or subject.name in self.subjects

    def questions(self, inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
        del inventory
        return self.asks(subject.name)

    def resources(self, context: Context) -> tuple[Resource, ...]:
        self.expanded += 1
        return tuple(self.make(context))

    def role(self) -> Role:
        """Return it as the engine takes it."""
        gone, left = self.gone, self.left
        return Role(
            name=self.name,
            declared=self.declared,
            questions=self.questions,
            resources=self.resources,
            needs=self.needs,
            needs_new_boot=self.needs_new_boot,
            unreached_stops=self.unreached_stops,
            retired=None if gone is None else lambda context: tuple(gone(context)),
            unchosen=self.unchosen,
            unchosen_on=lambda _: {Subject("node", name): self.asks(name) for name in self.unchosen_on},
            orphan_owners=None if left is None else lambda _: {Subject("node", "n1"): {"n1/ssh": ()}},
            orphans=None if left is None else lambda context: tuple(left(context)),
        )


def on_own(*asked: str) -> Callable[[str], Mapping[str, tuple[Any, ...]]]:
    """Ask the subject's own host for these."""
    return lambda subject: {f"{subject}/ssh": tuple(Value(each) for each in asked)}


def own(**values: str) -> Callable[[Context], Sequence[Item]]:
    """Want these values on the subject's own host."""
    return lambda context: [
        Item(f"{context.subject.name}/ssh", name, value) for name, value in values.items()
    ]


class NoJournal(Journal):
    """Takes every entry and keeps none."""

    def _put(self, sql: str, *values: Any) -> _Entry:
        entry = _Entry(sql, values)
        entry.written.set()
        return entry


@dataclass
class FakeSite:
    """Hosts, roles and a playbook; sessions come and go, hosts stay."""

    roles: list[FakeRole]
    subjects: tuple[str, ...] = ("n1",)
    hosts: dict[str, Host] = field(default_factory=dict)
    specs: dict[str, SystemSpec] = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    policy: dict[EffectClass, Consent] = field(default_factory=dict)
    parents: dict[str, tuple[Parent, ...]] = field(default_factory=dict)
    rules: Callable[[Evidence], Iterable[Diagnostic]] = lambda _evidence: ()
    home: dict[str, Diagnostic] = field(default_factory=dict)
    state: Path | None = None
    journal: Journal | None = None
    runs: int = 0
    verify: Callable[[Cancel], Verification] | None = None
    checkpoint: Callable[[Checkpoint, Cancel], Verification] | None = None
    on_set: Callable[[str, str, str], None] | None = None
    on_effect: Callable[[str, str], None] | None = None
    on_boot: Callable[[str, bool], None] | None = None
    hooks: tuple[Hook, ...] = ()
    kill_at: int = 0
    boundaries: int = 0
    events: list[Event] = field(default_factory=list)
    on_event: Callable[[Event], None] | None = None
    busy: set[str] = field(default_factory=set)
    session: Session | None = None
    blocks: dict[str, threading.Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for subject in self.subjects:
            name = f"{subject}/ssh"
            self.hosts.setdefault(name, Host())
            self.specs.setdefault(name, SystemSpec(name, "host", subject, {}, here))

    def boundary(self) -> None:
        self.boundaries += 1
        if self.boundaries == self.kill_at:
            raise KilledError

    def inside(self, system: str) -> None:
        if system in self.blocks:
            self.blocks[system].wait()

    def environment(self) -> Environment:
        entries = self.entries or tuple(Entry(role.name, ("all",)) for role in self.roles)
        return Environment(
            inventory=cast(Inventory, None),
            name="fake",
            playbook=Playbook("fake", entries),
            roles={role.name: role.role() for role in self.roles},
            select=lambda selector: [
                Subject("node", name) for name in self.subjects if selector in {"all", name}
            ],
            systems=self.specs,
            open_driver=lambda spec, _: FakeDriver(spec.name, self.hosts[spec.name], self),
            generated=lambda: GeneratedValues(cast(Any, None)),
            policy=lambda cls: self.policy.get(cls, cls.default_consent),
            parents=lambda subject: self.parents.get(subject.name, ()),
            rules=self.rules,
            home=lambda *_: self.home,
            hooks=self.hooks,
        )

    def plan(self, options: Options | None = None, *, destroying: bool = False) -> Planned:
        """Plan in a new session."""
        environment = self.environment()
        self.session = Session(environment.systems, environment.open_driver)
        remembered = query_cache.read(self.state / "query_cache.json") if self.state else {}
        planned = Planner(
            environment, self.session, options or Options(), remembered, Cancel(), destroying=destroying
        ).plan()
        self.remember()
        return planned

    def remember(self) -> None:
        if self.state is not None and self.session is not None:
            query_cache.write(
                self.state / "query_cache.json",
                {name: each.claimed for name, each in self.session.systems.items()},
            )

    def apply(
        self,
        options: Options | None = None,
        *,
        planned: Planned | None = None,
        ask: Callable[[str], bool | None] = lambda _: None,
        cancel: Cancel | None = None,
        destroying: bool = False,
    ) -> RunReport:
        """Plan in a new session and apply."""
        run = self.run(planned or self.plan(options, destroying=destroying), cancel or Cancel(), ask)
        try:
            run.journal.begin(run.id, "fake", "apply", "me")
            return run_plan(run, "apply")
        finally:
            run.journal.close()
            self.remember()

    def run(self, planned: Planned, cancel: Cancel, ask: Callable[[str], bool | None]) -> Run:
        """Return a run of the last plan."""
        assert self.session is not None
        self.runs += 1
        journal = self.journal
        if journal is None:
            journal = Journal(self.state / "journal.sqlite") if self.state else NoJournal(Path("journal"))
        return Run(
            id=f"run-{self.runs}",
            environment=self.environment(),
            session=self.session,
            planned=planned,
            emit=self._emit,
            cancel=cancel,
            journal=journal,
            ask=ask,
            verify=self._verify if self.verify is not None else None,
        )

    def _verify(self, checkpoint: Checkpoint | None, cancel: Cancel) -> Verification:
        if checkpoint is None:
            assert self.verify is not None
            return self.verify(cancel)
        assert self.checkpoint is not None
        return self.checkpoint(checkpoint, cancel)

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        if self.on_event is not None:
            self.on_event(event)

    def outcomes(self, report: RunReport) -> dict[str, str]:
        return {str(step.id): str(step.outcome) for step in report.steps}

    def dump(self) -> dict[str, tuple[Any, ...]]:
        return {name: host.dump() for name, host in self.hosts.items()}


def here(_seen: Mapping[str, Snapshot]) -> Endpoint | NotThere:
    """Every fake host is here."""
    return LocalEndpoint()


def born_on(system: str, name: str) -> Callable[[Mapping[str, Snapshot]], Endpoint | NotThere]:
    """A guest is there once its API holds it."""

    def endpoint(seen: Mapping[str, Snapshot]) -> Endpoint | NotThere:
        return LocalEndpoint() if seen[system][Value(name)] else NotThere(f"{name} does not exist yet")

    return endpoint
