"""The contracts of the house: queries, snapshots, resources, changes, fixes, drivers.

`queries`, `changes`, `fix`, `script` and `parse` are pure: nearly everything is tested without a machine.
Adding a kind of resource needs: a frozen query with its QueryKind, a frozen resource, a case table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

from pydantic import SecretStr

from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic, Source
from provision.values.effects import Effect

# ---------------------------------------------------------------- questions and answers


@dataclass(frozen=True, slots=True)
class Unknown:
    """A question that got no usable answer, and why; never mistaken for absence."""

    reason: str


@runtime_checkable
class Query(Protocol):
    """A hashable question to one system: a frozen dataclass with plain fields (str, int, bool, tuples)."""

    kind: ClassVar[str]


@dataclass(frozen=True, slots=True)
class Frame:
    """What one fragment of a script said: first and last 64 KiB of each stream, the rest only counted.

    `rc` is None when the frame never ended (connection cut): its outcome is unknown.
    """

    stdout: bytes
    stderr: bytes
    rc: int | None
    dropped: int = 0


class QueryKind(Protocol):
    """How all questions of one kind are asked of a host by one shell fragment, and how its answer is read.

    `parse` is total: garbage becomes Unknown, for each question on its own.
    """

    @property
    def query(self) -> type[Any]:
        """The class of the queries."""
        ...

    def script(self, queries: Sequence[Any]) -> str:
        """Return one POSIX fragment that answers all questions; it writes nothing."""
        ...

    def parse(self, frame: Frame, queries: Sequence[Any]) -> Mapping[Any, object]:
        """Return an answer or Unknown for every question."""
        ...


@dataclass(frozen=True, slots=True)
class Pending:
    """An effect that a killed or refused run still owes, found on the target.

    Args:
        effect: what must happen.
        boot_id: boot id at the time of the fix; reboots and restarts are satisfied by any other.
        run: which run owes it.
    """

    effect: Effect
    boot_id: str
    run: str


class UnaskedError(KeyError):
    """A role or resource looked at an answer that nobody asked for: a programming error."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The answers of one system at one time.

    Args:
        system: `pve/ssh`, `pve/api`, `vm-1/ssh`, `router`.
        boot_id: which boot of the host answered; empty for APIs.
        answers: answer or Unknown by question.
        pending: effects still owed on the host.
        clock: the host's clock in epoch seconds, 0.0 if it has none.
        skew: the host's clock minus the controller's, in seconds.
        unknown: the queries whose answer is Unknown; derived from `answers`.
    """

    system: str
    boot_id: str = ""
    answers: Mapping[Any, object] = field(default_factory=dict)
    pending: tuple[Pending, ...] = ()
    clock: float = 0.0
    skew: float = 0.0
    unknown: frozenset[Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        unknown = frozenset(query for query, answer in self.answers.items() if isinstance(answer, Unknown))
        object.__setattr__(self, "unknown", unknown)

    def __contains__(self, query: object) -> bool:
        return query in self.answers

    def __getitem__(self, query: Any) -> Any:
        """Return the answer (may be Unknown). Raises UnaskedError."""
        try:
            return self.answers[query]
        except KeyError:
            raise UnaskedError(f"{self.system} was not asked {query!r}") from None

    def missing(self, queries: Iterable[Any]) -> frozenset[Any]:
        """Return those of the questions that this snapshot does not answer."""
        return frozenset(query for query in queries if query not in self.answers)

    def updated(self, newer: Snapshot) -> Snapshot:
        """Return this snapshot with the answers of a newer one; a new boot id voids the older answers."""
        if newer.boot_id != self.boot_id:
            return newer
        return replace(newer, answers={**self.answers, **newer.answers})


# ---------------------------------------------------------------- desired states


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Identity of a resource: no two different desired states may share one."""

    system: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.system}:{self.kind}:{self.name}"


class Op(StrEnum):
    """The alphabet of a plan."""

    CREATE = "+"
    UPDATE = "~"
    REPLACE = "-/+"
    DELETE = "-"
    ATTENTION = "!"


class Settles(StrEnum):
    """When a change can be read back."""

    NOW = "now"
    AFTER_EFFECT = "after-effect"
    WITHIN = "within"


@dataclass(frozen=True, slots=True)
class Change:
    """One field-level difference.

    Args:
        op: what happens.
        path: which field (`mode`, `content`, `net0.mac`).
        old: what is seen, as the user may read it (None = nothing there).
        new: what is wanted.
        settles: now, after the fix's effects, or within `deadline` seconds (polled).
        deadline: seconds, for Settles.WITHIN.
        secret: old and new are never shown.
    """

    op: Op
    path: str
    old: object = None
    new: object = None
    settles: Settles = Settles.NOW
    deadline: float = 0.0
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Blob:
    """Content too large to go inline (over 64 KiB): sent before the fix, named by its SHA-256.

    The fragment finds it at `$PROVISION_BLOBS/<sha256>`.
    """

    sha256: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Fix:
    """How a host is brought to the desired state.

    Args:
        script: POSIX fragment, run under `set -eu` with stdin from /dev/null; `:` when only effects are owed.
        effects: what must happen after it; its markers are on the target before the fragment begins.
        risks: consents that the fragment itself needs before it may run.
        blobs: large content.
        secrets: values to mask in all output (they may be inside `script`, which is never shown).
        timeout: seconds the fragment may take.
        quiet: seconds it may go without output, 0 for no such limit.
        ops: the operations that `script` was rendered from; ModelHost interprets them by meaning.
        births: the subject that it makes, or makes anew; empty for nearly all. Nothing else is a birth.
    """

    script: str = field(repr=False)
    effects: tuple[Effect, ...] = ()
    risks: tuple[Effect, ...] = ()
    blobs: tuple[Blob, ...] = ()
    secrets: tuple[SecretStr, ...] = ()
    timeout: float = 300.0
    quiet: float = 0.0
    ops: tuple[object, ...] = field(default=(), repr=False)
    births: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One API request; `task` waits for the UPID it answers (seconds, 0 = answers at once)."""

    method: str
    path: str
    data: Mapping[str, object] = field(default_factory=dict)
    task: float = 0.0


@dataclass(frozen=True, slots=True)
class ApiCall:
    """How an API is brought to the desired state: requests in order, the first failure ends it.

    `births` names the subject that it makes, or makes anew: what was not there before needs no protection.
    """

    requests: tuple[Request, ...]
    effects: tuple[Effect, ...] = ()
    risks: tuple[Effect, ...] = ()
    births: str = ""


@dataclass(frozen=True, slots=True)
class ByHand:
    """A person must do it: the step waits (exit 5) and these lines say what to do."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Impossible:
    """Seen and wanted differ and nothing may be done about it: the step fails with this diagnostic."""

    diagnostic: Diagnostic


Remedy = Fix | ApiCall | ByHand | Impossible


class Resource(Protocol):
    """A desired state on one system: a frozen dataclass.

    `source` is the inventory line it comes from.
    """

    @property
    def key(self) -> Key:
        """Identity."""
        ...

    @property
    def source(self) -> Source | None:
        """Inventory line, if there is one."""
        ...

    def queries(self) -> tuple[Any, ...]:
        """Return the questions whose answers `changes` and `fix` look at."""
        ...

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return what differs; empty means: as desired.

        Called through `changes_of`, which handles Unknown answers: here every query has a real answer.
        """
        ...

    def fix(self, snapshot: Snapshot, /) -> Remedy:
        """Return how to correct what `changes` names; only called when it names something."""
        ...


@dataclass(frozen=True, slots=True)
class KeyedResource:
    """A base for resources: their key is made of system, kind and what tells one from others of its kind.

    Args:
        system: `vm-1/ssh`.
        source: inventory line.
    """

    kind: ClassVar[str]

    system: str
    source: Source | None = field(default=None, compare=False, kw_only=True)

    @property
    def key(self) -> Key:
        """Identity."""
        return Key(self.system, self.kind, self._key_name())

    def _key_name(self) -> str:
        """Return what tells it from others of its kind on its system; the kind where there is only one."""
        return self.kind

    def _refused(self, code: str, summary: str, **more: Any) -> Impossible:
        """Return the remedy of a difference that nothing may be done about."""
        more = {"subject": self.system, "source": self.source, **more}
        return Impossible(Diagnostic(code, summary, **more))


@runtime_checkable
class ToleratesUnknown(Protocol):
    """A resource that can decide without the answers to some of its queries."""

    def optional_queries(self) -> tuple[Any, ...]:
        """Return the queries whose answer may be Unknown in `changes` and `fix`."""
        ...


@runtime_checkable
class Mergeable(Protocol):
    """A kind whose resources with one key unite (kernel arguments, modules, labels)."""

    def merge(self, other: Any) -> Any:
        """Return the union, or None when the two contradict each other."""
        ...


AnswerId = tuple[str, Any]
"""The answer of a system to a query."""


@runtime_checkable
class AffectsAnswers(Protocol):
    """A resource whose changes alter answers beyond those to its own queries."""

    def affects(self, changes: Sequence[Change], /) -> frozenset[AnswerId]:
        """Return the answers that other steps may read and that these changes alter."""
        ...


def affected_answers(resource: Resource, changes: Sequence[Change]) -> frozenset[AnswerId]:
    """Return the answers that changes of a resource alter for other steps; none for most kinds."""
    return resource.affects(changes) if isinstance(resource, AffectsAnswers) else frozenset()


@runtime_checkable
class Creatable(Protocol):
    """A resource that can say what it brings to a system that does not exist yet."""

    def creation(self) -> tuple[Change, ...]:
        """Return the changes that make it where nothing of it is there."""
        ...


def meaning(query: Any) -> str:
    """Return what a query asks about, for people: its kind and its first field (`package nvtop`)."""
    first = next((str(getattr(query, member.name)) for member in fields(query)), "")
    return " ".join(f"{query.kind} {first}".split())[:80]


def unknown_answers(resource: Resource, snapshot: Snapshot) -> Mapping[Any, Unknown]:
    """Return the Unknown answers to a resource's queries that it cannot do without."""
    if not snapshot.unknown:
        return {}
    optional = resource.optional_queries() if isinstance(resource, ToleratesUnknown) else ()
    queries = (query for query in resource.queries() if query in snapshot.unknown and query not in optional)
    return {query: snapshot[query] for query in queries}


def changes_of(resource: Resource, snapshot: Snapshot) -> tuple[Change, ...]:
    """Return how a resource differs; an Unknown answer is a change that needs attention."""
    unknown = unknown_answers(resource, snapshot)
    if not unknown:
        return resource.changes(snapshot)
    return tuple(
        Change(Op.ATTENTION, meaning(query), f"unknown: {answer.reason}") for query, answer in unknown.items()
    )


def remedy_of(resource: Resource, snapshot: Snapshot) -> Remedy:
    """Return how a resource that differs is corrected; nothing is done about one whose state is Unknown."""
    unknown = unknown_answers(resource, snapshot)
    if not unknown:
        return resource.fix(snapshot)
    key = resource.key
    return Impossible(
        Diagnostic(
            "UNKNOWN",
            f"the state of {key.kind} {key.name} is unknown: {next(iter(unknown.values())).reason}",
            subject=key.system,
            evidence=tuple(f"{meaning(query)}: {answer.reason}" for query, answer in unknown.items()),
            source=resource.source,
            untouched=f"{key.kind} {key.name} was not changed",
            remedy="fix the cause and run the command again",
        )
    )


# ---------------------------------------------------------------- drivers


class Verdict(StrEnum):
    """How one action ended. `indeterminate` is looked up, never repeated; `not-begun` follows a failure."""

    DONE = "done"
    FAILED = "failed"
    INDETERMINATE = "indeterminate"
    NOT_BEGUN = "not-begun"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do on a system: a resource's remedy, or effects alone (key None)."""

    key: Key | None
    label: str
    remedy: Fix | ApiCall
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """How an action ended.

    Args:
        verdict: done, failed, indeterminate, not-begun.
        seconds: how long it took.
        diagnostic: what went wrong, None when done.
        output: last lines, secrets masked.
        handle: UPID or process group by which an indeterminate outcome is looked up.
        kept: all output that was kept (first and last 64 KiB of each stream), secrets masked; empty where
            `output` is all there is.
    """

    verdict: Verdict
    seconds: float = 0.0
    diagnostic: Diagnostic | None = None
    output: tuple[str, ...] = ()
    handle: str = ""
    kept: str = field(default="", repr=False)

    @property
    def whole(self) -> str:
        """All output that there is, for the journal."""
        return self.kept or "\n".join(self.output)


Emit = Callable[[str], None]
"""Receives the last whole output line of what runs, at most four a second."""


class Driver(Protocol):
    """One per open system; asks and acts with as few round trips as possible. Not thread-safe."""

    system: str

    @property
    def round_trips(self) -> int:
        """Executions (hosts) or requests (APIs) so far; tests hold the engine to it."""
        ...

    def answer(self, queries: frozenset[Any], cancel: Cancel) -> Snapshot:
        """Ask everything at once: one execution on a host.

        Raises:
            Transient, Permanent, Refused: the system gives no answers at all.
        """
        ...

    def act(
        self, run: str, actions: Sequence[Action], effects: Sequence[Effect], emit: Emit, cancel: Cancel
    ) -> list[Result]:
        """Do the actions in order, then the effects, in one execution.

        Args:
            run: id of the run, written into lock and markers.
            actions: remedies; markers of `action.effects` are written before they begin, and those of effects
                that are not in `effects` stay: deferred, or without consent.
            effects: what to do now, merged and ranked, no reboots; their markers go when they are done.
            emit: live output.
            cancel: `leaving` kills what runs.

        Returns:
            One result per action, then one per effect.
        """
        ...

    def reboot(self, effect: Effect, emit: Emit, cancel: Cancel) -> str:
        """Reboot, wait for another boot id, reconnect, and return it. Its marker is satisfied by that."""
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


class Hold(Protocol):
    """A lock that is held until it is released, or until the connection to its host ends."""

    @property
    def alive(self) -> bool:
        """Whether it is still held."""
        ...

    def release(self) -> None:
        """Free it; safe to call twice."""
        ...


@runtime_checkable
class Keeper(Protocol):
    """A driver whose host can hold the lock of another system (a hypervisor's that of its API)."""

    def hold(self, run: str, what: str, cancel: Cancel) -> Hold:
        """Take the lock of the system `what`.

        Raises:
            ProvisionError: another run holds it (exit 6), or the host gives no answers.
        """
        ...


def ask(resources: Iterable[Resource]) -> frozenset[Any]:
    """Return all questions of some resources."""
    return frozenset(query for resource in resources for query in resource.queries())
