"""What keeps a host's drivers off its cards is judged by what would bind, whoever wrote it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from provision.api.domains import load_inventory
from provision.connections.contracts import KeyPair
from provision.contracts.remedy import Fix
from provision.contracts.resource import Resource, changes_of, remedy_of
from provision.contracts.role import Context
from provision.contracts.snapshot import Snapshot
from provision.engine.generated import GeneratedValues
from provision.hosts import host_effects
from provision.hosts.queries.modprobe import ModprobeRule
from provision.hosts.resources.pci import PciFunction
from provision.inventory import Subject
from provision.inventory.models.hypervisor import Card
from provision.proxmox.host_drivers import (
    HostDrivers,
    Written,
    bystanders,
    companions,
    host_drivers,
    keeps_off,
)
from provision.proxmox.roles import hypervisor_host
from provision.testing.model_effects import boot, bring_about, next_line
from provision.testing.model_host import HostState, ModelFile, ModelFunction, ModelHost, hypervisor_state
from provision.testing.model_ops import perform
from provision.values.cancel import Cancel
from tests.unit.proxmox.roles.world import INVENTORY, World

GPU = PciFunction("0000:02:00.0", "10de", "2204", "030000")
DRIVERS = frozenset({"nouveau", "nvidiafb"})
CARD = Card(address="0000:02:00")


def rule(text: str, file: str = "/etc/modprobe.d/pve-blacklist.conf") -> ModprobeRule:
    return ModprobeRule(file, tuple(text.split()))


KEPT = [
    ["blacklist nouveau"],
    ["blacklist nvidiafb", "blacklist nouveau"],
    ["install nouveau /bin/false"],
    ["install nouveau /bin/true"],
    ["install nouveau /usr/bin/false"],
    ["install nouveau :"],
    ["options vfio-pci ids=10de:2204,10de:1aef", "softdep nouveau pre: vfio-pci"],
    ["options vfio_pci disable_vga=1 ids=10DE:2204", "softdep nouveau pre: vfio_pci"],
    ["options vfio-pci ids=10de:2204:1458:4043", "softdep nouveau pre: drm vfio-pci post: x"],
    ['options vfio-pci ids="10de:1aef,10de:2204"', "softdep nouveau pre: vfio-pci"],
    ["options vfio-pci ids=10de:ffffffff", "softdep nouveau pre: vfio-pci"],
    [
        "options vfio-pci ids=10de:ffffffff:ffffffff:ffffffff:00030000:ffff00ff",
        "softdep nouveau pre: vfio-pci",
    ],
]
NOT_KEPT: list[list[str]] = [
    [],
    ["blacklist nvidiafb"],
    ["blacklist nouveau_something"],
    ["install nouveau /sbin/modprobe --ignore-install nouveau"],
    ["install nouveau"],
    ["options nouveau modeset=0"],
    ["options vfio-pci ids=10de:2204"],  # nouveau may be first
    ["softdep nouveau pre: vfio-pci"],  # vfio-pci takes no card without ids
    ["options vfio-pci ids=10de:1aef", "softdep nouveau pre: vfio-pci"],  # another function
    ["options vfio-pci ids=10de:2204", "softdep nouveau post: vfio-pci"],
    [
        "options vfio-pci ids=10de:ffffffff:ffffffff:ffffffff:00040300:ffffff00",
        "softdep nouveau pre: vfio-pci",
    ],
    ["options vfio-pci ids=10de:2204", "softdep nvidiafb pre: vfio-pci"],
]


@pytest.mark.parametrize("rules", KEPT, ids=str)
def test_a_driver_that_would_not_bind_is_kept_off(rules: list[str]) -> None:
    assert keeps_off(map(rule, rules), GPU, "nouveau")


@pytest.mark.parametrize("rules", NOT_KEPT, ids=str)
def test_a_driver_that_would_bind_is_not_kept_off(rules: list[str]) -> None:
    assert not keeps_off(map(rule, rules), GPU, "nouveau")


def test_a_driver_override_keeps_every_other_driver_off() -> None:
    assert keeps_off((), replace(GPU, override="vfio-pci"), "nouveau")
    assert not keeps_off((), replace(GPU, override="nouveau"), "nouveau")


BOTH = ["blacklist nouveau", "blacklist nvidiafb"]


@pytest.mark.parametrize(
    ("rules", "driver", "written", "modules"),
    [
        ([], "", (), ("nouveau", "nvidiafb")),
        (BOTH, "", (), ()),
        (BOTH[:1], "", (), ("nvidiafb",)),
        (BOTH, "vfio-pci", (), ()),
        (BOTH, "nouveau", (), ("nouveau", "nvidiafb")),  # bound all the same: not effective
        (BOTH, "", ("nouveau",), ("nouveau",)),  # what we wrote stays
        ([], "", ("nouveau",), ("nouveau", "nvidiafb")),
    ],
)
def test_only_what_nobody_keeps_off_is_left_to_do(
    rules: list[str], driver: str, written: tuple[str, ...], modules: tuple[str, ...]
) -> None:
    function = replace(GPU, driver=driver)
    own = Written(frozenset(written))
    found = host_drivers({"gpu": CARD}, {"gpu": DRIVERS}, [function], list(map(rule, rules)), own)
    assert found == HostDrivers(modules, (), bound=driver == "nouveau")


# ---------------------------------------------------------------- cards that the host keeps

T400 = [
    PciFunction("0000:17:00.0", "10de", "1ff2", "030000", "nvidia", "17"),
    PciFunction("0000:17:00.1", "10de", "10fa", "040300", "snd_hda_intel", "17"),
    PciFunction("0000:65:00.0", "10de", "1ff2", "030000", "nvidia", "65"),
    PciFunction("0000:65:00.1", "10de", "10fa", "040300", "snd_hda_intel", "65"),
]
NVIDIA = frozenset({"nvidia", "nvidia_drm", "nouveau"})


def test_an_identical_card_that_stays_with_the_host_keeps_its_driver() -> None:
    cards = {"one": Card(address="0000:17:00")}
    found = host_drivers(cards, {"one": NVIDIA}, T400, (), Written())
    assert found == HostDrivers((), ("0000:17:00.0",), bound=True)
    assert bystanders(cards, T400, found.modules) == ()


@pytest.mark.parametrize(
    ("driver", "module", "needed"),
    [
        ("bochs-drm", "bochs", "bochs"),
        ("bochs-drm", "", "bochs_drm"),  # built in
        ("nvidia-gpu", "i2c_nvidia_gpu", "i2c_nvidia_gpu"),
        ("xe", "xe", "xe"),
        ("snd_hda_intel", "snd-hda-intel", "snd_hda_intel"),
    ],
)
def test_a_driver_may_have_another_name_than_its_module(driver: str, module: str, needed: str) -> None:
    twins = [
        PciFunction(f"0000:{bus}:00.0", "1234", "1111", "030000", driver, module=module)
        for bus in ("02", "03")
    ]
    cards = {"one": Card(address="0000:02:00")}
    found = host_drivers(cards, {"one": frozenset({needed})}, twins, (), Written())
    assert (found.modules, found.by_slot) == ((), ("0000:02:00.0",))
    assert bystanders(cards, twins, (needed,)) == (f"0000:03:00.0 [1234:1111] {driver}",)


def test_a_card_given_by_slot_stays_so_while_its_twin_has_no_driver() -> None:
    functions = [replace(function, driver="") for function in T400]
    written = Written(by_slot=frozenset({"0000:17:00.0"}))
    found = host_drivers({"one": Card(address="0000:17:00")}, {"one": NVIDIA}, functions, (), written)
    assert (found.modules, found.by_slot) == ((), ("0000:17:00.0",))


def test_a_lost_script_is_missed_while_the_host_s_card_has_no_driver() -> None:
    given = replace(GPU, override="vfio-pci")
    twin = replace(GPU, address="0000:03:00.0")  # `nomodeset` keeps its driver from it
    needs = host_drivers({"a": CARD}, {"a": DRIVERS}, [given, twin], (), Written())
    assert (needs.modules, needs.by_slot) == ((), ("0000:02:00.0",))
    alone = host_drivers({"a": CARD}, {"a": DRIVERS}, [given], (), Written())
    assert (alone.modules, alone.by_slot) == ((), ())


def test_both_of_two_declared_cards_are_kept_from_their_driver_as_a_kind() -> None:
    cards = {"one": Card(address="0000:17:00"), "two": Card(address="0000:65:00")}
    found = host_drivers(cards, {"one": NVIDIA, "two": NVIDIA}, T400, (), Written())
    assert (found.modules, found.by_slot) == (("nouveau", "nvidia", "nvidia_drm"), ())


def test_devices_that_lose_their_driver_are_named_with_it() -> None:
    onboard = PciFunction("0000:00:1f.3", "8086", "a348", "040300", "snd_hda_intel")
    cards = {"one": Card(address="0000:17:00")}
    lost = bystanders(cards, [*T400, onboard], ("nouveau", "snd-hda-intel"))
    assert lost == ("0000:65:00.1 [10de:10fa] snd_hda_intel", "0000:00:1f.3 [8086:a348] snd_hda_intel")


IGPU = [
    PciFunction("0000:11:00.0", "1002", "164e", "030000", "amdgpu", "25"),
    PciFunction("0000:11:00.1", "1002", "1640", "040300", "snd_hda_intel", "26"),
    PciFunction("0000:11:00.2", "1022", "1649", "108000", "ccp", "27"),
    PciFunction("0000:11:00.3", "1022", "15b6", "0c0330", "xhci_hcd", "28"),
    PciFunction("0000:11:00.4", "1022", "15b7", "0c0330", "xhci_hcd", "29"),
    PciFunction("0000:11:00.6", "1022", "15e3", "040300", "snd_hda_intel", "30"),
]
HOSTS = [
    "0000:11:00.2 [1022:1649] ccp",
    "0000:11:00.3 [1022:15b6] xhci_hcd",
    "0000:11:00.4 [1022:15b7] xhci_hcd",
    "0000:11:00.6 [1022:15e3] snd_hda_intel",
]
RTX2080 = [
    PciFunction(f"0000:01:00.{number}", "10de", device, cls, driver)
    for number, (device, cls, driver) in enumerate(
        [
            ("1e82", "030000", "nouveau"),
            ("10f8", "040300", "snd_hda_intel"),
            ("1ad8", "0c0330", "xhci_hcd"),
            ("1ad9", "0c8000", "nvidia-gpu"),
        ]
    )
]
NIC = [PciFunction(f"0000:04:00.{number}", "8086", "1528", "020000", "ixgbe") for number in (0, 1)]


@pytest.mark.parametrize(
    ("functions", "card", "expected"),
    [
        (IGPU, Card(address="0000:11:00"), HOSTS),
        (IGPU, Card(address="0000:11:00", functions=(0, 1)), []),
        (IGPU, Card(address="0000:11:00", functions=(0, 1, 3)), HOSTS[1:2]),
        ([replace(each, driver="vfio-pci") for each in IGPU], Card(address="0000:11:00"), []),
        ([replace(each, driver="") for each in IGPU], Card(address="0000:11:00"), []),
        (RTX2080, Card(address="0000:01:00"), []),
        (T400, Card(address="0000:65:00"), []),
        (NIC, Card(address="0000:04:00"), [f"0000:04:00.{number} [8086:1528] ixgbe" for number in (0, 1)]),
        (NIC, Card(address="0000:04:00", functions=(1,)), ["0000:04:00.1 [8086:1528] ixgbe"]),
        ([], Card(address="0000:04:00"), []),
    ],
)
def test_what_goes_along_with_a_card_is_named_with_its_driver(
    functions: list[PciFunction], card: Card, expected: list[str]
) -> None:
    assert list(companions(card, functions)) == expected


# ---------------------------------------------------------------- the role on whole hosts


class Keys(GeneratedValues):
    def __init__(self) -> None:
        super().__init__(lambda: KeyPair.__new__(KeyPair))


def planned(folder: Path, state: HostState, text: str = INVENTORY) -> tuple[list[Resource], Snapshot]:
    """Return what the role wants of a host, and the answers."""
    World(folder).write(text)
    inventory = load_inventory(folder / "site.yaml")
    subject, host = Subject("hypervisor", "pve"), ModelHost("pve/ssh", state)
    asked = frozenset(hypervisor_host.questions(inventory, subject)["pve/ssh"])
    seen = {"pve/ssh": host.answer(asked, Cancel())}
    resources = list(hypervisor_host.resources(Context(inventory, subject, seen, Keys())))
    queries = asked.union(*(resource.queries() for resource in resources))
    return resources, host.answer(queries, Cancel())


def differing(resources: list[Resource], snapshot: Snapshot) -> dict[str, Fix]:
    fixes = {each.key.kind: remedy_of(each, snapshot) for each in resources if changes_of(each, snapshot)}
    return {kind: fix for kind, fix in fixes.items() if isinstance(fix, Fix)}


BY_HAND = ["nova_core", "nova_drm", "nova", "nouveau", "nvidiafb"]


def test_a_homelab_as_built_by_hand_needs_nothing_and_no_reboot(tmp_path: Path) -> None:
    state = hypervisor_state(loader="systemd-boot")
    text = "".join(f"blacklist {module}\n" for module in BY_HAND)
    state.files["/etc/modprobe.d/pve-blacklist.conf"] = ModelFile(text.encode())
    line = "root=ZFS=rpool/ROOT/pve-1 boot=zfs nomodeset modprobe.blacklist=nova_core,nova_drm,nova,nouveau"
    state.files["/etc/kernel/cmdline"] = ModelFile(f"{line}\n".encode())
    state.initramfs = dict.fromkeys(state.kernels, frozenset(BY_HAND))
    state.boot_line = next_line(state)
    boot(state)
    assert differing(*planned(tmp_path, state)) == {}


def test_what_is_missing_by_hand_is_written_without_a_reboot_of_its_own(tmp_path: Path) -> None:
    state = hypervisor_state(loader="systemd-boot")
    state.files["/etc/modprobe.d/mine.conf"] = ModelFile(b"blacklist nouveau\nblacklist nvidiafb\n")
    state.files["/etc/kernel/cmdline"] = ModelFile(b"root=ZFS=rpool/ROOT/pve-1 boot=zfs nomodeset\n")
    state.initramfs = dict.fromkeys(state.kernels, frozenset({"nouveau", "nvidiafb", "nova_core"}))
    state.boot_line = next_line(state)
    boot(state)
    fixes = differing(*planned(tmp_path, state))
    assert list(fixes) == ["modprobe-blacklist"]
    assert [effect.cls for effect in fixes["modprobe-blacklist"].effects] == [host_effects.INITRAMFS]


def test_a_twin_of_the_host_keeps_its_driver_through_the_reboot(tmp_path: Path) -> None:
    state = hypervisor_state(cards={"0000:02:00": "10de:2204", "0000:65:00": "10de:2204"})
    resources, snapshot = planned(tmp_path, state)
    fixes = differing(resources, snapshot)
    assert not any(fix.risks for fix in fixes.values())
    (script,) = [each for each in resources if each.key.name.endswith("init-top/provision-cards")]
    assert b"for f in 0000:02:00.0; do" in getattr(script, "content", b"")
    for fix in fixes.values():
        for operation in fix.ops:
            perform(state, operation)
    for effect in dict.fromkeys(effect for fix in fixes.values() for effect in fix.effects):
        boot(state) if effect.cls.reboots else bring_about(state, effect)
    drivers = {function.pci.address: function.driver for function in state.functions}
    assert drivers["0000:02:00.0"] == ""
    assert drivers["0000:65:00.0"] == "nouveau"
    assert differing(*planned(tmp_path, state)) == {}


def test_a_device_that_loses_its_driver_is_a_risk_of_the_change(tmp_path: Path) -> None:
    state = hypervisor_state()
    onboard = PciFunction("0000:00:1f.3", "8086", "a348", "040300", group="9")
    state.functions.append(ModelFunction(onboard, ("snd_hda_intel",), "snd_hda_intel"))
    state.modules.add("snd_hda_intel")
    text = INVENTORY.replace("    cards:", "    blacklist_extra: [snd_hda_intel]\n    cards:")
    fixes = differing(*planned(tmp_path, state, text))
    risks = {f"{risk.cls} {risk.target}" for risk in fixes["modprobe-blacklist"].risks}
    assert risks == {"device-loss 0000:00:1f.3 [8086:a348] snd_hda_intel"}
