"""The GPU driver of a host: its packages, and the module that the kernel has loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from provision.contracts.change import Change, Op, Settles
from provision.contracts.effect import Effect
from provision.contracts.remedy import Impossible
from provision.contracts.snapshot import Snapshot
from provision.gpu.origins import ANY_DRIVER, LEAVES
from provision.gpu.queries import GpuState, GpuStatus, upstream
from provision.hosts.operations import basic as ops
from provision.hosts.operations.apt import InstallVersions
from provision.hosts.queries.apt import Move, Transaction, read_simulation, simulation
from provision.hosts.resources.base import HostResource, Operations, checked_name
from provision.hosts.resources.package import PackageState


@dataclass(frozen=True, slots=True)
class GpuDriver(HostResource):
    """Packages of a driver in versions that agree, and their module loaded.

    A driver that is installed takes the next boot: the old module is in use, and its device files with it.

    Args:
        packages: version by name; an empty version is whatever comes.
        requests: what apt is asked for, as simulated; none where everything is installed.
        major: number of the declared branch; empty for any.
        hold: whether the packages are kept from upgrades; None is unmanaged.
        loads: whether the host has a card, so that the module must be loaded.
        reboot: what loads it.
    """

    kind: ClassVar[str] = "gpu-driver"

    packages: tuple[tuple[str, str], ...]
    requests: tuple[str, ...]
    major: str
    hold: bool | None
    loads: bool
    reboot: Effect

    def __post_init__(self) -> None:
        for name, _ in self.packages:
            checked_name(name)

    def queries(self) -> tuple[Any, ...]:
        """Return the queries: each package, the driver, and the transaction."""
        packages = tuple(PackageState(name) for name, _ in self.packages)
        return (*packages, GpuState(), *((simulation(self.requests),) if self.requests else ()))

    def _transaction(self, snapshot: Snapshot) -> Transaction:
        if not self.requests:
            return Transaction()
        answer = read_simulation(snapshot[simulation(self.requests)])
        return answer if isinstance(answer, Transaction) else Transaction(refusal=answer.reason)

    def _differing(self, snapshot: Snapshot) -> tuple[Change, ...]:
        """Return what differs in the packages that are asked for by name."""
        changes: list[Change] = []
        for name, version in self.packages:
            status = snapshot[PackageState(name)]
            if not status.installed:
                changes.append(Change(Op.CREATE, name, None, version or "installed"))
            elif version and status.version != version:
                changes.append(Change(Op.UPDATE, name, status.version, version))
        return tuple(changes)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return packages that come, move and go, holds, and the version that gets loaded."""
        changes = [*self._differing(snapshot)]
        if changes:
            named = {name for name, _ in self.packages}
            changes += [_moved(move) for move in self._shown(snapshot) if move.name not in named]
        if self.hold is not None:
            for name, _ in self.packages:
                held = snapshot[PackageState(name)].held
                if held != self.hold:
                    changes.append(Change(Op.UPDATE, f"{name}.hold", _held(held), _held(self.hold)))
        status: GpuStatus = snapshot[GpuState()]
        expected = self._expected(snapshot)
        if self.loads and status.loaded != expected:
            changes.append(
                Change(
                    Op.UPDATE,
                    "loaded",
                    status.loaded or "none",
                    expected or "the driver",
                    Settles.AFTER_EFFECT,
                )
            )
        elif not changes and self._is_stuck(snapshot):
            change = Change(
                Op.ATTENTION, f"module of {status.next_kernel}", status.on_disk or "none", expected
            )
            changes.append(change)
        return tuple(changes)

    def _shown(self, snapshot: Snapshot) -> Sequence[Move]:
        """Return what a plan shows of a transaction: the driver's libraries, and all that goes."""
        moves = self._transaction(snapshot).moves
        return [move for move in moves if not move.new or LEAVES.fullmatch(move.name)]

    def _expected(self, snapshot: Snapshot) -> str:
        """Return the version that will be loaded: of the transaction's library, else of the installed one."""
        for move in self._transaction(snapshot).moves:
            if move.new and LEAVES.fullmatch(move.name):
                return upstream(move.new)
        status: GpuStatus = snapshot[GpuState()]
        if status.on_disk and status.on_disk in status.libraries:
            return status.on_disk
        return status.libraries[-1] if status.libraries else upstream(self.packages[0][1])

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how the packages come; what the next boot loads must agree with them."""
        refused = self._refusal(snapshot)
        if refused is not None:
            return refused
        operations: list[ops.Operation] = []
        names = tuple(name for name, _ in self.packages)
        if self._differing(snapshot):
            removed = (move.name for move in self._transaction(snapshot).moves if not move.new)
            operations.append(InstallVersions(self.requests, tuple(removed)))
        elif self._is_stuck(snapshot):
            return self._no_module(snapshot)
        if self.hold is not None:
            operations.append(ops.HoldPackages(names, self.hold))
        return operations

    def _refusal(self, snapshot: Snapshot) -> Impossible | None:
        transaction = self._transaction(snapshot)
        if transaction.refusal:
            return self._stopped(
                "DRIVER_UNINSTALLABLE",
                "apt cannot install the declared driver",
                transaction.refusal,
                remedy=f"correct the sources; see: apt-get -s install {' '.join(self.requests)}",
            )
        expected = self._expected(snapshot)
        if self.major and expected and expected.split(".")[0] != self.major:
            return self._stopped(
                "DRIVER_BRANCH_REPLACED",
                f"the packages of branch {self.major} install driver {expected}",
                *(f"{move.name} {move.new}" for move in transaction.moves if LEAVES.fullmatch(move.name)),
                remedy=f"declare `driver.branch` {expected.split('.')[0]}, or take `driver.origin: nvidia`",
            )
        others = [
            move.name for move in transaction.moves if not move.new and not ANY_DRIVER.fullmatch(move.name)
        ]
        if others:
            return self._stopped(
                "DRIVER_REMOVES_OTHERS",
                f"installing the driver would remove {', '.join(others)}",
                remedy="remove these yourself, or leave the driver alone with `driver.manage: false`",
            )
        return None

    def _is_stuck(self, snapshot: Snapshot) -> bool:
        """Whether the next boot would not load what is installed, also where the present one has."""
        status: GpuStatus = snapshot[GpuState()]
        return self.loads and status.modinfo and status.on_disk != self._expected(snapshot)

    def _no_module(self, snapshot: Snapshot) -> Impossible:
        status: GpuStatus = snapshot[GpuState()]
        return self._stopped(
            "DRIVER_MODULE_MISSING",
            f"the next boot's kernel {status.next_kernel} has no module of driver {self._expected(snapshot)}",
            f"module on disk: {status.on_disk or 'none'}",
            f"libraries: {', '.join(status.libraries) or 'none'}",
            f"loaded: {status.loaded or 'none'}",
            remedy=f"see why it was not built: dkms autoinstall -k {status.next_kernel}",
        )

    def _stopped(self, code: str, summary: str, *evidence: str, remedy: str) -> Impossible:
        return self._refused(
            code, summary, evidence=evidence, untouched="the driver was not changed", remedy=remedy
        )

    def _due_effects(self, snapshot: Snapshot, /) -> tuple[Effect, ...]:
        status: GpuStatus = snapshot[GpuState()]
        moves = bool(self._differing(snapshot))
        stale = self.loads and status.loaded != self._expected(snapshot)
        return (*self.effects, *((self.reboot,) if self.loads and (moves or stale) else ()))

    def _seconds(self) -> float:
        return 3600.0  # DKMS builds on slow machines


def _moved(move: Move) -> Change:
    if not move.new:
        return Change(Op.DELETE, move.name, move.old, None)
    return Change(Op.UPDATE if move.old else Op.CREATE, move.name, move.old or None, move.new)


def _held(held: bool | None) -> str:
    return "held" if held else "not held"


@dataclass(frozen=True, slots=True)
class SetPowerLimit:
    """Set the power limit of all cards, in watts, until the next boot."""

    watts: int

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        return f"nvidia-smi -pl {self.watts}"


@dataclass(frozen=True, slots=True)
class PowerLimit(HostResource):
    """The power limit of each card, in watts; a unit sets it at each boot.

    Args:
        watts: of each card.
    """

    kind: ClassVar[str] = "gpu-power-limit"

    watts: int

    def queries(self) -> tuple[GpuState, ...]:
        """Return the one query."""
        return (GpuState(),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return each card with another limit; a card that has no limit is left alone."""
        status: GpuStatus = snapshot[GpuState()]
        return tuple(
            Change(Op.UPDATE, card.address, f"{card.power_limit:g} W", f"{self.watts} W")
            for card in status.cards
            if isinstance(card.power_limit, float) and card.power_limit != self.watts
        )

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return how it is set."""
        del snapshot
        return [SetPowerLimit(self.watts)]
