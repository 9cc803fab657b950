"""The mutation sweep's own judgement: it must be able to fail."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from provision.contracts.resource import Resource
from provision.hosts.resources.file import File, FileLine
from provision.hosts.resources.service import Service
from provision.hosts.resources.sysctl import Sysctl
from provision.hosts.resources.system import Hostname, Timezone
from provision.testing.model_host import HostState, ModelFile, ModelHost, ModelUnit
from provision.values.cancel import Cancel
from tests.e2e.sweep import Seen, Target, judged, together, waves
from tests.e2e.vandals import EXEMPT, UNREPAIRED, VANDALS, Config, Mutation, Off, Shell

Spoil = Callable[[HostState], object]

HOST = "vm-1/ssh"
FILE = Target(File(HOST, "/etc/motd", b"x"), Mutation("content", Shell(":")))
AWAY = Target(File(HOST, "/etc/motd", b"x"), Mutation("away", Shell(":"), alone=True))
CORES, MEMORY = (
    Target(File(HOST, "/vm", b"x"), Mutation(key, Config("/vm", dict), path=key, field=key))
    for key in ("cores", "memory")
)
TAKEN = Target(File(HOST, "/etc/motd", b"x"), Mutation("taken", Shell(":"), problem=True))
NIC = Target(File(HOST, "/etc/motd", b"x"), Mutation("net0 bridge", Shell(":")))
USUAL = {HOST: 1}


def seen(*named: str, problems: str = "", left: str = "", trips: int = 1) -> Seen:
    changed: dict[str, set[str]] = {}
    for each in named:
        key, _, path = each.partition(" ")
        changed.setdefault(key, set()).add(path or "content")
    paths = {key: frozenset(each) for key, each in changed.items()}
    return Seen(paths, tuple(problems.split()), tuple(left.split()), {HOST: trips})


@pytest.mark.parametrize(
    ("damaged", "plan", "faults"),
    [
        ([FILE], seen(FILE.key), 0),
        ([], seen(), 0),
        ([FILE], seen(), 1),
        ([FILE], seen(FILE.key, "vm-1/ssh:file:/etc/other"), 1),
        ([FILE], seen("vm-1/ssh:file:/etc/other"), 2),
        ([], seen(FILE.key), 1),
        ([FILE], seen(FILE.key, problems="no"), 1),
        ([TAKEN], seen(FILE.key, problems="no"), 0),
        ([TAKEN], seen(FILE.key), 1),
        ([FILE], seen(FILE.key, left="step"), 1),
        ([AWAY], seen(FILE.key, left="step"), 0),
        ([FILE], seen(FILE.key, trips=2), 1),
        ([AWAY], seen(FILE.key, trips=0), 0),
        ([NIC], seen(FILE.key, trips=2), 0),
        ([NIC], seen(FILE.key, trips=3), 1),
        ([CORES, MEMORY], seen(f"{CORES.key} cores", f"{CORES.key} memory.now"), 0),
        ([CORES, MEMORY], seen(f"{CORES.key} cores"), 1),
        ([CORES], seen(f"{CORES.key} cores", f"{CORES.key} memory"), 1),
        ([CORES], seen(f"{CORES.key} coresx"), 2),
    ],
)
def test_a_plan_must_name_the_damage_alone_at_the_same_cost(
    damaged: list[Target], plan: Seen, faults: int
) -> None:
    assert len(judged("x", damaged, plan, USUAL)) == faults


def test_two_damages_of_one_file_or_resource_are_never_together() -> None:
    line = Target(FileLine(HOST, "/etc/hosts", "a b"), Mutation("removed", Shell(":"), path="/etc/hosts"))
    name = Target(File(HOST, "/etc/hosts", b""), Mutation("content", Shell(":"), path="/etc/hosts"))
    unit = Service(HOST, "cron", running=True, enabled=True)
    stopped, disabled = (Target(unit, each) for each in VANDALS["service"](unit))
    queues = [deque(each) for each in ([line], [name], [stopped], [disabled])]
    assert together(queues) == [line, stopped]
    assert together(queues) == [name, disabled]
    assert together(queues) == []


def test_of_a_resource_of_a_host_one_field_is_damaged_at_a_time() -> None:
    zone = Timezone(HOST, "Europe/Berlin")
    queues = [deque([Target(zone, each)]) for each in VANDALS["timezone"](zone)]
    assert [len(together(queues)) for _ in range(4)] == [1, 1, 1, 0]


def test_keys_of_a_vms_configuration_are_damaged_together() -> None:
    assert together([deque([CORES]), deque([CORES]), deque([MEMORY])]) == [CORES, MEMORY]


OWNED = File(HOST, "/etc/motd", b"x", "0644", "root", "root")
CRON = Service(HOST, "cron", running=True, enabled=True)
FORWARD = Sysctl(HOST, "net.ipv4.ip_forward", "1")
NAME = Hostname(HOST, "vm-1")


def sound() -> HostState:
    """Return a host on which all of these are as they are wanted."""
    state = HostState(hostname="vm-1", sysctls={"/proc/sys/net/ipv4/ip_forward": "1"})
    state.units["cron.service"] = ModelUnit()
    state.files["/etc/hosts"] = ModelFile(b"127.0.1.1 vm-1\n")
    for file in (OWNED, FORWARD.file, NAME.file):
        state.files[file.path] = ModelFile(file.content or b"")
    return state


def changed(path: str, **values: object) -> Spoil:
    return lambda state: state.files.update({path: replace(state.files[path], **values)})  # type: ignore[arg-type]  # a table of fields


def removed(path: str) -> Spoil:
    return lambda state: state.files.pop(path)


DAMAGES: list[tuple[Resource, Mapping[str, Spoil]]] = [
    (
        OWNED,
        {
            "content": changed(OWNED.path, content=b"y"),
            "removed": removed(OWNED.path),
            "mode": changed(OWNED.path, mode="0640"),
            "owner": changed(OWNED.path, owner="daemon"),
            "group": changed(OWNED.path, group="daemon"),
        },
    ),
    (
        CRON,
        {
            "stopped": lambda state: setattr(state.units[CRON.unit], "active", False),
            "disabled": lambda state: setattr(state.units[CRON.unit], "file", "disabled"),
        },
    ),
    (
        FORWARD,
        {
            "live value": lambda state: state.sysctls.update({"/proc/sys/net/ipv4/ip_forward": "0"}),
            "at boot: content": changed(FORWARD.file.path, content=b"y"),
            "at boot: removed": removed(FORWARD.file.path),
        },
    ),
    (
        NAME,
        {
            "live": lambda state: setattr(state, "hostname", "vandal"),
            "at boot: content": changed(NAME.file.path, content=b"y"),
            "at boot: removed": removed(NAME.file.path),
            "in /etc/hosts": changed("/etc/hosts", content=b"127.0.0.1 localhost\n"),
        },
    ),
]


@pytest.mark.parametrize(("resource", "spoils"), DAMAGES, ids=[each.key.kind for each, _ in DAMAGES])
def test_a_damage_has_the_field_that_the_plan_names_for_it(
    resource: Resource, spoils: Mapping[str, Spoil]
) -> None:
    fields = {each.name: {each.field} for each in VANDALS[resource.key.kind](resource)}
    found = {}
    for name, spoil in spoils.items():
        state = sound()
        spoil(state)
        seen = ModelHost(HOST, state).answer(frozenset(resource.queries()), Cancel())
        found[name] = {each.path for each in resource.changes(seen)}
    assert found == fields


def test_no_kind_is_damaged_and_exempt() -> None:
    assert not set(VANDALS) & set(EXEMPT)
    assert set(UNREPAIRED) <= set(VANDALS)


def test_every_resource_is_repaired_once_and_costly_ones_last_together() -> None:
    files = [
        Target(File(host, path, b"x"), Mutation(name, Shell(":")))
        for host in ("pve/ssh", "vm-1/ssh", "vm-2/ssh")
        for path in ("/etc/motd", "/etc/issue")
        for name in ("content", "removed")
    ]
    services = [
        Target(Service(host, "cron.service", running=True), Mutation("stopped", Shell(":")))
        for host in ("vm-1/ssh", "vm-2/ssh")
    ]
    off = [Target(File("pve/api", f"/{name}", b""), Mutation("off", Off(name))) for name in ("vm-1", "vm-2")]
    never = Target(File("pve/ssh", "/etc/x", b""), Mutation("x", Shell(":"), repair=False))
    guests = frozenset({"vm-1/ssh", "vm-2/ssh"})
    found, costly = waves([*files, *services, *off, never], guests, 1)
    assert [len(each) for each in found] == [6, 2]
    assert costly == [off[0]], "one VM boots, not all"
    repaired = [each.key for wave in found for each in wave]
    assert sorted(repaired) == sorted({each.key for each in (*files, *services)})
    assert waves([*files, *services, *off], guests, 12) == ([[*found[0], *found[1]]], [off[0]])
