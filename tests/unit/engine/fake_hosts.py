"""Hosts that are dictionaries, values in them that are resources, and the driver that answers and acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from provision.contracts.change import Change, Key, Op, Settles
from provision.contracts.driver import Action, Emit, Result, Verdict
from provision.contracts.effect import Effect, EffectClass
from provision.contracts.query import Unknown
from provision.contracts.remedy import ByHand, Fix, Impossible, Remedy
from provision.contracts.snapshot import Pending, Snapshot
from provision.hosts import host_effects
from provision.hosts.protocol.script import is_satisfied
from provision.values.cancel import Cancel, Interrupted
from provision.values.diagnostics import Diagnostic, Source
from provision.values.errors import ProvisionError, Transient
from provision.values.outcomes import ExitCode

if TYPE_CHECKING:
    from tests.unit.engine.fakes import FakeSite


class KilledError(BaseException):
    """The controller was killed here."""


@dataclass(frozen=True, slots=True)
class Value:
    """What a name holds; `running` names hold what was there at boot or at the last restart."""

    kind: ClassVar[str] = "value"
    name: str


@dataclass(frozen=True, slots=True)
class Item:
    """A value on a host.

    Args:
        boots: the value counts only after a reboot of this class.
        restarts: the unit that must restart after it.
        risks: what its fix needs consent for.
        replaces: mending it makes something anew.
        makes: the subject that mending it makes.
        reads: further names that it asks for.
        alters: system and name of answers that mending it alters for others.
        by_hand: a person must do it.
        impossible: nothing may be done.
        within: seconds in which it comes true by itself.
    """

    system: str
    name: str
    want: str
    boots: EffectClass | None = None
    restarts: str = ""
    risks: tuple[Effect, ...] = ()
    replaces: bool = False
    by_hand: bool = False
    impossible: bool = False
    within: float = 0.0
    merges: bool = False
    makes: str = ""
    reads: tuple[str, ...] = ()
    alters: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> Key:
        return Key(self.system, "item", self.name)

    @property
    def source(self) -> Source | None:
        return None

    def queries(self) -> tuple[Any, ...]:
        names = (self.name, f"running {self.name}") if self.boots else (self.name,)
        return tuple(Value(name) for name in (*names, *self.reads))

    def affects(self, changes: Sequence[Change]) -> frozenset[tuple[str, Any]]:
        del changes
        return frozenset((system, Value(name)) for system, name in self.alters)

    def creation(self) -> tuple[Change, ...]:
        return (Change(Op.CREATE, "value", None, self.want),)

    def changes(self, snapshot: Snapshot) -> tuple[Change, ...]:
        now = snapshot[Value(self.name)]
        differences = []
        if now != self.want:
            op = Op.REPLACE if self.replaces else Op.CREATE if now is None else Op.UPDATE
            settles = Settles.WITHIN if self.within else Settles.NOW
            differences.append(Change(op, "value", now, self.want, settles, self.within))
        if self.boots and snapshot[Value(f"running {self.name}")] != self.want:
            differences.append(Change(Op.UPDATE, "running", None, self.want, Settles.AFTER_EFFECT))
        return tuple(differences)

    def fix(self, snapshot: Snapshot) -> Remedy:
        del snapshot
        if self.by_hand:
            return ByHand((f"type {self.want} into {self.name}",))
        if self.impossible:
            return Impossible(Diagnostic("IMPOSSIBLE", f"{self.name} cannot be {self.want}"))
        effects = []
        if self.boots:
            effects.append(Effect(self.boots))
        if self.restarts:
            effects.append(Effect(host_effects.RESTART, self.restarts))
        return Fix(f"{self.name}={self.want}", tuple(effects), self.risks, creates=self.makes)

    def merge(self, other: Item) -> Item | None:
        if not self.merges:
            return None
        want = ",".join(sorted({*self.want.split(","), *other.want.split(",")}))
        return Item(self.system, self.name, want, self.boots, self.restarts, merges=True)


@dataclass
class Host:
    """A machine, or an API: what it holds, which boot it is in, and what it owes."""

    values: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, Unknown] = field(default_factory=dict)
    boot: int = 1
    is_api: bool = False
    pending: dict[Effect, str] = field(default_factory=dict)
    restarted: list[str] = field(default_factory=list)
    reboots: int = 0
    down: bool = False
    refuses: frozenset[str] = frozenset()
    cuts: frozenset[str] = frozenset()
    answers: list[frozenset[Any]] = field(default_factory=list)
    acts: int = 0
    handle: str = "pgid 42"
    locks: dict[str, str] = field(default_factory=dict)
    by_itself: dict[str, tuple[int, str]] = field(default_factory=dict)
    idle: float = 3600.0

    @property
    def boot_id(self) -> str:
        return "" if self.is_api else f"boot-{self.boot}"

    def start(self) -> None:
        self.boot += 1
        self.reboots += 1
        running = {f"running {name}": value for name, value in self.values.items() if " " not in name}
        self.values.update(running)
        self.pending = {each: boot for each, boot in self.pending.items() if not each.cls.reboots}

    def dump(self) -> tuple[Any, ...]:
        return (tuple(sorted(self.values.items())), tuple(map(str, self.pending)))


@dataclass
class FakeHold:
    """A lock that a fake host keeps."""

    host: Host
    what: str

    @property
    def alive(self) -> bool:
        return self.what in self.host.locks

    def idle(self, run: str) -> float:
        del run
        return self.host.idle

    def release(self) -> None:
        self.host.locks.pop(self.what, None)


@dataclass
class FakeDriver:
    """Implements Driver on a Host."""

    system: str
    host: Host
    site: FakeSite
    round_trips: int = 0

    def answer(self, queries: frozenset[Any], cancel: Cancel) -> Snapshot:
        self.site.inside(self.system)
        if cancel.leaving:
            raise Interrupted
        if self.host.down:
            raise Transient(
                Diagnostic("HOST_UNREACHABLE", f"{self.system} does not answer", self.system), 0.0
            )
        self.round_trips += 1
        self.host.answers.append(queries)
        for name, (left, value) in list(self.host.by_itself.items()):
            self.host.by_itself[name] = (left - 1, value)
            if left <= 1:
                self.host.values[name] = value
        answers = {
            query: self.host.unknown.get(query.name, self.host.values.get(query.name)) for query in queries
        }
        rebuild = any(each.cls.needs_boot for each in self.host.pending)
        pending = tuple(
            Pending(each, boot, "earlier")
            for each, boot in self.host.pending.items()
            if not is_satisfied(each.cls, boot, self.host.boot_id, rebuild_owed=rebuild)
        )
        return Snapshot(self.system, self.host.boot_id, answers, pending)

    def act(
        self, run: str, actions: Sequence[Action], effects: Sequence[Effect], emit: Emit, cancel: Cancel
    ) -> list[Result]:
        del run
        self.site.inside(self.system)
        assert self.system not in self.site.busy, "two steps act on one system"
        self.site.busy.add(self.system)
        self.round_trips += 1
        self.host.acts += 1
        try:
            return self._all(actions, effects, emit, cancel)
        finally:
            self.site.busy.discard(self.system)

    def _all(
        self, actions: Sequence[Action], effects: Sequence[Effect], emit: Emit, cancel: Cancel
    ) -> list[Result]:
        results: list[Result] = []
        self.site.boundary()
        for action in actions:
            ends = self.host.is_api and cancel.draining  # an API takes one request after the other
            if ends or (results and results[-1].verdict is not Verdict.DONE):
                results.append(Result(Verdict.NOT_BEGUN))
                continue
            results.append(self._do(action, emit))
        for effect in effects:
            if results and results[-1].verdict is not Verdict.DONE:
                results.append(Result(Verdict.NOT_BEGUN))
                continue
            if str(effect) in self.host.refuses:
                text = f"cannot {effect}: " + "why " * 200
                results.append(Result(Verdict.FAILED, output=(text[:20],), kept=text))
                continue
            self.host.restarted.append(str(effect))
            if self.site.on_effect is not None:
                self.site.on_effect(self.system, str(effect))
            self.site.boundary()
            self.host.pending.pop(effect, None)
            self.site.boundary()
            results.append(Result(Verdict.DONE))
        return results

    def _do(self, action: Action, emit: Emit) -> Result:
        assert isinstance(action.remedy, Fix)
        for effect in action.effects:
            self.host.pending[effect] = self.host.boot_id
        self.site.boundary()
        name, _, value = action.remedy.script.partition("=")
        emit(f"setting {name}")
        if name in self.host.refuses:
            return Result(Verdict.FAILED, output=(f"cannot set {name}",))
        self.host.values[name] = value
        self.site.boundary()
        if self.site.on_set is not None:
            self.site.on_set(self.system, name, value)
        if name in self.host.cuts:
            self.host.cuts -= {name}
            return Result(Verdict.INDETERMINATE, handle=self.host.handle)
        return Result(Verdict.DONE)

    def hold(self, run: str, what: str, cancel: Cancel) -> FakeHold:
        del cancel
        self.round_trips += 1
        if what in self.host.locks:
            told = Diagnostic("HOST_LOCKED", f"{what} is locked by run {self.host.locks[what]}", self.system)
            raise ProvisionError(told, ExitCode.LOCKED)
        self.host.locks[what] = run
        return FakeHold(self.host, what)

    def reboot(self, effect: Effect, emit: Emit, cancel: Cancel) -> str:
        del effect, emit, cancel
        self.site.inside(self.system)
        self.round_trips += 1
        self.site.boundary()
        if self.site.on_boot is not None:
            self.site.on_boot(self.system, False)
        self.host.start()
        if self.site.on_boot is not None:
            self.site.on_boot(self.system, True)
        self.site.boundary()
        return self.host.boot_id

    def close(self) -> None:
        pass
