"""ModelHost is complete, refuses what cannot be, and owes effects as real hosts do."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass, replace

import pytest

from provision.contracts.driver import Action, Verdict
from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.remedy import Fix
from provision.hosts import host_effects
from provision.hosts.operations import basic as ops
from provision.hosts.operations import edit as ops_edit
from provision.hosts.operations import grow as ops_grow
from provision.hosts.query_kinds import HOST_KINDS
from provision.hosts.resources.file import File
from provision.hosts.resources.kernel import KernelArguments, ModprobeBlacklist
from provision.hosts.resources.package import Package
from provision.hosts.resources.service import Service
from provision.testing.model_answers import ANSWERS
from provision.testing.model_host import (
    HostState,
    ImpossibleStateError,
    KilledError,
    ModelFile,
    ModelHost,
    ModelUnit,
    guest_state,
    hypervisor_state,
)
from provision.testing.model_ops import known
from provision.values.cancel import Cancel
from tests.unit.hosts.converge import converge, quiet, snapshot_of

S = "pve/ssh"
REBOOT = Effect(host_effects.REBOOT_HYPERVISOR)
RESTART = Effect(host_effects.RESTART, "ssh.service")
LOADER = Effect(host_effects.BOOT_LOADER)


def test_every_query_kind_has_an_answer() -> None:
    assert {kind.query for kind in HOST_KINDS.values()} <= set(ANSWERS)


def test_every_operation_can_be_performed() -> None:
    operations = [
        operation
        for module in (ops, ops_edit, ops_grow)
        for _, operation in inspect.getmembers(module, inspect.isclass)
        if hasattr(operation, "shell")
    ]
    concrete = [operation for operation in operations if is_dataclass(operation)]
    assert len(concrete) > 15
    assert [operation.__name__ for operation in concrete if not known(operation)] == []


def _vfio_without_iommu(state: HostState) -> None:
    state.iommu = replace(state.iommu, units=(), groups=0)
    state.functions[1].driver = "vfio-pci"


IMPOSSIBLE: tuple[tuple[str, Callable[[HostState], object]], ...] = (
    ("below", lambda s: s.files.update({"/etc/hosts/x": ModelFile()})),
    ("plain absolute", lambda s: s.files.update({"relative": ModelFile()})),
    ("mode", lambda s: s.files.update({"/x": ModelFile(mode="999")})),
    ("held", lambda s: s.held.add("nope")),
    ("masked", lambda s: s.units.update({"a.service": ModelUnit(active=True, file="masked")})),
    ("started again", lambda s: setattr(s.units["ssh.service"], "waiting", True)),
    ("not loaded", lambda s: s.modules.discard("nouveau")),
    ("no IOMMU", _vfio_without_iommu),
    ("not installed", lambda s: setattr(s, "running", "9.9")),
    ("without its kernel", lambda s: s.initramfs.update({"9.9": frozenset()})),
    ("built into", lambda s: s.modules.add("ext4")),
    ("UEFI", lambda s: setattr(s, "loader", "systemd-boot")),
    ("negative", lambda s: setattr(s, "root", replace(s.root, size=-1))),
)


@pytest.mark.parametrize(("words", "damage"), IMPOSSIBLE, ids=[case[0] for case in IMPOSSIBLE])
def test_impossible_states_are_refused(words: str, damage: Callable[[HostState], object]) -> None:
    state = hypervisor_state()
    state.check()
    damage(state)
    with pytest.raises(ImpossibleStateError, match=words):
        ModelHost(S, state)


def test_a_query_of_an_unknown_kind_is_unknown() -> None:
    class Odd:
        kind = "odd"

    query = Odd()
    assert isinstance(ModelHost(S).answer(frozenset({query}), Cancel())[query], Unknown)


def test_a_failed_operation_ends_the_script_and_leaves_its_markers() -> None:
    state = guest_state()
    state.missing.add("nope")
    host = ModelHost(S, state)
    package = Package(S, ("nope",), effects=(RESTART,))
    file = File(S, "/etc/a", b"x")
    snapshot = snapshot_of(host, [package, file])
    actions = [Action(each.key, str(each.key), _fix(each.fix(snapshot))) for each in (package, file)]
    results = host.act("run", actions, [RESTART], quiet, Cancel())
    assert [result.verdict for result in results] == [Verdict.FAILED, Verdict.NOT_BEGUN, Verdict.NOT_BEGUN]
    assert "nope" in results[0].output[0]
    assert [marker.effect for marker in host.answer(frozenset(), Cancel()).pending] == [RESTART]
    assert "/etc/a" not in host.state.files


@pytest.mark.parametrize(
    ("package", "said"),
    [
        (Package(S, ("libcurl4",), absent=True), "would also remove cmake, curl; declare these absent"),
        (Package(S, ("chrony", "jq")), "Packages need to be removed"),
    ],
    ids=["dependents", "conflict"],
)
def test_no_package_is_removed_that_the_plan_does_not_name(package: Package, said: str) -> None:
    state = guest_state()
    state.packages |= {"libcurl4": "7", "curl": "7", "cmake": "3"}
    state.dependents = {"libcurl4": ("curl", "wget"), "curl": ("cmake",)}
    host = ModelHost(S, state)
    before = host.dump()
    action = Action(package.key, "package", _fix(package.fix(snapshot_of(host, [package]))))
    (result,) = host.act("run", [action], [], quiet, Cancel())
    assert result.verdict == Verdict.FAILED
    assert said in result.output[0]
    state.noted.clear()  # how the packages were is true all the same
    assert host.dump() == before


def _fix(remedy: object) -> Fix:
    assert isinstance(remedy, Fix)
    return remedy


def test_a_withheld_effect_stays_pending_until_it_happens() -> None:
    host = ModelHost(S)
    file = File(S, "/etc/ssh/sshd_config.d/a.conf", b"x", effects=(RESTART,))
    before = host.state.units["ssh.service"].read
    host.act("run", [Action(file.key, "a", _fix(file.fix(snapshot_of(host, [file]))))], [], quiet, Cancel())
    assert [marker.effect for marker in host.answer(frozenset(), Cancel()).pending] == [RESTART]
    assert host.state.units["ssh.service"].read == before
    host.act("run", [], [RESTART], quiet, Cancel())
    assert host.answer(frozenset(), Cancel()).pending == ()
    assert host.state.units["ssh.service"].read != before


def test_a_boot_satisfies_a_restart() -> None:
    host = ModelHost(S)
    file = File(S, "/etc/a", b"x", effects=(RESTART,))
    host.act("run", [Action(file.key, "a", _fix(file.fix(snapshot_of(host, [file]))))], [], quiet, Cancel())
    host.reboot(REBOOT, quiet, Cancel())
    assert host.answer(frozenset(), Cancel()).pending == ()


def test_a_boot_before_the_rebuild_satisfies_nothing() -> None:
    host = ModelHost(S, hypervisor_state())
    resource = KernelArguments(S, ("nomodeset",), "grub", REBOOT)
    host.act(
        "run",
        [Action(resource.key, "a", _fix(resource.fix(snapshot_of(host, [resource]))))],
        [],
        quiet,
        Cancel(),
    )
    host.reboot(REBOOT, quiet, Cancel())
    pending = {marker.effect for marker in host.answer(frozenset(), Cancel()).pending}
    assert pending == {LOADER, REBOOT}
    assert "nomodeset" not in host.state.cmdline
    converge(host, [resource])
    assert "nomodeset" in host.state.cmdline.split()


def test_a_blacklist_without_its_initramfs_does_not_keep_a_driver_off() -> None:
    host = ModelHost(S, hypervisor_state())
    resource = ModprobeBlacklist(S, "cards", ("nouveau", "nova_core", "nvidiafb"), REBOOT)
    host.act(
        "run",
        [Action(resource.key, "a", _fix(resource.fix(snapshot_of(host, [resource]))))],
        [],
        quiet,
        Cancel(),
    )
    host.reboot(REBOOT, quiet, Cancel())
    assert host.state.functions[1].driver == "nouveau"


def test_kill_after_raises_once_and_keeps_what_was_done() -> None:
    host = ModelHost(S)
    files = [File(S, f"/etc/{name}", b"x") for name in "ab"]
    snapshot = snapshot_of(host, files)
    actions = [Action(file.key, file.path, _fix(file.fix(snapshot))) for file in files]
    host.kill_after(3)
    with pytest.raises(KilledError, match="boundary 3"):
        host.act("run", actions, [], quiet, Cancel())
    assert "/etc/a" in host.state.files
    assert "/etc/b" not in host.state.files
    assert {result.verdict for result in host.act("run", actions, [], quiet, Cancel())} == {Verdict.DONE}


def test_a_fix_without_operations_raises() -> None:
    host = ModelHost(S)
    with pytest.raises(TypeError, match="no operations"):
        host.act("run", [Action(None, "odd", Fix("rm -rf /"))], [], quiet, Cancel())
    ran: list[str] = []
    watching = ModelHost(S, on_script=lambda _state, script: ran.append(script))
    watching.act("run", [Action(None, "odd", Fix("echo"))], [], quiet, Cancel())
    assert ran == ["echo"]


def test_starting_a_unit_that_does_not_exist_fails() -> None:
    host = ModelHost(S)
    service = Service(S, "nope", running=True)
    fix = _fix(service.fix(snapshot_of(host, [service])))
    (result,) = host.act("run", [Action(service.key, "nope", fix)], [], quiet, Cancel())
    assert result.verdict == Verdict.FAILED
    assert result.output == ("Unit nope.service not found.",)


def test_all_queries_take_one_execution() -> None:
    host = ModelHost(S)
    snapshot_of(host, [File(S, f"/etc/{number}", b"x") for number in range(50)])
    assert host.round_trips == 1
