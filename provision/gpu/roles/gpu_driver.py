"""A node's GPU driver: packages of one origin, held, their modules loaded, other drivers kept off.

A driver that came with the node (`manage: false`) is only looked at: by preflight and by the checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from provision.contracts.resource import Resource
from provision.contracts.role import Context, Role
from provision.gpu.facts import kernel_modules
from provision.gpu.origins import ORIGINS, Chosen, Gone, Wish, all_names, choose
from provision.gpu.queries import GpuState, GpuStatus
from provision.gpu.resources.driver import GpuDriver, PowerLimit
from provision.gpu.resources.runtime import HostRuntime
from provision.gpu.words import BRIDGE_CLASS, NVIDIA
from provision.hosts import names
from provision.hosts.change_effects import DAEMON_RELOAD, effects_of_path, reboot_of
from provision.hosts.package_source import lists_questions
from provision.hosts.queries.apt import Offers, policy, read_policy
from provision.hosts.queries.shell import Shell
from provision.hosts.resources.as_before import StatesAsBefore
from provision.hosts.resources.base import HEADER
from provision.hosts.resources.file import File
from provision.hosts.resources.kernel import INITRAMFS, KernelModule, ModprobeBlacklist
from provision.hosts.resources.package import Package, PackageState
from provision.hosts.resources.pci import PciFunction, PciFunctions
from provision.hosts.resources.service import Service
from provision.hosts.roles.host_resources import retires
from provision.inventory import Inventory, Subject
from provision.inventory.models.node import Driver, Node
from provision.k3s.runtimes import NvidiaRuntime
from provision.values.diagnostics import Diagnostic, Source
from provision.values.errors import Permanent

OTHER_DRIVERS = ("nouveau", "nova", "nova_core", "nova_drm", "nvidiafb")
"""What else drives NVIDIA's cards; nova's parts have no PCI alias."""
NVLINK_FILE = "/etc/modprobe.d/provision-nvidia-nvlink.conf"
TOOLKIT = "nvidia-container-toolkit"
"""What lets containerd give cards to pods; k3s detects it when it starts."""
UPGRADES_FILE = "/etc/apt/apt.conf.d/52provision-gpu"
PEER_MEMORY_FILE = "/etc/modules-load.d/provision-nvidia_peermem.conf"
POWER_UNIT = "provision-gpu-power.service"
PERSISTENCE, FABRIC = "nvidia-persistenced.service", "nvidia-fabricmanager.service"
_UPGRADES = """// Written by provision: upgrades of these come with a reboot, so they are planned.
Unattended-Upgrade::Package-Blacklist {
  "nvidia-";
  "libnvidia-";
  "cuda-";
  "libcuda";
  "linux-modules-nvidia-";
  "linux-objects-nvidia-";
};
"""
_FLAVOUR = re.compile(r"[0-9][0-9.]*(?:\+[a-z0-9]+)?(?:-[0-9][0-9a-z.]*)?-([a-z].*)")
"""`6.8.0-79-generic`, and Debian's `6.1.0-37-amd64`, `6.12.43+deb13-cloud-amd64`, `6.5.0-0.deb12.4-amd64`."""


def managed_driver(inventory: Inventory, name: str) -> Driver | None:
    """Return the driver that is to be installed on a node; None where there is none, or it is not ours."""
    node = inventory.nodes.get(name)
    driver = node.driver if node is not None and node.manage else None
    return driver if driver is not None and driver.manage and driver.origin is not None else None


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether a driver is to be installed on the node."""
    return subject.kind == "node" and managed_driver(inventory, subject.name) is not None


def offers_query(driver: Driver) -> Shell:
    """Return the query for all packages that the driver may consist of."""
    assert driver.origin is not None  # noqa: S101 - managed_driver
    metas = dict.fromkeys(ORIGINS[driver.origin].metas.values())
    return policy(all_names(driver.origin, driver.branch or "", metas))


def questions(inventory: Inventory, subject: Subject) -> Mapping[str, tuple[Any, ...]]:
    """Ask for cards, driver, packages on offer, and the kernel's meta package."""
    driver = managed_driver(inventory, subject.name)
    if driver is None or driver.origin is None:
        return {names.ssh(subject.name): ()}
    metas = (PackageState(name) for name in ORIGINS[driver.origin].metas)
    runtime = (NvidiaRuntime(),) if has_host_runtime(inventory, subject.name) else ()
    lists = lists_questions(inventory, inventory.nodes[subject.name])
    asked = (PciFunctions(), GpuState(), offers_query(driver), *metas, *runtime, *lists)
    return {names.ssh(subject.name): asked}


def has_host_runtime(inventory: Inventory, name: str) -> bool:
    """Whether containerd of a node works with the toolkit of the host's package."""
    return inventory.gpu is not None and inventory.gpu.toolkit == "host" and bool(inventory.nodes[name].k3s)


def cards_of(functions: tuple[PciFunction, ...]) -> tuple[PciFunction, ...]:
    """Return NVIDIA's display and 3D controllers."""
    return tuple(function for function in functions if function.vendor == NVIDIA and function.is_display)


def wish_of(node: Node, driver: Driver, functions: tuple[PciFunction, ...]) -> Wish:
    """Return what of a driver a node wants, by its cards."""
    declared_switch = node.gpu_cards is not None and bool(node.gpu_cards.nvswitch)
    has_bridge = any(each.vendor == NVIDIA and each.cls.startswith(BRIDGE_CLASS) for each in functions)
    return Wish(
        driver.origin or "",
        driver.branch or "",
        driver.version or "",
        kernel_modules(cards_of(functions), driver.kind),
        nvswitch=(has_bridge or declared_switch) and driver.fabric_manager != "unmanaged",
    )


def meta_of(origin: str, installed: Mapping[str, bool], kernel: str) -> str:
    """Return the suffix of the kernel's meta package: of the one that is installed, else the kernel's own."""
    metas = ORIGINS[origin].metas
    flavour = _FLAVOUR.fullmatch(kernel)
    own = flavour[1] if flavour is not None else ""
    return next((suffix for name, suffix in metas.items() if installed.get(name)), own)


def resources(context: Context) -> tuple[Resource, ...]:
    """Return what the node's driver consists of."""
    inventory, name = context.inventory, context.subject.name
    node, driver = inventory.nodes[name], managed_driver(inventory, name)
    if driver is None or driver.origin is None:
        return ()
    system = names.ssh(name)
    source = inventory.source(("nodes", name, "driver"))
    functions = context.require(system, PciFunctions(), f"cannot read the cards of {name}", source)
    status = context.require(system, GpuState(), f"cannot read the driver of {name}", source)
    wish = wish_of(node, driver, functions)
    chosen, offers = _choose(context, driver, wish, status, source)
    has_card = bool(cards_of(functions))
    requests = _requests(chosen, offers)
    reboot = reboot_of(inventory, context.subject)
    made: list[Resource] = [
        ModprobeBlacklist(system, "gpu", OTHER_DRIVERS, reboot if has_card else None, source=source),
        *_files(system, driver, source, reboot_needed=has_card, reboot=reboot),
        GpuDriver(
            system,
            chosen.packages,
            requests,
            wish.major,
            driver.hold,
            has_card,
            reboot,
            source=source,
        ),
    ]
    made += _services(system, driver, wish, status, source)
    if inventory.gpu is not None and inventory.gpu.toolkit == "host":
        made.append(
            Package(system, (TOOLKIT,), hold=driver.hold, source=inventory.source(("gpu", "toolkit")))
        )
        if has_host_runtime(inventory, name):
            made.append(HostRuntime(system, source=inventory.source(("gpu", "toolkit"))))
    made += _power(system, driver, inventory.source(("nodes", name, "driver", "power_limit")))
    made += _peer_memory(system, node, status, source)
    return tuple(made)


def _choose(
    context: Context, driver: Driver, wish: Wish, status: GpuStatus, source: Source | None
) -> tuple[Chosen, Mapping[str, Offers]]:
    system = names.ssh(context.subject.name)
    offers = read_policy(context.require(system, offers_query(driver), source=source))
    if not isinstance(offers, Mapping):
        raise Permanent(
            Diagnostic("UNKNOWN", f"apt does not say what it has: {offers.reason}", system, source=source)
        )
    installed = {
        name: bool(context.require(system, PackageState(name)).installed)
        for name in ORIGINS[wish.origin].metas
    }
    chosen = choose(wish, offers, meta_of(wish.origin, installed, status.next_kernel))
    if isinstance(chosen, Gone):
        raise Permanent(gone(chosen, context.subject.name, wish, source))
    return chosen, offers


def gone(reason: Gone, node: str, wish: Wish, source: Source | None) -> Diagnostic:
    """Return why a driver cannot be had, as a user reads it."""
    ways = {
        "DRIVER_ORIGIN_MISSING": f"add the archive: {ORIGINS[wish.origin].archive}",
        "DRIVER_VERSION_GONE": "declare `driver.version: newest-in-branch`, or one of these versions",
    }
    return Diagnostic(
        reason.code,
        f"{node}: {reason.summary}",
        node,
        evidence=reason.offered[:20],
        source=source,
        untouched="the driver was not changed",
        remedy=f"declare `driver.kind: {reason.kind}`" if reason.kind else ways[reason.code],
    )


def _requests(chosen: Chosen, offers: Mapping[str, Offers]) -> tuple[str, ...]:
    """Return what apt is asked for: all parts in one transaction where one is missing or another version."""
    known = {name: offers.get(name, Offers()).installed for name, _ in chosen.packages}
    if all(known[name] and version in ("", known[name]) for name, version in chosen.packages):
        return ()
    return tuple(f"{name}={version}" if version else name for name, version in chosen.packages)


def _files(
    system: str, driver: Driver, source: Source | None, *, reboot_needed: bool, reboot: Any
) -> Iterator[File]:
    effects = (INITRAMFS, reboot) if reboot_needed else (INITRAMFS,)
    if driver.nvlink is not None:
        text = None if driver.nvlink else f"{HEADER}options nvidia NVreg_NvLinkDisable=1\n"
        file = File.of_text(system, NVLINK_FILE, text, source)
        yield File(system, file.path, file.content, absent=file.absent, effects=effects, source=source)
    if driver.hold is not False:
        yield File.of_text(system, UPGRADES_FILE, _UPGRADES, source)


def _services(
    system: str, driver: Driver, wish: Wish, status: GpuStatus, source: Source | None
) -> Iterator[Service]:
    """Yield the daemons. They start with the driver: before its first boot they could only fail."""
    starts = True if status.loaded else None
    if driver.persistence is False:
        yield Service(system, PERSISTENCE, running=False, enabled=False, source=source)
    else:
        yield Service(system, PERSISTENCE, running=starts, enabled=True, source=source)
    if wish.nvswitch:
        yield Service(system, FABRIC, running=starts, enabled=True, source=source)


def _power(system: str, driver: Driver, source: Source | None) -> Iterator[Resource]:
    """Yield the limit, and the unit that sets it at each boot."""
    if driver.power_limit is None:
        return
    path = f"/etc/systemd/system/{POWER_UNIT}"
    content = (
        f"{HEADER}[Unit]\nDescription=Power limit of the GPUs\nAfter=nvidia-persistenced.service\n\n"
        f"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=nvidia-smi -pl {driver.power_limit}\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    yield File(system, path, content.encode(), effects=(DAEMON_RELOAD,), source=source)
    yield Service(system, POWER_UNIT, enabled=True, source=source)
    yield PowerLimit(system, driver.power_limit, source=source)


def _peer_memory(system: str, node: Node, status: GpuStatus, source: Source | None) -> Iterator[Resource]:
    """Yield nvidia_peermem on RDMA nodes whose kernel has its symbol; elsewhere DMA-BUF does without it."""
    if not node.rails or not status.peer_memory:
        return
    if status.loaded:
        yield KernelModule(system, "nvidia_peermem", source=source)
    else:
        content = f"{HEADER}nvidia_peermem\n"
        yield File.of_text(system, PEER_MEMORY_FILE, content, source)


def retired(context: Context) -> tuple[Resource, ...]:
    """Return our files as absent on bare metal, and states as before; packages are named and stay."""
    system = names.ssh(context.subject.name)
    files = (NVLINK_FILE, UPGRADES_FILE, f"/etc/systemd/system/{POWER_UNIT}", PEER_MEMORY_FILE)
    gone = (File(system, path, absent=True, effects=effects_of_path(path, None)) for path in files)
    # States come first: the unit ends while it has its file.
    return (StatesAsBefore(system), ModprobeBlacklist(system, "gpu", ()), *gone)


ROLE = Role(
    retired=retired,
    retires=retires,
    name="gpu_driver",
    needs=("base_os", "host_resources"),
    declared=declared,
    questions=questions,
    resources=resources,
)
