"""Preflight rules during a run: about whole systems once for what these answered, else for each step."""

from __future__ import annotations

from pathlib import Path

from provision.contracts.role import Context, Parent
from provision.contracts.rule import Evidence
from provision.contracts.system import SystemSpec
from provision.inventory.playbook import Entry
from provision.values.diagnostics import Diagnostic
from tests.unit.engine.fake_hosts import Host, Item, Value
from tests.unit.engine.fakes import FakeRole, FakeSite, born_on, here, on_own

GUESTS = ("v1", "v2", "v3")


class Rules:
    """Notes what it is asked about, and refuses what it is told to."""

    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.of_systems: list[frozenset[str] | None] = []
        self.of_resources: list[list[str]] = []

    def __call__(self, evidence: Evidence) -> list[Diagnostic]:
        if evidence.systems:
            self.of_systems.append(evidence.systems)
        if evidence.resources:
            self.of_resources.append([resource.key.system for resource in evidence.resources])
        about = sorted(evidence.systems or ())
        return [Diagnostic("NO", f"{name} is too small", "pve") for name in about if name == self.refuses]


def site(state: Path, rules: Rules) -> FakeSite:
    """Guests that a hypervisor's API makes; what they want on a shared system is late."""

    def create(context: Context) -> list[Item]:
        name = context.subject.name
        return [Item("pve/api", name, "there", makes=name)]

    def inside(context: Context) -> list[Item]:
        name = context.subject.name
        return [Item(f"{name}/ssh", "a", "1"), Item("pve/ssh", f"of-{name}", "1")]

    specs = {
        name: SystemSpec(f"{name}/ssh", "host", name, {"pve/api": (Value(name),)}, born_on("pve/api", name))
        for name in GUESTS
    }
    return FakeSite(
        [
            FakeRole("create", create, lambda name: {"pve/api": (Value(name),)}, subjects=frozenset(GUESTS)),
            FakeRole("inside", inside, on_own("a"), subjects=frozenset(GUESTS)),
        ],
        subjects=("pve", *GUESTS),
        specs={f"{name}/ssh": spec for name, spec in specs.items()}
        | {"pve/api": SystemSpec("pve/api", "proxmox", "pve", {}, here)},
        hosts={"pve/api": Host(is_api=True)},
        entries=(Entry("create", GUESTS), Entry("inside", GUESTS)),
        parents={name: (Parent("pve"),) for name in GUESTS},
        rules=rules,
        state=state,
    )


def test_each_system_that_is_reached_is_looked_at_once(tmp_path: Path) -> None:
    rules = Rules()
    report = site(tmp_path, rules).apply()
    assert report.exit_code == 0, report.steps
    looked_at = [name for systems in rules.of_systems for name in sorted(systems or ())]
    assert sorted(looked_at) == sorted({*(f"{name}/ssh" for name in GUESTS), "pve/ssh"})


def test_the_states_of_each_late_step_are_looked_at(tmp_path: Path) -> None:
    rules = Rules()
    site(tmp_path, rules).apply()
    for name in GUESTS:
        assert [f"{name}/ssh", "pve/ssh"] in rules.of_resources


def test_what_is_found_of_a_system_refuses_every_step_on_it(tmp_path: Path) -> None:
    refusing = site(tmp_path, Rules(refuses="pve/ssh"))
    outcomes = refusing.outcomes(refusing.apply())
    assert {outcomes[f"{name}: inside"] for name in GUESTS} == {"failed"}
    assert {outcomes[f"{name}: create"] for name in GUESTS} == {"changed"}
    assert refusing.hosts["pve/ssh"].values == {}
