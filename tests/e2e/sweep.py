"""The mutation sweep: every resource of a lab's plan is damaged, and the next plan names it alone.

Each system (and on the API each thing) is damaged at the same time as the others: one plan then proves
several resources, and must name exactly these, with no more executions than a plan of an undamaged site.
Afterwards each kind's damage is mended for real: some kinds by one apply, those that cost an initramfs or a
boot by another. Runs as a process of its own in the lab's network.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from provision.api import Options, Site, load
from provision.values.cancel import Cancel
from provision.values.events import Event
from provision.verify.model import VerifyReport
from tests.e2e.doors import Doors
from tests.e2e.sweep_checks import overlooked
from tests.e2e.vandals import (
    COSTLY,
    EXEMPT,
    NOT_HERE,
    UNREPAIRED,
    VANDALS,
    Config,
    Mutation,
    Off,
    Shell,
)

ROOT = Path(__file__).parents[2]

MORE = 1
"""Requests more of a plan that changes a VM's bridge or downloads an image: it asks what the node has."""


@dataclass
class SweepReport:
    """What a sweep found.

    Args:
        kinds: damages that a plan named, by kind.
        repaired: kinds that an apply mended.
        exempt: kinds that nobody damaged, with the reason.
        resources: how many resources were damaged.
        mutations: how many damages were named.
        plans: how many plans that took.
        applies: how many applies.
        seconds: wall time in all.
        not_here: damages that a host cannot take, as it said.
        failures: what did not hold, with what the plan named instead.
    """

    kinds: dict[str, int] = field(default_factory=dict)
    repaired: list[str] = field(default_factory=list)
    exempt: dict[str, str] = field(default_factory=dict)
    resources: int = 0
    mutations: int = 0
    plans: int = 0
    applies: int = 0
    seconds: float = 0.0
    not_here: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"  {kind:20} {count:3} named{', repaired' if kind in self.repaired else ''}"
            for kind, count in sorted(self.kinds.items())
        ]
        lines += [f"  {kind:20} exempt: {reason}" for kind, reason in sorted(self.exempt.items())]
        lines += [f"  not here: {each}" for each in self.not_here]
        lines += [f"  FAILED: {each}" for each in self.failures]
        lines.append(
            f"sweep: {len(self.kinds)} kinds, {self.resources} resources, {self.mutations} damages in"
            f" {self.plans} plans, {self.applies} applies, {self.seconds:.0f} s"
        )
        return "\n".join(lines)


class Parts(StrEnum):
    """What of a sweep is done: the repairs that cost an initramfs or a boot take as long as all the rest."""

    ALL = "all"
    CHEAP = "cheap"
    COSTLY = "costly"


def sweep(
    inventory_path: Path,
    lab_folder: Path,
    namespace: str,
    state: Path,
    width: int = 1,
    parts: Parts = Parts.ALL,
    roles: Iterable[str] = (),
    seconds: float = 1800,
) -> SweepReport:
    """Damage and repair all resources of a lab that is set up, from inside its network.

    Args:
        inventory_path: the inventory; its site must be as declared.
        lab_folder: the lab's folder.
        namespace: the lab's network namespace.
        state: the state folder of the applies before.
        width: how many resources of one host are damaged at a time, and kinds repaired by one apply; more
            than one where a plan takes long, at the price that two of them might hide each other's echo.
        parts: all of it; all but the costly repairs; or these alone.
        roles: whose resources are damaged; none for all.
        seconds: how long it may take.

    Raises:
        RuntimeError: the sweep itself broke.
    """
    arguments = (inventory_path, lab_folder, state, width, parts, ",".join(roles))
    argv = [sys.executable, "-m", "tests.e2e.sweep", *map(str, arguments)]
    try:
        result = subprocess.run(
            ["ip", "netns", "exec", namespace, *argv],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as late:
        said = (late.stderr or b"").decode(errors="replace")
        raise RuntimeError(f"the sweep did not end in {seconds:.0f} s:\n{said[-6000:]}") from None
    if result.returncode:
        raise RuntimeError(
            f"the sweep broke with {result.returncode}:\n{result.stdout[-2000:]}{result.stderr[-6000:]}"
        )
    return SweepReport(**json.loads(result.stdout.splitlines()[-1]))


# ---------------------------------------------------------------- plans and applies


@dataclass(frozen=True)
class Target:
    """One damage to one resource."""

    resource: Any
    mutation: Mutation

    @property
    def key(self) -> str:
        return str(self.resource.key)

    @property
    def lane(self) -> str:
        """What is damaged once at a time: a host, or one thing of an API."""
        key = self.resource.key
        return f"{key.system} {key.name}" if key.system.endswith("/api") else str(key.system)

    @property
    def kind(self) -> str:
        return str(self.resource.key.kind)

    @property
    def subjects(self) -> tuple[str, str]:
        """Whom a check of it is about: its machine, or what has its name on a router or an API."""
        return self.resource.key.system.partition("/")[0], self.resource.key.name

    @property
    def words(self) -> tuple[str, ...]:
        """What a check must say of it, any of them: no other resource of its machine has them."""
        names = self.resource.key.name.split()
        return (*names, *(name.rpartition("/")[2].removeprefix("no-") for name in names))

    def is_named(self, named: Mapping[str, frozenset[str]]) -> bool:
        """Whether a plan's changes have it."""
        return any(self.is_field(path) for path in named.get(self.key, ()))

    def is_field(self, path: str) -> bool:
        """Whether a changed field may be this damage."""
        field = self.mutation.field
        return not field or path == field or path.startswith(f"{field}.")

    def __str__(self) -> str:
        return f"{self.key} ({self.mutation.name})"


@dataclass(frozen=True)
class Seen:
    """What a plan said: changed fields by resource, problems, steps left open, round trips by system."""

    named: Mapping[str, frozenset[str]]
    problems: tuple[str, ...]
    open_steps: tuple[str, ...]
    trips: Mapping[str, int]


class Sweep:
    """One sweep."""

    def __init__(
        self, inventory_path: Path, folder: Path, state: Path, width: int, parts: Parts, roles: str
    ) -> None:
        self.path, self.folder, self.state, self.width = inventory_path, folder, state, width
        self.parts = parts
        self.roles = set(filter(None, roles.split(",")))
        self.report = SweepReport()
        self.doors = Doors(self._site().inventory, folder)
        self.standing: tuple[Target, ...] = ()
        self.usual: Mapping[str, int] = {}

    def _site(self) -> Site:
        return load(self.path, state=self.state, overlays=[self.folder / "site.yaml"])

    def run(self) -> SweepReport:
        """Do all of it."""
        began = time.monotonic()
        try:
            self._plan()  # what is asked is remembered from here on
            self.usual = self._expect("an undamaged site", ()).trips
            if many := {name: self.usual.get(name) for name in self.doors.hosts if self.usual.get(name) != 1}:
                self.report.failures.append(f"a plan takes {many} instead of one execution a host")
            targets = self._targets()
            if self.parts is not Parts.COSTLY:
                self._name(targets)
                self._settle(())
                self._expect("what was undone", ())
            if not self.report.failures:
                self._repair(targets)
        finally:
            self._settle(())
            for system in self.doors.hosts:
                self.doors.run(system, "rm -rf /run/vandal")
            self.doors.close()
        self.report.seconds = time.monotonic() - began
        return self.report

    def _targets(self) -> list[Target]:
        site = self._site()
        try:
            steps = site.resources(Cancel())
        finally:
            site.close()
        chosen = [found for step, found in steps.items() if not self.roles or step.role in self.roles]
        resources = {each.key: each for found in chosen for each in found}
        targets = []
        for key, resource in resources.items():
            if key.kind in EXEMPT:
                self.report.exempt[key.kind] = EXEMPT[key.kind]
                continue
            if key.kind not in VANDALS:
                self.report.failures.append(f"{key}: nobody knows how to damage the kind {key.kind}")
                continue
            mine = [Target(resource, each) for each in VANDALS[key.kind](resource)]
            targets += mine
            if not any(each.mutation.seen for each in mine):
                self.report.failures.append(f"{key}: no damage")
        self.report.resources = len({each.key for each in targets})
        return targets

    # ------------------------------------------------------------ damaging

    def _settle(self, targets: Sequence[Target]) -> tuple[Target, ...]:
        """Undo what stands, do the new damages, and return those that could be done."""
        old, self.standing = self.standing, ()
        lanes = {each.lane for each in (*old, *targets)}
        done: list[Target] = []

        def settle(lane: str) -> None:
            undone = [each.mutation for each in old if each.lane == lane]
            new = [each for each in targets if each.lane == lane]
            act = self._on_host if lane in self.doors.hosts else self._elsewhere
            done.extend(act(lane, undone, new))

        with ThreadPoolExecutor(len(self.doors.hosts)) as pool:
            list(pool.map(settle, sorted(lanes & set(self.doors.hosts))))
        for lane in sorted(lanes - set(self.doors.hosts)):
            settle(lane)
        self.standing = tuple(targets)
        return tuple(done)

    def _on_host(self, lane: str, undone: Iterable[Mutation], new: Sequence[Target]) -> Iterator[Target]:
        """Undo and damage in one execution."""
        scripts = [each.undo for each in undone]
        for index, each in enumerate(new):
            assert isinstance(each.mutation.damage, Shell)
            scripts.append(f"echo '@{index}'\n{each.mutation.damage.script}")
        said = self.doors.run(lane, "\n".join(f"( {each}\n)" for each in scripts))
        for text in said.split("@")[1:]:
            target = new[int(text.split()[0])]
            if NOT_HERE in text:
                self.report.not_here.append(f"{target}: {text.partition(NOT_HERE)[2].strip()}")
            else:
                yield target

    def _elsewhere(self, lane: str, undone: Iterable[Mutation], new: Sequence[Target]) -> Iterator[Target]:
        del lane
        for mutation in undone:
            self.doors.undo(mutation.damage)
        for each in new:
            if isinstance(each.mutation.damage, Off):  # what was restored before is meant to stay
                self.doors.run(f"{each.resource.key.name}/ssh", "sync")
            self.doors.damage(each.mutation.damage)
            yield each

    # ------------------------------------------------------------ naming

    def _name(self, targets: Iterable[Target]) -> None:
        seen = [each for each in targets if each.mutation.seen]
        for alone in (False, True):
            lanes: dict[str, list[Target]] = {}
            for each in seen:
                if each.mutation.alone is alone:
                    lanes.setdefault(each.lane, []).append(each)
            queues = [deque(part) for lane in lanes.values() for part in _parts(lane, self.width)]
            while any(queues):
                damaged = self._settle(together(queues))
                if damaged:
                    self._expect(", ".join(map(str, damaged)), damaged)

    def _plan(self) -> Seen:
        site = self._site()
        try:
            plan = site.plan(Options(), quiet, Cancel())
            trips = site.session.trips()
        finally:
            site.close()
        self.report.plans += 1
        problems = [each.summary for each in plan.refusals]
        problems += [each.problem.summary for each in plan.steps if each.problem is not None]
        return Seen(
            {
                str(change.key): frozenset(each.path for each in change.changes)
                for step in plan.steps
                for change in step.changes
            },
            tuple(problems),
            tuple(
                f"{each.step.id}: {each.late or each.unreached}"
                for each in plan.steps
                if each.late or each.unreached
            ),
            trips,
        )

    def _expect(self, what: str, damaged: Sequence[Target]) -> Seen:
        """Plan, and note everything that is not as it must be."""
        seen = self._plan()
        found = judged(what, damaged, seen, self.usual)
        self.report.failures += found
        if not found:
            kinds = Counter(each.resource.key.kind for each in damaged)
            self.report.kinds = dict(Counter(self.report.kinds) + kinds)
            self.report.mutations += len(damaged)
        tell("FAILED" if found else "named", what)
        return seen

    # ------------------------------------------------------------ repairing

    def _repair(self, targets: Sequence[Target]) -> None:
        cheap, costly = waves(targets, self.doors.guests, self.width)
        chosen = {Parts.ALL: [*cheap, costly], Parts.CHEAP: cheap, Parts.COSTLY: [costly]}[self.parts]
        wanted = {each.resource.key.kind for wave in chosen for each in wave}
        for wave in chosen:
            damaged = self._settle(wave)
            found = [*overlooked(damaged, self._verify()), *self._apply(damaged)]
            if found:
                self.report.failures += found
                self._settle(())
            else:
                self.standing = ()
                self.report.repaired = sorted(
                    {*self.report.repaired, *(each.resource.key.kind for each in damaged)}
                )
            tell("FAILED" if found else "repaired", ", ".join(map(str, damaged)))
        self._expect("what was repaired", ())
        if self.parts is Parts.ALL:
            wanted |= set(self.report.kinds) - set(UNREPAIRED)
        left = wanted - set(self.report.repaired)
        self.report.failures += [f"{kind}: no apply repaired it" for kind in sorted(left)]

    def _verify(self) -> VerifyReport:
        site = self._site()
        try:
            return site.verify()
        finally:
            site.close()

    def _apply(self, damaged: Sequence[Target]) -> list[str]:
        site = self._site()
        site.verifier = lambda *_: VerifyReport(())
        try:
            result = site.apply(None, Options(), quiet, Cancel(), lambda _plan: True)
        finally:
            site.close()
        self.report.applies += 1
        what = ", ".join(map(str, damaged))
        changed = {str(change.key) for step in result.steps for change in step.changed}
        wanted = {each.key for each in damaged}
        said = [f"{step.id} {step.outcome}: {step.reason}" for step in result.steps if step.reason]
        found = []
        if result.exit_code:
            found.append(f"apply ended with {result.exit_code} ({'; '.join(said)}) after: {what}")
        if changed != wanted:
            found.append(f"apply changed {sorted(changed ^ wanted)} more or less than was damaged: {what}")
        return found


def waves(
    targets: Iterable[Target], guests: Collection[str], width: int
) -> tuple[list[list[Target]], list[Target]]:
    """Return what is repaired together, one damage of each resource; and the costly ones, all at once.

    Args:
        targets: all damages.
        guests: systems of one sort, whose kinds are repaired together.
        width: kinds of a sort in one wave.
    """
    first: dict[str, Target] = {}
    for each in targets:
        if each.mutation.repair:
            first.setdefault(each.key, each)
    groups: dict[str, dict[str, list[Target]]] = {}
    off: list[Target] = []
    costly: list[Target] = []
    for each in first.values():
        system, kind = each.resource.key.system, each.resource.key.kind
        if isinstance(each.mutation.damage, Off):
            off.append(each)
        elif kind in COSTLY:
            costly.append(each)
        else:
            sort = "guests" if system in guests else system
            groups.setdefault(sort, {}).setdefault(kind, []).append(each)
    queues = [deque(group.values()) for group in groups.values()]
    found: list[list[Target]] = []
    while any(queues):
        kinds = [queue.popleft() for queue in queues for _ in range(min(width, len(queue)))]
        found.append([each for kind in kinds for each in kind])
    return found, [*costly, *off[:1]]  # one VM boots for it, not all


def judged(what: str, damaged: Sequence[Target], seen: Seen, usual: Mapping[str, int]) -> list[str]:
    """Return what a plan said that it should not, or did not say.

    Args:
        what: the damages, in words.
        damaged: the damages.
        seen: the plan.
        usual: round trips of a plan without damage, by system.
    """
    found = [f"{each}: the plan does not name it" for each in damaged if not each.is_named(seen.named)]
    extra = sorted(
        f"{key} {path}"
        for key, paths in seen.named.items()
        for path in paths
        if not any(each.key == key and each.is_field(path) for each in damaged)
    )
    if extra:
        found.append(f"the plan also names {', '.join(extra)} after: {what}")
    expected = [each for each in damaged if each.mutation.problem]
    if seen.problems and not expected:
        found.append(f"the plan says {'; '.join(seen.problems)} after: {what}")
    if expected and not seen.problems:
        found.append(f"the plan does not say that it cannot mend: {what}")
    if seen.open_steps and not any(each.mutation.alone for each in damaged):
        found.append(f"the plan leaves open {'; '.join(seen.open_steps)} after: {what}")
    asking: Counter[str] = Counter()
    for system in {each.resource.key.system for each in damaged}:
        mine = [each for each in damaged if each.resource.key.system == system]
        asking[system] += MORE * any(each.resource.key.kind == "image" for each in mine)
        asking[system] += MORE * any(each.mutation.name.startswith("net") for each in mine)
    more = {
        name: count for name, count in seen.trips.items() if count > usual.get(name, count) + asking[name]
    }
    if more:
        found.append(f"the plan took {more} instead of {dict(usual)} after: {what}")
    return found


def _parts(lane: Sequence[Target], count: int) -> list[list[Target]]:
    """Cut a lane into parts of one length, of which some may be empty."""
    length = -(-len(lane) // count)
    return [list(lane[at * length : (at + 1) * length]) for at in range(count)]


def together(queues: Iterable[deque[Target]]) -> list[Target]:
    """Take the next of each queue; who would be at the same field or file as another one waits."""
    taken: dict[object, Target] = {}
    for queue in queues:
        if not queue:
            continue
        first = queue[0]
        # Keys of a VM's configuration are told apart by their fields; on a host, one damage may hide another.
        part = first.mutation.field if isinstance(first.mutation.damage, Config) else ""
        claims = {(first.key, part), (first.lane, first.mutation.path or first.key)}
        if not claims & set(taken):
            taken |= dict.fromkeys(claims, queue.popleft())
    return list(dict.fromkeys(taken.values()))


def quiet(_event: Event) -> None:
    """Hear nothing."""


def tell(outcome: str, what: str) -> None:
    """Say how one plan or apply went."""
    sys.stderr.write(f"{time.strftime('%X')} {outcome} {what}\n")


def main(inventory_path: str, folder: str, state: str, width: str, parts: str, roles: str) -> None:
    """Do a sweep; its report is the last line of output."""
    running = Sweep(Path(inventory_path), Path(folder), Path(state), int(width), Parts(parts), roles)
    try:
        running.run()
    finally:
        sys.stderr.write(f"{running.report}\n")
    sys.stdout.write(f"{json.dumps(asdict(running.report))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
