"""The kernel command line: lists united, nothing twice, root= never lost, no reboot without need."""

from __future__ import annotations

import pytest

from provision.contracts.change import Settles
from provision.contracts.driver import Action, Verdict
from provision.contracts.effect import Effect
from provision.contracts.remedy import Fix, Impossible
from provision.hosts import host_effects
from provision.hosts.queries.boot_line import GRUB_DROP_IN
from provision.hosts.resources.kernel import KERNEL_CMDLINE, KernelArguments
from provision.hosts.resources.next_line import ADDED
from provision.inventory.kernel_line import parse
from provision.testing.host_cases import GRUB_CASES
from provision.testing.model_effects import next_line
from provision.testing.model_host import ModelFile, ModelHost, hypervisor_state
from provision.values.cancel import Cancel
from tests.unit.hosts.converge import converge, differing, killed_everywhere, quiet, snapshot_of
from tests.unit.inventory.test_kernel_line import WRITTEN

S = "pve/ssh"
REBOOT = Effect(host_effects.REBOOT_HYPERVISOR)


@pytest.mark.parametrize(("grub", "desired", "expected"), GRUB_CASES)
def test_grub_drop_in_adds_what_is_missing(grub: str, desired: tuple[str, ...], expected: str) -> None:
    state = hypervisor_state()
    state.grub = grub
    content = KernelArguments(S, desired, "grub", REBOOT).file.content
    assert content is not None
    state.files[GRUB_DROP_IN] = ModelFile(content)
    assert parse(next_line(state).split("ro ", 1)[1]) == parse(expected.replace("'", '"'))


def test_active_arguments_need_no_reboot() -> None:
    state = hypervisor_state()
    state.cmdline += " nomodeset"
    desired = KernelArguments(S, ("nomodeset",), "grub", REBOOT)
    snapshot = snapshot_of(ModelHost(S, state), [desired])
    assert [change.path for change in desired.changes(snapshot)] == ["at boot"]
    fix = desired.fix(snapshot)
    assert isinstance(fix, Fix)
    assert [effect.cls for effect in fix.effects] == [host_effects.BOOT_LOADER]


def test_inactive_arguments_settle_after_the_reboot() -> None:
    desired = KernelArguments(S, ("nomodeset",), "grub", REBOOT)
    changes = desired.changes(snapshot_of(ModelHost(S, hypervisor_state()), [desired]))
    assert [(change.path, change.settles) for change in changes] == [
        ("at boot", Settles.NOW),
        ("active", Settles.AFTER_EFFECT),
    ]


def test_a_line_without_root_is_refused() -> None:
    state = hypervisor_state(loader="systemd-boot")
    state.files["/etc/kernel/cmdline"] = ModelFile(b"boot=zfs\n")
    desired = KernelArguments(S, ("nomodeset",), "systemd-boot", REBOOT)
    remedy = desired.fix(snapshot_of(ModelHost(S, state), [desired]))
    assert isinstance(remedy, Impossible)
    assert remedy.diagnostic.code == "KERNEL_CMDLINE_NO_ROOT"


def test_a_missing_line_is_refused() -> None:
    state = hypervisor_state(loader="systemd-boot")
    del state.files["/etc/kernel/cmdline"]
    desired = KernelArguments(S, ("nomodeset",), "systemd-boot", REBOOT)
    assert isinstance(desired.fix(snapshot_of(ModelHost(S, state), [desired])), Impossible)


def test_systemd_boot_keeps_root_and_boot_and_a_copy() -> None:
    host = ModelHost(S, hypervisor_state(loader="systemd-boot"))
    converge(host, [KernelArguments(S, ("nomodeset", "modprobe.blacklist=a"), "systemd-boot", REBOOT)])
    line = "root=ZFS=rpool/ROOT/pve-1 boot=zfs nomodeset modprobe.blacklist=a\n"
    assert host.state.text("/etc/kernel/cmdline") == line
    copies = [path for path in host.state.files if path.startswith("/etc/kernel/cmdline.provision-")]
    assert [host.state.text(path) for path in copies] == ["root=ZFS=rpool/ROOT/pve-1 boot=zfs\n"]


@pytest.mark.parametrize("loader", ["grub", "systemd-boot"])
def test_retired_arguments_leave_the_next_boot_alone(loader: str) -> None:
    host = ModelHost(S, hypervisor_state(loader=loader))
    before = host.state.boot_line
    desired = KernelArguments(S, ("nomodeset", "modprobe.blacklist=a"), loader, REBOOT)
    converge(host, [desired])
    gone = KernelArguments(S, desired.arguments, loader, REBOOT, absent=True)
    boots = host.state.boots
    converge(host, [gone])
    assert host.state.boot_line == before
    assert host.state.boots == boots
    assert differing(host, [gone]) == []


def _desired(loader: str, *arguments: str) -> KernelArguments:
    return KernelArguments(S, arguments, loader, REBOOT)


@pytest.mark.parametrize("loader", ["grub", "systemd-boot"])
def test_an_argument_that_is_not_declared_any_more_is_removed(loader: str) -> None:
    host = ModelHost(S, hypervisor_state(loader=loader))
    before = host.state.boot_line
    converge(host, [_desired(loader, "pci=noaer", "nomodeset", "modprobe.blacklist=a,b")])
    converge(host, [_desired(loader, "nomodeset", "modprobe.blacklist=b")])
    assert host.state.boot_line == f"{before} nomodeset modprobe.blacklist=b"
    converge(host, [_desired(loader)])
    assert host.state.boot_line == before
    assert ADDED.path not in host.state.files


def test_arguments_of_others_stay() -> None:
    state = hypervisor_state(loader="systemd-boot")
    state.files[KERNEL_CMDLINE] = ModelFile(b"root=x quiet nomodeset modprobe.blacklist=a caf\xe9\n")
    host = ModelHost(S, state)
    converge(host, [_desired("systemd-boot", "nomodeset", "modprobe.blacklist=a,b", "iommu=pt")])
    converge(host, [_desired("systemd-boot")])
    assert (
        host.state.files[KERNEL_CMDLINE].content == b"root=x quiet nomodeset modprobe.blacklist=a caf\xe9\n"
    )


def test_removed_arguments_are_removed_after_a_kill_anywhere() -> None:
    def make() -> ModelHost:
        host = ModelHost(S, hypervisor_state(loader="systemd-boot"))
        converge(host, [_desired("systemd-boot", "pci=noaer", "modprobe.blacklist=a")])
        host.boundaries = 0
        return host

    after = [_desired("systemd-boot", "nomodeset", "modprobe.blacklist=b")]
    assert killed_everywhere(make, lambda _host: after) > 2


def test_a_line_changed_after_it_was_read_is_not_overwritten() -> None:
    host = ModelHost(S, hypervisor_state(loader="systemd-boot"))
    desired = _desired("systemd-boot", "nomodeset")
    fix = desired.fix(snapshot_of(host, [desired]))
    assert isinstance(fix, Fix)
    host.state.files[KERNEL_CMDLINE] = ModelFile(b"root=ZFS=other boot=zfs\n")
    (result,) = host.act("run", [Action(desired.key, "arguments", fix)], [], quiet, Cancel())
    assert result.verdict == Verdict.FAILED
    assert "run the command again" in result.output[0]
    assert host.state.text(KERNEL_CMDLINE) == "root=ZFS=other boot=zfs\n"


def test_no_known_loader_is_refused() -> None:
    state = hypervisor_state()
    state.loader = "none"
    desired = KernelArguments(S, ("nomodeset",), "none", REBOOT)
    remedy = desired.fix(snapshot_of(ModelHost(S, state), [desired]))
    assert isinstance(remedy, Impossible)
    assert remedy.diagnostic.code == "BOOT_LOADER_UNKNOWN"


@pytest.mark.parametrize("argument", ["", "a b", "a'b", 'a"b', "a\nb", "a\\b", "caf\xe9"])
def test_arguments_that_no_boot_loader_passes_on_are_refused(argument: str) -> None:
    with pytest.raises(ValueError, match="not a kernel argument"):
        KernelArguments(S, (argument,), "grub", REBOOT)


def test_two_roles_arguments_unite() -> None:
    one = KernelArguments(S, ("nomodeset", "modprobe.blacklist=a"), "grub", REBOOT)
    other = KernelArguments(S, ("iommu=pt", "modprobe.blacklist=b"), "grub", REBOOT)
    merged = one.merge(other)
    assert merged is not None
    assert merged.arguments == ("nomodeset", "modprobe.blacklist=a,b", "iommu=pt")
    assert one.merge(KernelArguments(S, (), "systemd-boot", REBOOT)) is None


@pytest.mark.parametrize("loader", ["grub", "systemd-boot"])
@pytest.mark.parametrize("argument", WRITTEN)
def test_an_argument_of_any_shape_is_written_once_and_removed(loader: str, argument: str) -> None:
    host = ModelHost(S, hypervisor_state(loader=loader))
    before = host.state.boot_line
    converge(host, [_desired(loader, argument, "quiet2")])
    assert parse(host.state.cmdline)[-2:] == parse(f"{argument} quiet2")
    assert differing(host, [_desired(loader, argument, "quiet2")]) == []
    converge(host, [_desired(loader)])
    assert host.state.boot_line == before


def test_arguments_in_another_spelling_need_nothing() -> None:
    state = hypervisor_state(loader="systemd-boot")
    line = (
        'root=x ro kvm_intel.nested=1 vfio_pci.ids=15b3:1003 "dyndbg=file vfio* +p" intel_iommu=on,igfx_off'
    )
    state.files[KERNEL_CMDLINE] = ModelFile(f"{line}\n".encode())
    state.cmdline = state.boot_line = line
    desired = ("kvm-intel.nested=1", "vfio-pci.ids=15b3:1003", 'dyndbg="file vfio* +p"', "intel_iommu=on")
    assert differing(ModelHost(S, state), [_desired("systemd-boot", *desired)]) == []


def test_two_roles_quoted_arguments_stay_whole() -> None:
    one = _desired("grub", 'acpi_osi="!Windows 2015"', "hugepagesz=1G", "hugepages=4")
    merged = one.merge(_desired("grub", "hugepagesz=2M", "hugepages=4"))
    assert merged is not None
    assert merged.arguments == (*one.arguments, "hugepagesz=2M", "hugepages=4")
