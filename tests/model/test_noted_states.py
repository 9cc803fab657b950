"""Sysctl, service, module and package states are noted before their first change; destroy restores them."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.connections.local import LocalConnection
from provision.contracts.change import Key
from provision.contracts.driver import Action, Verdict
from provision.contracts.resource import Resource
from provision.engine.environment import Options
from provision.hosts.driver import HostDriver
from provision.hosts.operations import basic as ops
from provision.hosts.operations.notes import HOLD, MISSING, MODULE, PACKAGE, SERVICE, BringBack, Note
from provision.hosts.queries.notes import NotedState, NotedStates
from provision.hosts.resources.as_before import StatesAsBefore
from provision.hosts.resources.kernel import KernelModule
from provision.hosts.resources.package import Package
from provision.hosts.resources.service import Service
from provision.hosts.resources.sysctl import Sysctl
from provision.testing.model_host import KilledError, ModelHost, guest_state
from provision.testing.model_state import ModelUnit
from provision.values.cancel import Cancel
from tests.model.model_site import ModelSite
from tests.model.shells import SHELLS, answers, run, snapshot_of
from tests.unit.hosts.converge import converge
from tests.unit.hosts.converge import snapshot_of as model_snapshot

S = "case/ssh"
FAKES = {
    "systemctl": 'echo "$*" >>"$LOG"\ncase $* in "cat -- gone.service") exit 1;;'
    " show*ours*) echo FragmentPath=/etc/systemd/system/ours.service;;"
    " show*) echo FragmentPath=/usr/lib/systemd/system/x.service;; esac",
    "dpkg-query": "[ $3 = jq ]",
    "apt-mark": 'echo "$*" >>"$LOG"',
}


@pytest.mark.parametrize("shell", SHELLS)
def test_notes_are_made_once_and_brought_back(shell: str, tmp_path: Path) -> None:
    for name, text in FAKES.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    log = tmp_path / "log"
    environment = {
        "PROVISION_BLOBS": f"{tmp_path}/state/blobs",
        "LOG": str(log),
        "PATH": f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin",
    }
    states = (
        NotedState(HOLD, "gone", "held"),
        NotedState(HOLD, "jq", "not held"),
        NotedState(MODULE, "dummy", MISSING),
        NotedState(PACKAGE, "it's odd", MISSING),
        NotedState(SERVICE, "cron.service", "enabled active"),
        NotedState(SERVICE, "gone.service", "masked inactive"),
        NotedState(SERVICE, "ours.service", MISSING),
        NotedState(SERVICE, "packaged.service", MISSING),
        NotedState(SERVICE, "static.service", "static inactive"),
    )
    notes: list[ops.Operation] = [Note(*state) for state in states]
    again = [Note(state.of, state.name, "of a later run") for state in states]
    for operations in (notes, again):
        frame = run(shell, ops.fix(operations).script, env=environment)
        assert frame.rc == 0, frame.stderr
    assert answers(shell, [NotedStates()], env=environment)[NotedStates()] == states
    resource = StatesAsBefore(S)
    back = resource.operations(snapshot_of(shell, [resource], env=environment))
    assert back == [BringBack(*state) for state in states]
    frame = run(shell, ops.fix(back).script, env=environment)
    assert frame.rc == 0, frame.stderr
    assert resource.changes(snapshot_of(shell, [resource], env=environment)) == ()
    assert list((tmp_path / "state" / "saved").iterdir()) == []
    called = [line for line in log.read_text().splitlines() if not line.startswith(("cat", "show"))]
    assert called == [
        "unhold -- jq",
        "start -- cron.service",
        "unmask -- cron.service",
        "enable -- cron.service",
        "disable --now -- ours.service",
        "stop -- static.service",
    ]


def test_what_was_changed_is_as_before_and_what_was_added_is_named() -> None:
    state = guest_state()
    state.sysctls["/proc/sys/vm/swappiness"] = "60"
    state.packages |= {"nano": "7.2"}
    state.units["cron.service"] = ModelUnit(active=False, file="disabled")
    state.brings = {"jq": ("jq.service",)}
    host = ModelHost(S, state)
    declared: tuple[Resource, ...] = (
        Sysctl(S, "vm.swappiness", "10"),
        Package(S, ("jq",)),
        Package(S, ("nano",), hold=True),
        Service(S, "cron", running=True, enabled=True),
        KernelModule(S, "dummy"),
    )
    assert converge(host, declared)
    assert (state.sysctls["/proc/sys/vm/swappiness"], state.held) == ("10", {"nano"})
    converge(host, [Sysctl(S, "vm.swappiness", "20")])
    before = StatesAsBefore(S)
    lines = {change.path: change.new for change in before.changes(model_snapshot(host, [before]))}
    assert lines == {
        "hold nano": "not held",
        "module dummy": "loaded until the next boot",
        "package jq": "left as it is",
        "service cron.service": "disabled inactive",
        "sysctl vm.swappiness": "60",
    }
    assert converge(host, [before])
    assert (state.sysctls["/proc/sys/vm/swappiness"], state.held) == ("60", set())
    assert (state.units["cron.service"].active, state.units["cron.service"].file) == (False, "disabled")
    assert (state.packages["jq"], "dummy" in state.modules) == ("1.0", True)
    assert state.noted == {}


INVENTORY = """
version: 1
name: one
access: { user: root }
nodes:
  n1:
    address: 198.51.100.1
    sysctl: { vm.swappiness: "10" }
    modules: [dummy]
    host_resources:
      - { kind: service, name: cron, running: true, enabled: true }
      - { kind: sysctl, key: vm.max_map_count, value: "262144" }
"""


def test_destroy_of_bare_metal_leaves_states_and_files_as_before(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(INVENTORY)
    models = ModelSite(load(file), tmp_path / "state")
    state = models.hosts["n1/ssh"].state
    state.sysctls |= {"/proc/sys/vm/swappiness": "60", "/proc/sys/vm/max_map_count": "65530"}
    state.units["cron.service"] = ModelUnit(active=False, file="disabled")
    before = {path for path in state.files if not state.folder(path)}
    assert models.apply().exit_code == 0
    assert (state.sysctls["/proc/sys/vm/swappiness"], state.units["cron.service"].active) == ("10", True)
    assert models.destroy(Options(allow=frozenset({"delete"}), host=True)).exit_code == 0
    assert (state.sysctls["/proc/sys/vm/swappiness"], state.units["cron.service"].active) == ("60", False)
    assert state.sysctls["/proc/sys/vm/max_map_count"] == "65530"
    assert {path for path in state.files if not state.folder(path)} == before
    assert state.noted == {}


@pytest.mark.parametrize("shell", SHELLS)
def test_all_states_are_noted_before_the_first_change_of_an_execution(shell: str, tmp_path: Path) -> None:
    """A run that dies within the first change must not let the next one note what that change has brought."""
    notes = tmp_path / "saved"
    dying = ops.fix([ops.RunCommand(f"ls {notes} >{tmp_path}/list; exit 1", creates="/none")])
    later = ops.fix([Note(SERVICE, "cron.service", MISSING), Note(HOLD, "jq", "not held")])
    actions = [Action(Key(S, "x", name), name, remedy) for name, remedy in (("a", dying), ("b", later))]
    driver = HostDriver(S, LocalConnection(tuple(SHELLS[shell])), {}, who="me", state=str(tmp_path))
    results = driver.act("run", actions, (), lambda _: None, Cancel())
    assert [result.verdict for result in results] == [Verdict.FAILED, Verdict.NOT_BEGUN]
    assert len((tmp_path / "list").read_text().split()) == 2
    environment = {"PROVISION_BLOBS": f"{tmp_path}/blobs"}
    noted = answers(shell, [NotedStates()], env=environment)[NotedStates()]
    assert noted == (NotedState(HOLD, "jq", "not held"), NotedState(SERVICE, "cron.service", MISSING))


def test_a_unit_of_an_interrupted_run_is_not_taken_for_an_old_one() -> None:
    def make() -> ModelHost:
        state = guest_state()
        state.brings = {"jq": ("jq.service",)}
        return ModelHost(S, state)

    declared: tuple[Resource, ...] = (Package(S, ("jq",)), Service(S, "jq", running=True, enabled=False))
    whole = make()
    converge(whole, declared)
    for boundary in range(3, whole.boundaries + 1):
        host = make()
        host.kill_after(boundary)
        with pytest.raises(KilledError):
            converge(host, declared)
        converge(host, declared)
        assert host.state.noted[SERVICE, "jq.service"] == MISSING, boundary
