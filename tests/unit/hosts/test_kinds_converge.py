"""Every kind of resource: after its fix nothing differs; tests/model kills the same cases everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from provision.contracts.change import Key, Op
from provision.contracts.driver import Action
from provision.contracts.effect import Effect
from provision.contracts.query import Unknown
from provision.contracts.remedy import Fix, Impossible
from provision.contracts.resource import Resource, changes_of, remedy_of
from provision.contracts.snapshot import Snapshot
from provision.hosts import host_effects
from provision.hosts.queries.system import ClockStatus
from provision.hosts.resources.command import Command
from provision.hosts.resources.file import Directory, File, FileLine
from provision.hosts.resources.filesystem import RootFilesystem
from provision.hosts.resources.kernel import KernelArguments, KernelModule, ModprobeBlacklist
from provision.hosts.resources.package import Package
from provision.hosts.resources.pci import CardUnbound
from provision.hosts.resources.service import Service
from provision.hosts.resources.sysctl import Sysctl
from provision.hosts.resources.system import HostKey, Hostname, SwapIsOff, TimeSync, Timezone
from provision.testing.host_cases import FSTAB_CASES
from provision.testing.model_host import (
    HostState,
    ModelFile,
    ModelHost,
    ModelUnit,
    guest_state,
    hypervisor_state,
)
from provision.values.cancel import Cancel
from tests.unit.hosts.converge import converge, differing, quiet, snapshot_of

S = "x/ssh"
REBOOT = Effect(host_effects.REBOOT_HYPERVISOR)
RESTART = Effect(host_effects.RESTART, "ssh.service")
OFF = ("nouveau", "nova_core", "nvidiafb")
ARGUMENTS = ("nomodeset", f"modprobe.blacklist={','.join(OFF)}")
KEY = HostKey(S, SecretStr("-----BEGIN planted-key-----\n"), "ssh-ed25519 AAAAnew")

Make = Callable[[], HostState]


def _service(active: bool, file: str, waiting: bool = False) -> Make:
    def make() -> HostState:
        state = guest_state()
        state.units["cron.service"] = ModelUnit(active, file, waiting=waiting)
        return state

    return make


def _packages(**installed: str) -> Make:
    def make() -> HostState:
        state = guest_state()
        state.packages.update(installed)
        return state

    return make


def _loaded() -> HostState:
    state = guest_state()
    state.modules.add("dummy")
    state.base_modules = frozenset({"dummy"})
    return state


def _lvm() -> HostState:
    return guest_state(lvm=True)


def _systemd_boot() -> HostState:
    return hypervisor_state(loader="systemd-boot")


CASES: tuple[tuple[str, Make, Sequence[Resource]], ...] = (
    (
        "file with a restart",
        guest_state,
        [File(S, "/etc/ssh/sshd_config.d/a.conf", b"x\n", effects=(RESTART,))],
    ),
    ("package", guest_state, [Package(S, ("curl", "jq"))]),
    ("package absent", _packages(curl="1", jq="2"), [Package(S, ("curl", "jq", "wget"), absent=True)]),
    ("package hold", _packages(curl="1"), [Package(S, ("curl",), hold=True)]),
    ("service off to on", _service(active=False, file="disabled"), [Service(S, "cron", True, True)]),
    ("service on to off", _service(active=True, file="enabled"), [Service(S, "cron", False, False)]),
    ("service masked to on", _service(active=False, file="masked"), [Service(S, "cron", True, True)]),
    ("service dying to on", _service(False, "enabled", waiting=True), [Service(S, "cron", True, True)]),
    ("service dying to off", _service(False, "enabled", waiting=True), [Service(S, "cron", False, False)]),
    (
        "package and its service",
        guest_state,
        [Package(S, ("qemu-guest-agent",)), Service(S, "qemu-guest-agent", True, True)],
    ),
    ("sysctl", guest_state, [Sysctl(S, "vm.swappiness", "10")]),
    ("sysctl goes", guest_state, [Sysctl(S, "vm.swappiness", None)]),
    ("module", guest_state, [KernelModule(S, "br-netfilter", "a=1")]),
    ("options of a loaded module", _loaded, [KernelModule(S, "dummy", "a=1", reboot=REBOOT)]),
    ("built-in module", guest_state, [KernelModule(S, "ext4")]),
    ("blacklist", hypervisor_state, [ModprobeBlacklist(S, "cards", OFF, REBOOT)]),
    ("arguments by GRUB", hypervisor_state, [KernelArguments(S, ARGUMENTS, "grub", REBOOT)]),
    ("arguments by systemd-boot", _systemd_boot, [KernelArguments(S, ARGUMENTS, "systemd-boot", REBOOT)]),
    (
        "card",
        hypervisor_state,
        [
            ModprobeBlacklist(S, "cards", OFF, REBOOT),
            KernelArguments(S, ARGUMENTS, "grub", REBOOT),
            CardUnbound(S, "0000:02:00", ARGUMENTS, REBOOT),
        ],
    ),
    ("root on a partition", guest_state, [RootFilesystem(S)]),
    ("root on LVM", _lvm, [RootFilesystem(S)]),
    ("hostname", guest_state, [Hostname(S, "vm-1.lab.example")]),
    ("time zone", guest_state, [Timezone(S, "Europe/Berlin")]),
    ("time by timesyncd", guest_state, [TimeSync(S, "timesyncd", ("10.0.0.1",))]),
    (
        "time by chrony",
        guest_state,
        [
            Package(S, ("systemd-timesyncd",), absent=True),
            Package(S, ("chrony",)),
            TimeSync(S, "chrony", ("10.0.0.1",)),
        ],
    ),
    ("swap", guest_state, [SwapIsOff(S)]),
    ("host key", guest_state, [KEY]),
    ("command by unless", guest_state, [Command(S, "c", "do", unless="is done")]),
    (
        "folder and line",
        guest_state,
        [Directory(S, "/srv/a", "0750"), FileLine(S, "/etc/hosts", "10.0.0.9 nine")],
    ),
)


@pytest.mark.parametrize(("name", "make", "resources"), CASES, ids=[case[0] for case in CASES])
def test_an_unknown_state_needs_attention_and_changes_nothing(
    name: str, make: Make, resources: Sequence[Resource]
) -> None:
    del name, make
    for resource in resources:
        blind = Snapshot(S, answers={query: Unknown("smoke") for query in resource.queries()})
        changes = changes_of(resource, blind)
        assert changes
        assert {change.op for change in changes} == {Op.ATTENTION}
        assert all("smoke" in str(change.old) for change in changes)
        remedy = remedy_of(resource, blind)
        assert isinstance(remedy, Impossible)
        assert remedy.diagnostic.code == "UNKNOWN"


@pytest.mark.parametrize(("name", "make", "resources"), CASES, ids=[case[0] for case in CASES])
def test_each_unknown_answer_alone_needs_attention(
    name: str, make: Make, resources: Sequence[Resource]
) -> None:
    del name
    snapshot = snapshot_of(ModelHost(S, make()), resources)
    for resource in resources:
        for query in resource.queries():
            blind = replace(snapshot, answers={**snapshot.answers, query: Unknown("smoke")})
            (change,) = changes_of(resource, blind)
            assert (change.op, change.old) == (Op.ATTENTION, "unknown: smoke")
            assert isinstance(remedy_of(resource, blind), Impossible)


@pytest.mark.parametrize(("name", "make", "resources"), CASES, ids=[case[0] for case in CASES])
def test_a_resource_is_hashable_and_has_a_key_of_its_system(
    name: str, make: Make, resources: Sequence[Resource]
) -> None:
    del name, make
    for resource in resources:
        assert isinstance(resource.key, Key)
        assert resource.key.system == S
        assert len({resource, resource}) == 1
        assert all(hash(query) == hash(query) for query in resource.queries())


# ---------------------------------------------------------------- any start, any wish

_MODES = st.sampled_from(["0644", "0600", "0755", "640", "4755"])
_CONTENT = st.binary(max_size=60)
_NAMES = st.sampled_from(["nouveau", "nova_core", "nvidiafb", "bochs-drm", "dummy"])


@st.composite
def _states(draw: st.DrawFn) -> HostState:
    state = guest_state(lvm=draw(st.booleans()))
    if draw(st.booleans()):
        state.files["/etc/a"] = ModelFile(draw(_CONTENT), draw(st.sampled_from(["0644", "0600", "4755"])))
    if draw(st.booleans()):
        state.packages["curl"] = draw(st.sampled_from(["1", "2"]))
        if draw(st.booleans()):
            state.held.add("curl")
    file = draw(st.sampled_from(["enabled", "disabled", "static", "masked"]))
    state.units["cron.service"] = ModelUnit(file != "masked" and draw(st.booleans()), file)
    state.modules |= {"dummy"} if draw(st.booleans()) else set()
    state.grub = draw(st.sampled_from(["", "quiet", "quiet nomodeset", "modprobe.blacklist=dummy,x"]))
    return state


_WISHES = st.one_of(
    st.builds(File, st.just(S), st.just("/etc/a"), _CONTENT, _MODES, secret=st.booleans()),
    st.builds(File, st.just(S), st.just("/etc/a"), absent=st.just(True)),
    st.builds(FileLine, st.just(S), st.just("/etc/a"), st.sampled_from(["x", "k v", ""])),
    st.builds(Package, st.just(S), st.just(("curl",)), hold=st.sampled_from([None, True, False])),
    st.builds(Package, st.just(S), st.just(("curl",)), absent=st.just(True)),
    st.builds(Service, st.just(S), st.just("cron"), st.sampled_from([None, True, False])),
    st.builds(Sysctl, st.just(S), st.just("vm.swappiness"), st.sampled_from(["1", "60", None])),
    st.builds(KernelModule, st.just(S), _NAMES, st.sampled_from(["", "a=1"]), st.booleans()),
    st.builds(
        ModprobeBlacklist, st.just(S), st.just("b"), st.lists(_NAMES, unique=True).map(tuple), st.just(REBOOT)
    ),
    st.builds(
        KernelArguments,
        st.just(S),
        st.lists(st.sampled_from(["nomodeset", "modprobe.blacklist=x,y", "iommu=pt"]), unique=True).map(
            tuple
        ),
        st.just("grub"),
        st.just(REBOOT),
    ),
    st.builds(RootFilesystem, st.just(S)),
    st.builds(Hostname, st.just(S), st.sampled_from(["localhost", "vm-1", "a.b.c"])),
    st.builds(Timezone, st.just(S), st.sampled_from(["UTC", "Etc/UTC", "Europe/Berlin"])),
)


@given(
    state=_states(),
    wishes=st.lists(_WISHES, min_size=1, max_size=3, unique_by=lambda each: str(each.key)[:40]),
)
def test_nothing_differs_after_the_fix(state: HostState, wishes: Sequence[Resource]) -> None:
    host = ModelHost(S, state)
    for wish in wishes:  # a step each: two wishes may be about one file
        converge(host, [wish])
        assert not converge(host, [wish])


def test_time_that_is_not_synchronised_is_polled() -> None:
    state = guest_state()
    state.clock = ClockStatus(synchronised=False)
    sync = TimeSync(S, "timesyncd", deadline=42.0)
    changes = sync.changes(snapshot_of(ModelHost(S, state), [sync]))
    assert [(change.path, change.settles, change.deadline) for change in changes] == [
        ("synchronised", "within", 42.0)
    ]


@pytest.mark.parametrize(("before", "after"), FSTAB_CASES)
def test_swap_is_removed_from_the_table_as_it_is_then(before: bytes, after: bytes) -> None:
    host = ModelHost(S)
    fix = SwapIsOff(S).fix(snapshot_of(host, [SwapIsOff(S)]))
    assert isinstance(fix, Fix)
    host.state.files["/etc/fstab"] = ModelFile(before)  # somebody edits it while the plan is read
    host.act("run", [Action(SwapIsOff(S).key, "swap", fix)], [], quiet, Cancel())
    assert host.state.files["/etc/fstab"].content == after
    assert differing(host, [SwapIsOff(S)]) == []


def test_a_service_that_fails_and_restarts_is_not_running() -> None:
    host = ModelHost(S, _service(False, "enabled", waiting=True)())
    service = Service(S, "cron", True)
    (change,) = service.changes(snapshot_of(host, [service]))
    assert (change.path, change.old, change.new) == ("running", "activating (auto-restart)", "active")


@pytest.mark.parametrize(
    ("make", "options", "boots"), [(_loaded, "a=1", 1), (_loaded, "", 0), (guest_state, "a=1", 0)]
)
def test_only_a_loaded_modules_options_take_a_reboot(make: Make, options: str, boots: int) -> None:
    host = ModelHost(S, make())
    before = host.state.boots
    converge(host, [KernelModule(S, "dummy", options, reboot=REBOOT)])
    assert host.state.boots - before == boots


def test_a_card_that_stays_bound_after_its_boot_is_impossible() -> None:
    state = hypervisor_state()
    state.grub = " ".join(("quiet", *ARGUMENTS))
    state.cmdline += " " + " ".join(ARGUMENTS)
    card = CardUnbound(S, "0000:02:00", ARGUMENTS, REBOOT)
    remedy = card.fix(snapshot_of(ModelHost(S, state), [card]))
    assert isinstance(remedy, Impossible)
    assert remedy.diagnostic.code == "HOST_DRIVER_BOUND"
    assert remedy.diagnostic.evidence == ("0000:02:00.0 [10de:2204] driver nouveau",)


def test_vfio_does_not_count_as_host_driver() -> None:
    state = hypervisor_state()
    for function in state.functions[1:]:
        function.driver = "vfio-pci"
    card = CardUnbound(S, "0000:02:00", ARGUMENTS, REBOOT)
    assert differing(ModelHost(S, state), [card]) == []


def test_the_audio_function_keeps_its_driver() -> None:
    host = ModelHost(S, hypervisor_state())
    converge(
        host, [ModprobeBlacklist(S, "cards", OFF, REBOOT), KernelArguments(S, ARGUMENTS, "grub", REBOOT)]
    )
    assert [function.driver for function in host.state.functions] == ["pcieport", "", "snd_hda_intel"]


def test_modules_of_a_container_are_those_of_its_machine() -> None:
    state = guest_state()
    state.clock = ClockStatus(synchronised=False, container="systemd-nspawn")
    state.modules.add("bochs")
    resources: list[Resource] = [
        KernelModule(S, "overlay"),
        ModprobeBlacklist(S, "no-bochs", ("bochs",), REBOOT),
    ]
    host = ModelHost(S, state)
    converge(host, resources)
    assert host.state.boots == 1
    assert "overlay" not in host.state.modules
