"""Every role of hosts with every shipped inventory on ModelHost; tests/model kills it at every boundary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import SecretStr

from provision.api.domains import load_inventory as load_file
from provision.connections.contracts import KeyPair
from provision.contracts.resource import Resource
from provision.contracts.role import Context
from provision.engine.generated import GeneratedValues
from provision.hosts.resources.pci import IommuStatus
from provision.hosts.roles import base_os, host_resources, shared_storage
from provision.inventory import Inventory, Subject, select
from provision.proxmox.roles import hypervisor_host
from provision.testing.model_host import HostState, ModelHost, ModelUnit, guest_state, hypervisor_state
from provision.values.cancel import Cancel
from tests.unit.hosts.converge import converge, differing

ROOT = Path(__file__).parents[4]
INVENTORIES = sorted((ROOT / "inventories").glob("*.yaml"))
ROLES: tuple[ModuleType, ...] = (hypervisor_host, base_os, host_resources, shared_storage)


@lru_cache
def load(path: Path) -> Inventory:
    """Load each inventory once: it is frozen."""
    return load_file(path)


class Keys(GeneratedValues):
    """Generated values that no role of hosts may need."""

    def __init__(self) -> None:
        super().__init__(lambda: KeyPair(SecretStr(""), "", ""))

    def host_key(self, purpose: str) -> KeyPair:
        return KeyPair(SecretStr(purpose), purpose, purpose)


def context_of(role: ModuleType, inventory: Inventory, subject: Subject, host: ModelHost) -> Context:
    asked = role.questions(inventory, subject)[host.system]
    snapshot = host.answer(frozenset(asked), Cancel())
    return Context(inventory, subject, {host.system: snapshot}, Keys())


def resources_of(
    role: ModuleType, inventory: Inventory, subject: Subject, host: ModelHost
) -> Sequence[Resource]:
    found: Sequence[Resource] = role.resources(context_of(role, inventory, subject, host))
    return found


def host_of(inventory: Inventory, subject: Subject) -> ModelHost:
    if subject.kind == "hypervisor":
        cards = inventory.hypervisors[subject.name].cards
        state = hypervisor_state(cards={each.address: each.id or "10de:2204" for each in cards.values()})
    else:
        state = guest_state()
    state.brings = {**state.brings, "cron": ("cron.service",)}
    return ModelHost(f"{subject.name}/ssh", state)


def _cases() -> list[tuple[Path, ModuleType, str, str]]:
    found: list[tuple[Path, ModuleType, str, str]] = []
    for path in INVENTORIES:
        inventory = load(path)
        for subject in (*select(inventory, "hypervisors"), *select(inventory, "nodes")):
            found += [
                (path, role, subject.kind, subject.name)
                for role in ROLES
                if role.declared(inventory, subject)
            ]
    return found


CASES = _cases()


def name_of(value: object) -> str:
    if isinstance(value, Path):
        return value.stem
    return value.__name__.rpartition(".")[2] if isinstance(value, ModuleType) else str(value)


@pytest.mark.parametrize(("path", "role", "kind", "name"), CASES, ids=name_of)
def test_the_role_converges_and_a_second_run_changes_nothing(
    path: Path, role: ModuleType, kind: str, name: str
) -> None:
    inventory = load(path)
    subject = Subject("hypervisor" if kind == "hypervisor" else "node", name)
    wanted = resources_of(role, inventory, subject, host_of(inventory, subject))
    assert wanted
    assert len({each.key for each in wanted}) == len(wanted)
    host = host_of(inventory, subject)
    assert converge(host, resources_of(role, inventory, subject, host))
    assert not converge(host, resources_of(role, inventory, subject, host))


def test_the_shipped_inventories_are_the_cases() -> None:
    roles = {(path.stem, role.__name__.rpartition(".")[2]) for path, role, _, _ in CASES}
    assert {
        ("homelab", "hypervisor_host"),
        ("homelab", "base_os"),
        ("lab", "hypervisor_host"),
        ("lab", "base_os"),
        ("lab", "host_resources"),
    } <= roles


def _run(inventory: Inventory, subject: Subject, host: ModelHost, roles: Sequence[ModuleType]) -> None:
    for role in roles:
        if role.declared(inventory, subject):
            converge(host, resources_of(role, inventory, subject, host))


@pytest.mark.parametrize("name", ["homelab", "lab"])
def test_all_of_a_hypervisor_costs_one_boot(name: str) -> None:
    inventory = load(ROOT / "inventories" / f"{name}.yaml")
    subject = Subject("hypervisor", "pve")
    host = host_of(inventory, subject)
    boots = host.state.boots
    _run(inventory, subject, host, ROLES)
    assert host.state.boots == boots + 1


def test_homelab_keeps_the_card_from_its_drivers() -> None:
    inventory = load(ROOT / "inventories/homelab.yaml")
    subject = Subject("hypervisor", "pve")
    host = host_of(inventory, subject)
    drivers: list[str] = []
    host = ModelHost("pve/ssh", host.state, on_reboot=lambda state: drivers.extend(_drivers(state)))
    _run(inventory, subject, host, ROLES)
    words = host.state.cmdline.split()
    assert "nomodeset" in words
    assert "modprobe.blacklist=nouveau,nova,nova_core,nova_drm,nvidiafb" in words
    assert not {"nouveau", "nova_core", "nvidiafb"} & host.state.modules
    assert drivers == ["pcieport", "", "snd_hda_intel"]
    written = host.state.text("/etc/modprobe.d/provision-cards.conf")
    assert "snd_hda_intel" not in written
    assert "vfio" not in written
    for kernel in host.state.kernels:
        assert "nova_core" in host.state.initramfs[kernel]


def _drivers(state: HostState) -> list[str]:
    return [each.driver for each in state.functions]


def test_the_lab_keeps_bochs_off() -> None:
    inventory = load(ROOT / "inventories/lab.yaml")
    subject = Subject("hypervisor", "pve")
    host = host_of(inventory, subject)
    assert _drivers(host.state) == ["pcieport", "bochs_drm"]
    _run(inventory, subject, host, ROLES)
    assert _drivers(host.state) == ["pcieport", ""]
    assert "modprobe.blacklist=bochs_drm" in host.state.cmdline.split()


def _everything(inventory: Inventory, subject: Subject, host: ModelHost) -> list[Resource]:
    found: list[Resource] = []
    for role in ROLES:
        if role.declared(inventory, subject):
            found += resources_of(role, inventory, subject, host)
    return found


Vandal = Callable[[HostState], object]


def _stop(unit: str) -> Vandal:
    def do(state: HostState) -> None:
        state.units[unit] = ModelUnit(active=False, file="disabled")

    return do


VANDALS: tuple[tuple[str, str, Vandal], ...] = (
    ("content", "file:/etc/site/purpose", lambda s: setattr(s.files["/etc/site/purpose"], "content", b"x")),
    ("mode", "file:/etc/site/purpose", lambda s: setattr(s.files["/etc/site/purpose"], "mode", "0777")),
    ("owner", "file:/etc/site/purpose", lambda s: setattr(s.files["/etc/site/purpose"], "owner", "adm")),
    ("removed", "file:/etc/site/purpose", lambda s: s.files.pop("/etc/site/purpose")),
    ("line", "file-line:/etc/hosts: 198.18.0.5 pve", lambda s: _without_line(s, "/etc/hosts", "198.18.0.5")),
    ("package", "package:cron", lambda s: s.packages.pop("cron")),
    ("stopped", "service:cron.service", _stop("cron.service")),
    (
        "sysctl",
        "sysctl:net.ipv4.ip_forward",
        lambda s: s.sysctls.update({"/proc/sys/net/ipv4/ip_forward": "0"}),
    ),
    ("module", "kernel-module:overlay", lambda s: s.modules.discard("overlay")),
    ("command", "command:first setup", lambda s: s.files.pop("/var/lib/site-setup.done")),
    ("hostname", "hostname:hostname", lambda s: setattr(s, "hostname", "other")),
    ("swap", "swap:swap", lambda s: setattr(s, "swaps", ("/dev/vdb",))),
    ("time", "time-sync:time-sync", lambda s: s.files.pop("/etc/chrony/sources.d/provision.sources")),
    ("zone", "timezone:timezone", lambda s: setattr(s.files["/etc/timezone"], "content", b"UTC\n")),
)


def _without_line(state: HostState, path: str, word: str) -> None:
    file = state.files[path]
    file.content = b"".join(
        line for line in file.content.splitlines(keepends=True) if not line.startswith(word.encode())
    )


@pytest.mark.parametrize(("what", "key", "vandal"), VANDALS, ids=[each[0] for each in VANDALS])
def test_damage_appears_by_name_and_alone(what: str, key: str, vandal: Vandal) -> None:
    del what
    inventory = load(ROOT / "inventories/lab.yaml")
    subject = Subject("node", "vm-1")
    host = host_of(inventory, subject)
    _run(inventory, subject, host, ROLES)
    wanted = _everything(inventory, subject, host)
    trips = host.round_trips
    assert differing(host, wanted) == []
    assert host.round_trips == trips + 1
    vandal(host.state)
    host.state.check()
    assert [str(each.key) for each in differing(host, wanted)] == [f"vm-1/ssh:{key}"]
    converge(host, wanted)
    assert differing(host, wanted) == []


def test_what_is_destroyed_with_its_host_leaves_nothing_of_ours() -> None:
    inventory = load(ROOT / "inventories/lab.yaml")
    subject = Subject("hypervisor", "pve")
    host = host_of(inventory, subject)
    _run(inventory, subject, host, ROLES)
    boots = host.state.boots
    for role in (host_resources, hypervisor_host):
        converge(host, role.retired(context_of(role, inventory, subject, host)))
    assert [path for path in host.state.files if "provision" in path] == []
    assert "/etc/motd" not in host.state.files
    assert host.state.boots == boots
    assert "nomodeset" not in host.state.boot_line


def test_an_iommu_that_is_off_is_asked_for_and_stays_asked_for() -> None:
    """The lab's processor calls itself AMD under emulation, and its IOMMU is Intel's."""
    inventory = load(ROOT / "inventories/lab.yaml")
    subject = Subject("hypervisor", "pve")
    host = host_of(inventory, subject)
    host.state.iommu = IommuStatus((), 0, cpu="AuthenticAMD", table="DMAR")

    def switch_on(state: HostState) -> None:
        if "intel_iommu=on" in state.cmdline.split():
            state.iommu = IommuStatus(("dmar0",), 9, cpu="AuthenticAMD", table="DMAR")

    host = ModelHost("pve/ssh", host.state, on_reboot=switch_on)
    converge(host, resources_of(hypervisor_host, inventory, subject, host))
    assert host.state.iommu.active
    assert differing(host, resources_of(hypervisor_host, inventory, subject, host)) == []
    assert "intel_iommu=on" in host.state.cmdline.split()


@pytest.mark.parametrize("table", ["DMAR", "IVRS", ""])
def test_an_iommu_that_is_on_is_not_asked_for(table: str) -> None:
    inventory = load(ROOT / "inventories/homelab.yaml")
    subject = Subject("hypervisor", "pve")
    host = host_of(inventory, subject)
    host.state.iommu = IommuStatus(("x",), 9, cpu="GenuineIntel", table=table)
    found = resources_of(hypervisor_host, inventory, subject, host)
    assert all("iommu" not in repr(each) for each in found)
