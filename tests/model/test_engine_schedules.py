"""Any mixture of steps, orders, reboots, refusals and failures ends: no step is left without an outcome."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from provision.contracts.role import Context, Parent
from provision.engine.environment import Options
from provision.hosts import host_effects
from provision.inventory.playbook import Entry
from provision.values.consent import Consent
from tests.unit.engine.fake_hosts import Host, Item
from tests.unit.engine.fakes import FakeRole, FakeSite, on_own

REBOOT = host_effects.REBOOT_NODE
SUBJECTS = ("n1", "n2", "n3")


@st.composite
def sites(draw: st.DrawFn) -> tuple[list[FakeRole], tuple[Entry, ...], dict[str, object]]:
    """A playbook of up to five roles."""
    count = draw(st.integers(1, 5))
    roles: list[FakeRole] = []
    entries: list[Entry] = []
    guest = draw(st.booleans())
    for number in range(count):
        name = f"r{number}"
        boots = draw(st.booleans())
        router = draw(st.booleans())

        def make(
            context: Context, name: str = name, boots: bool = boots, router: bool = router
        ) -> list[Item]:
            subject = context.subject.name
            found = [Item(f"{subject}/ssh", name, "1", boots=REBOOT if boots else None, restarts="x.service")]
            return [*found, Item("n1/ssh", f"{name}-{subject}", "1")] if router else found

        subjects = frozenset(draw(st.sets(st.sampled_from(SUBJECTS), min_size=1)))
        roles.append(
            FakeRole(
                name, make, on_own(f"fact-{name}"), needs_new_boot=draw(st.booleans()), subjects=subjects
            )
        )
        after = tuple(entry.role for entry in entries if not guest and draw(st.booleans()))
        entries.append(Entry(name, ("all",), after, draw(st.integers(0, 2))))
    faults = {
        "refuses": draw(st.sets(st.sampled_from([f"r{number}" for number in range(5)]), max_size=1)),
        "consent": draw(st.sampled_from([Consent.ALLOW, Consent.ASK])),
        "guest": guest,
    }
    return roles, tuple(entries), faults


@settings(max_examples=100, deadline=None)
@given(sites())
def test_every_schedule_ends_and_converges(
    found: tuple[list[FakeRole], tuple[Entry, ...], dict[str, object]],
) -> None:
    roles, entries, faults = found
    refuses = frozenset(faults["refuses"])  # type: ignore[call-overload]  # drawn values
    with tempfile.TemporaryDirectory() as folder:
        site = FakeSite(
            roles,
            subjects=SUBJECTS,
            entries=entries,
            hosts={"n2/ssh": Host(refuses=refuses)},
            policy={REBOOT: faults["consent"]},  # type: ignore[dict-item]  # drawn values
            parents={"n3": (Parent("n1"),)} if faults["guest"] else {},
            state=Path(folder),
        )
        planned = site.plan()
        report = site.apply(planned=planned)
        assert report.exit_code != 130, "a step was left without an outcome"
        assert {step.id for step in report.steps} == {step.step.id for step in planned.plan.steps}
        site.hosts["n2/ssh"].refuses = frozenset()
        again = site.apply(Options(allow=frozenset({REBOOT.name})))
        assert again.exit_code == 0, [step for step in again.steps if step.diagnostics]
        assert site.plan().plan.empty
        assert all(not host.pending for host in site.hosts.values())
