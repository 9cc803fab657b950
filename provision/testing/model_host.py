"""ModelHost: a driver over a host in memory, for tests of resources, roles and the engine.

It answers the queries that real hosts answer through shell fragments, and performs the operations that
fixes are rendered from. The same case tables run through real shells, which keeps it honest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from provision.contracts.driver import Action, Emit, Result, Verdict
from provision.contracts.effect import Effect, EffectClass
from provision.contracts.query import Unknown
from provision.contracts.remedy import Fix
from provision.contracts.snapshot import Pending, Snapshot
from provision.hosts import host_effects
from provision.hosts.operations.basic import sysctl_file
from provision.hosts.operations.notes import notes_of
from provision.hosts.resources.filesystem import RootStatus
from provision.hosts.resources.pci import IommuStatus, PciFunction
from provision.testing.model_answers import ANSWERS
from provision.testing.model_effects import boot, bring_about, next_line
from provision.testing.model_ops import perform
from provision.testing.model_state import (
    GIB,
    HostState,
    ImpossibleStateError,
    ModelFile,
    ModelFunction,
    ModelUnit,
    OperationFailedError,
)
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic

__all__ = [
    "HostState",
    "ImpossibleStateError",
    "KilledError",
    "ModelFile",
    "ModelFunction",
    "ModelHost",
    "ModelUnit",
    "guest_state",
    "hypervisor_state",
]


_REBUILDS = (host_effects.INITRAMFS, host_effects.BOOT_LOADER)


class KilledError(Exception):
    """The controller was killed here (see `ModelHost.kill_after`)."""


class ModelHost:
    """A host in memory; implements `Driver`.

    Args:
        system: name in keys (`pve/ssh`).
        state: the host; `guest_state()` when left out.
        on_reboot: called after each boot, for tests that watch.
        on_script: performs fixes that have no operations, from their shell text.
        performs: performs effects of classes that other domains declare.
    """

    def __init__(
        self,
        system: str,
        state: HostState | None = None,
        on_reboot: Callable[[HostState], None] | None = None,
        on_script: Callable[[HostState, str], None] | None = None,
        performs: Mapping[EffectClass, Callable[[HostState], None]] | None = None,
    ) -> None:
        self.system = system
        self.state = state if state is not None else guest_state()
        self.state.check()
        self.boundaries = 0
        self.log: list[str] = []
        self._trips = 0
        self._kill_at: int | None = None
        self._run = ""
        self._on_reboot = on_reboot
        self._on_script = on_script
        self._performs = performs or {}
        self.answers: dict[type[Any], Callable[[HostState, Any], object]] = dict(ANSWERS)

    @property
    def round_trips(self) -> int:
        """Executions so far."""
        return self._trips

    def close(self) -> None:
        """Nothing to release."""

    def dump(self) -> dict[str, object]:
        """Return the state as plain data, without what may differ between two runs to one end."""
        self._prune()
        return self.state.dump()

    def kill_after(self, boundaries: int | None) -> None:
        """Raise KilledError at the n-th boundary from now on; None lives on.

        Boundaries lie before and after each marker, operation, effect, marker's removal and reboot.
        """
        self.boundaries = 0
        self._kill_at = boundaries

    def _boundary(self, what: str) -> None:
        self.log.append(what)
        self.boundaries += 1
        if self._kill_at is not None and self.boundaries >= self._kill_at:
            self._kill_at = None
            raise KilledError(f"killed at boundary {self.boundaries}: {what}")

    # ------------------------------------------------------------ Driver

    def answer(self, queries: frozenset[Any], cancel: Cancel) -> Snapshot:
        """Answer everything at once; a query of an unknown kind is Unknown."""
        del cancel
        self._trips += 1
        state = self.state
        answers: dict[Any, object] = {}
        for query in queries:
            how = self.answers.get(type(query))
            answers[query] = Unknown(f"ModelHost knows no {query.kind}") if how is None else how(state, query)
        pending = tuple(owed for owed in state.pending.values() if not self._satisfied(owed))
        return Snapshot(self.system, state.boot_id, answers, pending, clock=1.0, skew=state.skew)

    def act(
        self, run: str, actions: Sequence[Action], effects: Sequence[Effect], emit: Emit, cancel: Cancel
    ) -> list[Result]:
        """Do operations in order, then effects; the first failure ends it."""
        del cancel
        self._trips += 1
        self._run = run
        self._boundary("before the script")
        self._prune()
        results: list[Result] = []
        for note in notes_of(actions[1:]):
            perform(self.state, note)
        for label, step in [
            *((action.label, self._action(action, emit)) for action in actions),
            *((str(effect), self._effect(effect)) for effect in effects),
        ]:
            if results and results[-1].verdict != Verdict.DONE:
                results.append(Result(Verdict.NOT_BEGUN))
                continue
            try:
                step()
            except OperationFailedError as error:
                failed = Diagnostic("FIX_FAILED", f"{self.system}: {label} failed", evidence=(str(error),))
                results.append(Result(Verdict.FAILED, diagnostic=failed, output=(str(error),)))
            else:
                results.append(Result(Verdict.DONE))
        self.state.check()
        return results

    def reboot(self, effect: Effect, emit: Emit, cancel: Cancel) -> str:
        """Boot again and return the new boot id."""
        del cancel
        self._trips += 1
        self._mark((effect,))
        self._boundary("before the reboot")
        emit("rebooting")
        boot(self.state)
        self.state.check()
        if self._on_reboot is not None:
            self._on_reboot(self.state)
        self._boundary("after the reboot")
        return self.state.boot_id

    # ------------------------------------------------------------ steps

    def _satisfied(self, owed: Pending) -> bool:
        """Whether another boot did it; a reboot after which a rebuild is still owed did not."""
        if owed.boot_id == self.state.boot_id or owed.effect.cls in _REBUILDS:
            return False
        rebuild = any(effect.cls in _REBUILDS for effect in self.state.pending)
        return not (owed.effect.cls.reboots and rebuild)

    def _prune(self) -> None:
        pending = self.state.pending
        self.state.pending = {effect: owed for effect, owed in pending.items() if not self._satisfied(owed)}

    def _mark(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            self.state.pending[effect] = Pending(effect, self.state.boot_id, self._run)

    def _action(self, action: Action, emit: Emit) -> Callable[[], None]:
        def do() -> None:
            fix = action.remedy
            if not isinstance(fix, Fix):
                raise TypeError(f"{action.label}: a host runs fixes, no API calls")
            opaque = not fix.ops and fix.script != ":"
            if opaque and self._on_script is None:
                raise TypeError(f"{action.label}: this fix has no operations that ModelHost could do")
            emit(action.label)
            self._mark(tuple(dict.fromkeys((*action.effects, *fix.effects))))
            self._boundary(f"{action.label}: markers written")
            for op in fix.ops:
                perform(self.state, op)
                self._boundary(f"{action.label}: {type(op).__name__} done")
            if opaque and self._on_script is not None:
                self._on_script(self.state, fix.script)
                self._boundary(f"{action.label}: script done")

        return do

    def _effect(self, effect: Effect) -> Callable[[], None]:
        def do() -> None:
            if effect.cls in self._performs:
                self._performs[effect.cls](self.state)
            else:
                bring_about(self.state, effect)
            if effect.cls in _REBUILDS:
                self._mark([pending for pending in self.state.pending if pending.cls.reboots])
            self._boundary(f"{effect}: done")
            self.state.pending.pop(effect, None)
            self._boundary(f"{effect}: marker removed")

        return do


# ---------------------------------------------------------------- ready-made hosts

_ZONES = ("Etc/UTC", "UTC", "Europe/Berlin", "America/New_York")
_SYSCTLS = {
    "net.ipv4.ip_forward": "0",
    "net.bridge.bridge-nf-call-iptables": "0",
    "vm.swappiness": "60",
    "vm.max_map_count": "65530",
    "kernel.panic": "0",
    "fs.inotify.max_user_instances": "128",
    "fs.inotify.max_user_watches": "8192",
}


def guest_state(name: str = "localhost", *, lvm: bool = False, disk_gib: int = 10) -> HostState:
    """Return a freshly booted Debian guest whose root fills a third of its disk.

    Args:
        name: present host name.
        lvm: root on a logical volume.
        disk_gib: size of the disk in GiB.
    """
    files = {
        "/etc/hostname": ModelFile(f"{name}\n".encode()),
        "/etc/hosts": ModelFile(b"127.0.0.1 localhost\n127.0.1.1 localhost\n"),
        "/etc/fstab": ModelFile(b"/dev/vda1 / ext4 defaults 0 1\n/dev/vdb none swap sw 0 0\n"),
        "/etc/os-release": ModelFile(b'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12"\n'),
        "/etc/timezone": ModelFile(b"UTC\n"),
        "/etc/localtime": ModelFile(mode="0777", type="link", target="/usr/share/zoneinfo/UTC"),
        "/etc/ssh/ssh_host_ed25519_key": ModelFile(b"private\n", "0600"),
        "/etc/ssh/ssh_host_ed25519_key.pub": ModelFile(b"ssh-ed25519 AAAAold root@image\n"),
        "/etc/ssh/ssh_host_rsa_key": ModelFile(b"private\n", "0600"),
        "/etc/ssh/ssh_host_rsa_key.pub": ModelFile(b"ssh-rsa AAAArsa root@image\n"),
    }
    files |= {f"/usr/share/zoneinfo/{zone}": ModelFile(b"TZif2") for zone in _ZONES}
    sysctls = {sysctl_file(key): value for key, value in _SYSCTLS.items()}
    disk, third = disk_gib * GIB, disk_gib * GIB // 3
    device = "/dev/mapper/vg-root" if lvm else "/dev/vda1"
    root = RootStatus(device, "ext4", device, "vda", 1, size=third, behind_partition=disk - third)
    if lvm:
        root = replace(root, partition=3, volume="/dev/vda3", behind_partition=disk // 3, in_group=third)
    state = HostState(
        files=files,
        packages={"openssh-server": "1:9.2", "systemd": "252", "systemd-timesyncd": "252"},
        conflicts={"chrony": ("systemd-timesyncd",)},
        brings={"chrony": ("chrony.service",), "qemu-guest-agent": ("qemu-guest-agent.service",)},
        package_files={"containernetworking-plugins": ("/usr/lib/cni/macvlan", "/usr/lib/cni/host-device")},
        units={
            "ssh.service": ModelUnit(config=("/etc/ssh/",)),
            "systemd-timesyncd.service": ModelUnit(config=("/etc/systemd/timesyncd.conf",)),
        },
        base_sysctls=sysctls,
        sysctls=dict(sysctls),
        root=root,
        hostname=name,
        swaps=("/dev/vdb",),
        modules={"virtio_net"},
    )
    state.initramfs = dict.fromkeys(state.kernels, frozenset())
    state.boot_line = state.cmdline = next_line(state)
    for unit in state.units.values():
        unit.read = state.config_digest(unit)
    return state


def hypervisor_state(
    name: str = "pve", *, cards: Mapping[str, str] | None = None, loader: str = "grub"
) -> HostState:
    """Return a booted Proxmox VE host with a display card that its host driver has.

    Args:
        name: host name.
        cards: display cards, id by slot (`{"0000:01:00": "1234:1111"}`); else an RTX 3090 at 0000:02:00.
        loader: `grub` or `systemd-boot` (ZFS root).
    """
    state = guest_state(name)
    state.efi = loader == "systemd-boot"
    state.loader = loader
    if loader == "systemd-boot":
        state.files["/etc/kernel/cmdline"] = ModelFile(b"root=ZFS=rpool/ROOT/pve-1 boot=zfs\n")
    state.kernels = ("6.14.8-2-pve", "6.17.2-1-pve")
    state.running = "6.17.2-1-pve"
    state.initramfs = dict.fromkeys(state.kernels, frozenset())
    state.root = RootStatus("rpool/ROOT/pve-1", "zfs")
    state.swaps = ()
    state.files["/etc/fstab"] = ModelFile(b"proc /proc proc defaults 0 0\n")
    state.files["/etc/pve/storage.cfg"] = ModelFile(
        b"dir: local\n\tpath /var/lib/vz\n\tcontent iso,vztmpl,import,snippets\n\n"
        b"zfspool: local-zfs\n\tpool rpool/data\n\tcontent images,rootdir\n"
    )
    state.iommu = IommuStatus(("dmar0",), 16, cpu="GenuineIntel", table="DMAR")
    state.bridges = ("vmbr0",)
    state.memory, state.cpus = 31 * 1024, 20
    state.functions = _functions({"0000:02:00": "10de:2204"} if cards is None else cards)
    state.boot_line = next_line(state)
    boot(state)
    state.check()
    return state


_MODULES = {"10de": ("nouveau", "nvidiafb", "nova_core"), "1234": ("bochs_drm",)}
"""Which modules find a display card, by vendor."""


def _functions(cards: Mapping[str, str]) -> list[ModelFunction]:
    """Return a bridge, and for each card a display function (NVIDIA's also have an audio function)."""
    bridge = PciFunction("0000:00:01.0", "8086", "1901", "060400", group="1")
    functions = [ModelFunction(bridge, ("pcieport",))]
    for group, (slot, ids) in enumerate(cards.items(), 13):
        vendor, _, device = ids.partition(":")
        first, maker = group == 13, "1458:4043"  # noqa: PLR2004 - the first
        display = PciFunction(f"{slot}.0", vendor, device, "030000", "", str(group), first, maker)
        functions.append(ModelFunction(display, _MODULES.get(vendor, ())))
        if vendor == "10de":
            audio = PciFunction(f"{slot}.1", vendor, "1aef", "040300", group=str(group))
            functions.append(ModelFunction(audio, ("snd_hda_intel",)))
    return functions
