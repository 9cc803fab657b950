"""Containerd of a node works with NVIDIA's runtime: of the operator's toolkit, or of the host's package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.change import Change, Op, Settles
from provision.contracts.effect import Effect
from provision.contracts.resource import AnswerId
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations.basic import Operation, quote
from provision.hosts.resources.base import HostResource, Operations
from provision.k3s.k3s_effects import RESTART_K3S
from provision.k3s.runtimes import INSTALLED_LAST, RUNTIME, TOOLKIT, NvidiaRuntime, RuntimeStatus

WAIT_SECONDS = 900
"""How long the toolkit's container may take, with the pull of its image."""


@dataclass(frozen=True, slots=True)
class AwaitToolkit:
    """Wait until the toolkit's container has installed all its files.

    Args:
        seconds: how long.
    """

    seconds: int = WAIT_SECONDS

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        words = f"the GPU Operator's toolkit has not installed {TOOLKIT}/{RUNTIME} within {self.seconds} s"
        hint = "see: kubectl get pods -A -l app=nvidia-container-toolkit-daemonset -o wide"
        return f"""n=0
until [ -x {TOOLKIT}/{RUNTIME} ] && [ -e {INSTALLED_LAST} ]; do
  n=$((n + 1))
  if [ "$n" -gt {self.seconds} ]; then echo {quote(f"{words}; {hint}")} >&2; exit 1; fi
  if [ $((n % 20)) = 1 ]; then echo 'waiting for the toolkit of the GPU Operator'; fi
  sleep 1
done"""


@dataclass(frozen=True, slots=True)
class ContainerRuntime(HostResource):
    """The toolkit's runtime is in the configuration that containerd has read.

    k3s looks for it when it starts: one restart of k3s, and pods keep running. A signal to containerd,
    the way of the toolkit itself, would end k3s at a moment that nobody has chosen.
    """

    kind: ClassVar[str] = "container-runtime"

    def _key_name(self) -> str:
        return "nvidia"

    def queries(self) -> tuple[NvidiaRuntime, ...]:
        """Return the one query."""
        return (NvidiaRuntime(),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Compare what containerd has read with where the toolkit installs."""
        status: RuntimeStatus = snapshot[NvidiaRuntime()]
        desired = f"{TOOLKIT}/{RUNTIME}"
        if (status.installed, status.configured) == (desired, desired):
            return ()
        old = status.configured or "none"
        if status.configured == desired:
            old = f"{desired}, which is not installed"
        return (Change(Op.UPDATE, "runtime", old, desired, Settles.AFTER_EFFECT),)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return the wait; the restart is its effect."""
        del snapshot
        operations: list[Operation] = [AwaitToolkit()]
        return operations

    def _due_effects(self, snapshot: Snapshot, /) -> tuple[Effect, ...]:
        del snapshot
        return (Effect(RESTART_K3S),)

    def affects(self, changes: Sequence[Change], /) -> frozenset[AnswerId]:
        """Return what the restart alters for others."""
        return frozenset({(self.system, NvidiaRuntime())}) if changes else frozenset()

    def _seconds(self) -> float:
        return WAIT_SECONDS + 60.0


@dataclass(frozen=True, slots=True)
class HostRuntime(HostResource):
    """A containerd that runs has read the runtime of the package: k3s looks for it only when it starts.

    Where k3s does not run yet, its first start finds the package, and nothing differs.
    """

    kind: ClassVar[str] = "host-runtime"

    def _key_name(self) -> str:
        return "nvidia"

    def queries(self) -> tuple[NvidiaRuntime, ...]:
        """Return the one query."""
        return (NvidiaRuntime(),)

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Say what containerd has read, if it is not a runtime of the host."""
        status: RuntimeStatus = snapshot[NvidiaRuntime()]
        is_own = bool(status.configured) and not status.configured.startswith(f"{TOOLKIT}/")
        if not status.runs or is_own:
            return ()
        old = status.configured or "none"
        return (Change(Op.UPDATE, "runtime", old, "that of the package", Settles.AFTER_EFFECT),)

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return nothing but the effect; what a GPU Operator has left is found before the package."""
        status: RuntimeStatus = snapshot[NvidiaRuntime()]
        if status.installed.startswith(f"{TOOLKIT}/"):
            return self.refusal(
                "TOOLKIT_LEFT",
                f"k3s takes {status.installed} of a GPU Operator before the toolkit of the host",
                untouched="k3s was not restarted",
                remedy=f"declare `gpu.toolkit: operator`, or remove {TOOLKIT} from the node",
            )
        return []

    def _due_effects(self, snapshot: Snapshot, /) -> tuple[Effect, ...]:
        del snapshot
        return (Effect(RESTART_K3S),)

    def affects(self, changes: Sequence[Change], /) -> frozenset[AnswerId]:
        """Return what the restart alters for others."""
        return frozenset({(self.system, NvidiaRuntime())}) if changes else frozenset()
