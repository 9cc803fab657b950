"""The state of a host in memory, and what of it cannot be."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

from provision.contracts.effect import Effect
from provision.contracts.snapshot import Pending
from provision.gpu.mps import MpsStatus
from provision.hosts.queries.kernel import module_name
from provision.hosts.queries.modprobe import ModprobeRule
from provision.hosts.queries.system import ClockStatus
from provision.hosts.resources.filesystem import RootStatus
from provision.hosts.resources.pci import IommuStatus, PciFunction
from provision.k3s.join_network import JoinNetworkStatus
from provision.k3s.queries import MachineStatus
from provision.rdma.queries import RdmaStatus
from provision.testing.model_rdma import kernel_file

GIB = 1024**3
_NO_IOMMU = IommuStatus((), 0, cpu="GenuineIntel")
_WHOLE_DISK = RootStatus("/dev/vda1", "ext4", "/dev/vda1", "vda", 1, size=10 * GIB)
_CLOCK = ClockStatus(synchronised=True)


class OperationFailedError(Exception):
    """An operation ended with an exit status other than 0, as its shell would."""


class ImpossibleStateError(AssertionError):
    """A test built, or an operation led to, a state that no real host can be in."""


@dataclass(slots=True)
class ModelFile:
    """A file, folder or symbolic link; `target` is a link's, `digest` is of content that is not at hand."""

    content: bytes = b""
    mode: str = "0644"
    owner: str = "root"
    group: str = "root"
    type: str = "file"
    target: str = ""
    digest: str = ""


@dataclass(slots=True)
class ModelUnit:
    """A systemd unit.

    Args:
        active: whether it runs.
        file: systemd's word: enabled, disabled, static, masked.
        needs_reload: its file changed since systemd read it.
        config: path prefixes that it reads when it starts.
        read: digest of these files as they were when it started.
        waiting: it died, and systemd will start it again.
        failed: it died, and stays so.
    """

    active: bool = True
    file: str = "enabled"
    needs_reload: bool = False
    config: tuple[str, ...] = ()
    read: str = ""
    waiting: bool = False
    failed: bool = False


@dataclass(slots=True)
class ModelFunction:
    """A PCI function: what it is, and which modules of every kernel would drive it."""

    pci: PciFunction
    modules: tuple[str, ...] = ()
    driver: str = ""
    override: str = ""


@dataclass(slots=True)
class HostState:
    """All that ModelHost knows of a host; change it freely, then `check` it.

    Args:
        files: by absolute path; folders that hold files need no entry.
        saved: what a path held before it was first changed: a file, None for nothing, or the word `restored`.
        noted: how something that is no file was before it was first changed, by kind and name.
        packages: installed version by name.
        available: version that apt would install, by name; names not in it get `1.0`.
        archive: versions that archives have, newest first, each with its origin (`Debian`), by name.
        pulls: packages that come along with one, by its name.
        missing: packages that no archive has.
        provides: names that a package provides, by its name.
        conflicts: packages that cannot be there with one, by its name.
        dependents: packages that go with one, by its name.
        brings: units that a package brings, running and enabled.
        package_files: programs that a package brings, by its name.
        loader: grub, systemd-boot or none.
        grub: GRUB_CMDLINE_LINUX_DEFAULT of /etc/default/grub.
        boot_line: what the boot loader hands to the kernel at the next boot.
        cmdline: what the running kernel was given.
        initramfs: modules that the initramfs of each kernel keeps off, functions that it gives to vfio-pci.
        base_modules: modules that every boot loads.
        skew: the clock minus the controller's, in seconds.
        base_sysctls: kernel parameters after a boot, without /etc/sysctl.d.
        bridges: bridges for VMs.
        links: network interfaces that are no such bridges.
        k3s_version: what the binary of k3s calls itself.
        machine: what k3s needs of it, where that differs from an ordinary guest.
        unlinked_cards: device files of cards have no links in /dev/char.
        card_words: what nvidia-smi prints of every card, by field, where a card is out of order.
        unreached: what it lacks to reach a peer, by address: `route`, `answer`, or the `program` to try it.
        join_network: what it meets before it joins a cluster, where that differs from an ordinary network.
        usb: its USB devices, as `provision.proxmox.usb_facts` reads them.
        nics: what the host uses its network cards for, as `provision.proxmox.nic_facts` reads it.
        commands: what a command of the inventory does, where it does more than its guard requires.
        loaded_driver: version of the loaded GPU driver; empty for none.
        foreign_driver: version of a GPU driver that no package brought.
        product_uuid: of the board; empty for none.
        secure_boot: whether the firmware enforces signatures.
        nvlink_off: the loaded GPU driver keeps NVLink off.
        peer_memory: the kernel has the symbol that nvidia_peermem needs.
        power_limits: watts by PCI address, where they are not the default.
        card_faults: fields of CardStatus by PCI address, where a card shows something else.
        mounts: source by path, of network filesystems.
        free: MiB that are free on any filesystem.
        kernel_log: what the kernel said since boot, beside its first line.
        fabric_is_reset: the NVLink fabric was reset after that.
        rdma: RDMA ports and interfaces, as the kernel shows them.
        mps: servers of MPS, and what they left.
    """

    files: dict[str, ModelFile] = field(default_factory=dict)
    saved: dict[str, ModelFile | str | None] = field(default_factory=dict)
    noted: dict[tuple[str, str], str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    available: dict[str, str] = field(default_factory=dict)
    archive: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    pulls: dict[str, tuple[str, ...]] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    provides: dict[str, tuple[str, ...]] = field(default_factory=dict)
    conflicts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    dependents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    brings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    package_files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    units: dict[str, ModelUnit] = field(default_factory=dict)
    kernels: tuple[str, ...] = ("6.1.0-1-amd64",)
    running: str = "6.1.0-1-amd64"
    modules: set[str] = field(default_factory=set)
    base_modules: frozenset[str] = frozenset({"virtio_net"})
    builtin: frozenset[str] = frozenset({"ext4", "pcieport"})
    base_sysctls: dict[str, str] = field(default_factory=dict)
    sysctls: dict[str, str] = field(default_factory=dict)
    efi: bool = False
    loader: str = "grub"
    grub: str = "quiet"
    boot_line: str = ""
    cmdline: str = ""
    initramfs: dict[str, frozenset[str]] = field(default_factory=dict)
    functions: list[ModelFunction] = field(default_factory=list)
    iommu: IommuStatus = _NO_IOMMU
    root: RootStatus = _WHOLE_DISK
    hostname: str = "localhost"
    swaps: tuple[str, ...] = ()
    clock: ClockStatus = _CLOCK
    skew: float = 0.0
    bridges: tuple[str, ...] = ()
    links: tuple[str, ...] = ("lo",)
    memory: int = 4096
    cpus: int = 4
    probes: dict[str, int] = field(default_factory=dict)
    nics: str = "end\n"
    usb: str = "end\n"
    machine: MachineStatus | None = None
    join_network: JoinNetworkStatus | None = None
    unlinked_cards: bool = False
    card_words: dict[str, str] = field(default_factory=dict)
    unreached: dict[str, str] = field(default_factory=dict)
    k3s_version: str = "v1.35.7+k3s1"
    commands: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    loaded_driver: str = ""
    foreign_driver: str = ""
    product_uuid: str = ""
    secure_boot: bool = False
    nvlink_off: bool = False
    peer_memory: bool = False
    power_limits: dict[str, float] = field(default_factory=dict)
    card_faults: dict[str, dict[str, Any]] = field(default_factory=dict)
    kernel_log: tuple[str, ...] = ()
    fabric_is_reset: bool = False
    mounts: dict[str, str] = field(default_factory=dict)
    free: int = 512 * 1024
    rdma: RdmaStatus = field(default_factory=RdmaStatus)
    mps: MpsStatus = field(default_factory=MpsStatus)
    pending: dict[Effect, Pending] = field(default_factory=dict)
    boots: int = 1

    @property
    def boot_id(self) -> str:
        """Identity of the present boot."""
        return f"boot-{self.boots}"

    # ------------------------------------------------------------ files

    def folder(self, path: str) -> bool:
        """Whether a folder exists: declared, or because something is in it."""
        entry = self.files.get(path)
        if entry is not None:
            return entry.type == "directory"
        prefix = path.rstrip("/") + "/"
        return any(file.startswith(prefix) for file in self.files)

    def text(self, path: str) -> str:
        """Return a file's text; empty when there is none."""
        entry = self.files.get(path)
        return entry.content.decode("utf-8", "replace") if entry is not None else ""

    def below(self, prefix: str, suffix: str = "") -> list[str]:
        """Return the paths of files below a folder, sorted."""
        return sorted(
            path
            for path, entry in self.files.items()
            if entry.type == "file" and path.startswith(prefix) and path.endswith(suffix)
        )

    def merged(self, kind: str) -> list[str]:
        """Return the files of a `.d` folder of systemd by name: of one name, the first folder's counts."""
        chosen: dict[str, str] = {}
        for folder in (f"/etc/{kind}/", f"/run/{kind}/", f"/usr/local/lib/{kind}/", f"/usr/lib/{kind}/"):
            for path in self.files:
                if path.startswith(folder) and path.endswith(".conf"):
                    chosen.setdefault(path.removeprefix(folder), path)
        return [chosen[name] for name in sorted(chosen)]

    def blacklisted(self) -> frozenset[str]:
        """Return the modules that modprobe.d keeps off."""
        return frozenset(rule.module for rule in self.modprobe_rules() if rule.keeps_off)

    def modprobe_rules(self) -> tuple[ModprobeRule, ...]:
        """Return the rules of all files of modprobe.d."""
        rows = (
            (path, tuple(line.split()))
            for path in self.below("/etc/modprobe.d/", ".conf")
            for line in self.text(path).split("\n")
        )
        verbs = {"blacklist", "install", "softdep", "options"}
        return tuple(ModprobeRule(path, words) for path, words in rows if words and words[0] in verbs)

    def by_slot(self) -> frozenset[str]:
        """Return the PCI functions that a script of the initramfs gives to vfio-pci."""
        scripts = (self.text(path) for path in self.below("/etc/initramfs-tools/scripts/init-top/"))
        lines = (line for script in scripts for line in script.split("\n") if line.startswith("for f in "))
        return frozenset(word for line in lines for word in line.split("; do")[0].split()[3:])

    def config_digest(self, unit: ModelUnit) -> str:
        """Return a digest of the files that a unit reads at its start."""
        state = hashlib.sha256()
        for prefix in unit.config:
            for path in self.below(prefix):
                state.update(path.encode() + b"\0" + self.files[path].content + b"\0")
        return state.hexdigest()[:16] if unit.config else ""

    # ------------------------------------------------------------ checks and dumps

    def check(self) -> None:
        """Raise ImpossibleStateError for the first thing that cannot be."""
        for path, entry in self.files.items():
            self._check_file(path, entry)
        self._check_boot()
        for name in self.held - set(self.packages):
            raise ImpossibleStateError(f"package {name} is held and not installed")
        self._check_units()
        for function in self.functions:
            if function.driver == "vfio-pci":
                if not self.iommu.active:
                    raise ImpossibleStateError(
                        f"{function.pci.address} is with vfio-pci and there is no IOMMU"
                    )
            elif function.driver and module_name(function.driver) not in self.modules | self.builtin:
                raise ImpossibleStateError(
                    f"{function.pci.address} has {function.driver}, which is not loaded"
                )
        root = self.root
        if min(root.size, root.behind_partition, root.in_partition, root.in_group, root.in_device) < 0:
            raise ImpossibleStateError("a size below the root filesystem is negative")

    def _check_file(self, path: str, entry: ModelFile) -> None:
        if not path.startswith("/") or path != "/" + path.strip("/"):
            raise ImpossibleStateError(f"{path!r} is not a plain absolute path")
        if len(entry.mode) != 4 or set(entry.mode) - set("01234567"):  # noqa: PLR2004 - four octal digits
            raise ImpossibleStateError(f"{path} has the mode {entry.mode!r}")
        parent = path.rpartition("/")[0]
        while parent:
            above = self.files.get(parent)
            if above is not None and above.type != "directory":
                raise ImpossibleStateError(f"{path} is below {parent}, which is not a folder")
            parent = parent.rpartition("/")[0]

    def _check_units(self) -> None:
        for name, unit in self.units.items():
            if unit.active and unit.file.startswith("masked"):
                raise ImpossibleStateError(f"unit {name} is masked and cannot have been started")
            if unit.active and unit.waiting:
                raise ImpossibleStateError(f"unit {name} runs and waits to be started again")

    def _check_boot(self) -> None:
        if self.running not in self.kernels:
            raise ImpossibleStateError(f"the running kernel {self.running} is not installed")
        unknown = set(self.initramfs) - set(self.kernels)
        if unknown:
            raise ImpossibleStateError(f"there is an initramfs without its kernel: {sorted(unknown)}")
        loaded = {module_name(module) for module in self.modules} & self.builtin
        if loaded:
            raise ImpossibleStateError(f"built into the kernel and loaded: {sorted(loaded)}")
        if self.loader == "systemd-boot" and not self.efi:
            raise ImpossibleStateError("systemd-boot needs UEFI")

    def dump(self) -> dict[str, object]:
        """Return all that must be the same after an interrupted and an uninterrupted run."""
        left_out = (
            "boots",
            "available",
            "archive",
            "pulls",
            "missing",
            "provides",
            "conflicts",
            "dependents",
            "brings",
            "package_files",
            "commands",
            "pending",
        )
        plain = {
            member.name: _plain(getattr(self, member.name))
            for member in fields(self)
            if member.name not in left_out
        }
        plain["pending"] = sorted(map(str, self.pending))
        return plain


def _plain(value: object) -> object:
    """Return a copy of a field that can be compared and printed."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value


def resolved(state: HostState, path: str) -> str:
    """Return the path behind symbolic links; the path itself when it is none, empty for a loop."""
    for _ in range(8):
        entry = state.files.get(path)
        if entry is None or entry.type != "link":
            return path
        parent = path.rpartition("/")[0]
        path = posixpath.normpath(posixpath.join(parent, entry.target))
    return ""


def virtual_content(state: HostState, path: str) -> bytes | None:
    """Return the content of files that the kernel makes up."""
    texts = {
        "/proc/cmdline": lambda: state.cmdline,
        "/proc/sys/kernel/hostname": lambda: state.hostname,
        "/proc/swaps": lambda: "\n".join(
            ("Filename Type Size Used Priority", *(f"{swap} partition 1048572 0 -2" for swap in state.swaps))
        ),
        "/proc/self/mounts": lambda: "\n".join(
            (
                "/dev/vda1 / ext4 rw 0 0",
                *(f"{source} {path} nfs4 rw 0 0" for path, source in state.mounts.items()),
            )
        ),
        "/proc/meminfo": lambda: f"MemTotal: {state.memory * 1024} kB\nMemAvailable: {state.memory * 900} kB",
        "/sys/devices/system/cpu/online": lambda: f"0-{state.cpus - 1}" if state.cpus > 1 else "0",
        "/sys/module/nvidia/version": lambda: state.loaded_driver,
    }
    shown = kernel_file(state.rdma, path)
    if shown is not None:
        return f"{shown}\n".encode()
    if path not in texts or (path == "/sys/module/nvidia/version" and not state.loaded_driver):
        return None
    return f"{texts[path]()}\n".encode()
