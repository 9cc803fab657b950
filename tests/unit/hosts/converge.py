"""A small apply loop, until steps need the engine's: ask, fix, effects, reboots, read back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from provision.contracts.driver import Action, Verdict
from provision.contracts.effect import Effect
from provision.contracts.remedy import ByHand, Fix, Impossible
from provision.contracts.resource import Resource, ask, changes_of, remedy_of
from provision.contracts.snapshot import Snapshot
from provision.testing.model_host import KilledError, ModelHost
from provision.values.cancel import Cancel

Step = Callable[[ModelHost], Sequence[Resource]]


def quiet(_line: str) -> None:
    pass


def snapshot_of(host: ModelHost, resources: Sequence[Resource]) -> Snapshot:
    return host.answer(ask(resources), Cancel())


def differing(host: ModelHost, resources: Sequence[Resource]) -> list[Resource]:
    snapshot = snapshot_of(host, resources)
    return [resource for resource in resources if changes_of(resource, snapshot)]


def converge(host: ModelHost, resources: Sequence[Resource]) -> bool:
    """Bring one step about; return whether anything was done. Fails when it is not as desired afterwards."""
    snapshot = snapshot_of(host, resources)
    actions: list[Action] = []
    effects: set[Effect] = {marker.effect for marker in snapshot.pending}
    for resource in resources:
        if changes_of(resource, snapshot):
            remedy = remedy_of(resource, snapshot)
            assert not isinstance(remedy, Impossible | ByHand), remedy
            assert isinstance(remedy, Fix)
            actions.append(Action(resource.key, str(resource.key), remedy))
            effects.update(remedy.effects)
    if not actions and not effects:
        return False
    now = sorted(
        filter(lambda effect: not effect.cls.reboots, effects), key=lambda effect: (effect.cls.rank, effect)
    )
    results = host.act("run", actions, now, quiet, Cancel())
    assert {result.verdict for result in results} <= {Verdict.DONE}, results
    for effect in sorted(effects - set(now)):
        host.reboot(effect, quiet, Cancel())
    left = snapshot_of(host, resources)
    assert [resource.key for resource in resources if changes_of(resource, left)] == []
    assert left.pending == ()
    return True


def killed_everywhere(make: Callable[[], ModelHost], step: Step) -> int:
    """Kill the controller at every boundary of a run; the next run must end as an uninterrupted one does."""
    host = make()
    converge(host, step(host))
    expected, boundaries = host.dump(), host.boundaries
    for boundary in range(1, boundaries + 1):
        host = make()
        host.kill_after(boundary)
        try:
            converge(host, step(host))
        except KilledError as killed:
            where = str(killed)
        else:
            raise AssertionError(f"nothing was killed at boundary {boundary}")
        converge(host, step(host))
        assert not converge(host, step(host)), f"a third run found something to do after {where}"
        assert host.dump() == expected, f"another end after {where}"
    return boundaries
