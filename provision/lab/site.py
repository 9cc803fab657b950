"""Brings a lab up, tells how it is, and removes it without a trace. Idempotent; safe after any kill."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from provision.lab import (
    accel,
    bootslot,
    hypervisor_machine,
    images,
    keys,
    netns,
    packages,
    processes,
    record,
    router,
)
from provision.lab.contracts import GuestError
from provision.lab.daemon import TOKEN_ID
from provision.lab.hypervisor import SshHypervisor
from provision.lab.locks import exclusive
from provision.lab.nspawn import Container
from provision.lab.qemu import Machine
from provision.lab.record import Record
from provision.lab.settings import (
    API_PORT,
    IMAGE_PORT,
    LabError,
    LabSettings,
    lab_folder,
    labs_root,
    namespace,
)

Progress = Callable[[str], None]
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_INOTIFY_INSTANCES = 4096
_DNS_PORT = 53
_BOOT_DEADLINE = 420.0
_CONTAINER_DEADLINE = 60.0
_DAEMON_DEADLINE = 60.0


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a lab: `kind` is daemon, router, hypervisor or guest; `state` up, down or starting."""

    kind: str
    name: str
    state: str
    pid: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Status:
    """A lab as it is now.

    Args:
        name: the lab's name.
        driver: `qemu` or `container`; empty when there is no lab.
        up: everything but guests runs and answers.
        parts: its pieces.
        overlay: the inventory overlay, or None when the lab was never up.
    """

    name: str
    driver: str
    up: bool
    parts: tuple[Part, ...]
    overlay: Path | None


def up(settings: LabSettings, progress: Progress) -> Path:
    """Bring a lab up and return its inventory overlay; what runs is left as it is.

    Args:
        settings: the lab. One that exists with other settings is refused.
        progress: told, in a line, what takes time.

    Raises:
        LabError: what is missing, or what did not come up, with the end of its console.
    """
    if os.geteuid() != 0:
        raise LabError("the lab needs root: it makes network namespaces, containers and virtual machines")
    folder = settings.folder
    labs_root().mkdir(parents=True, exist_ok=True)
    with exclusive(_lock(settings.name)):
        packages.install(packages.missing(settings.driver), progress)
        make_room(progress)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
        for name in ("keys", "console", "guests"):
            (folder / name).mkdir(exist_ok=True, mode=0o700)
        lab = _known(settings) or _new(settings, progress)
        netns.ensure(settings)
        return _start(lab, progress)


def _known(settings: LabSettings) -> Record | None:
    """Return the lab's record, with the images that it began with, as long as they are there."""
    if not (settings.folder / record.FILE).exists():
        return None
    known = record.load(settings.folder)
    if known.settings != settings:
        raise LabError(f"lab {settings.name} exists with other settings: 'lab down' first")
    there = (known.images.rootfs, *(image.path for image in known.images.served))
    if not all(path.exists() for path in there):
        return None
    return replace(known, accelerator=_accelerator(known.images))


def _new(settings: LabSettings, progress: Progress) -> Record:
    made = images.prepare(settings, progress)
    lab = Record(settings, made, _accelerator(made))
    record.save(lab)
    return lab


def _accelerator(made: images.Images) -> tuple[str, ...]:
    return accel.choose(made.vm / "vmlinuz") if made.vm else ()


def make_room(progress: Progress, file: Path = _INOTIFY) -> None:
    """Let the kernel watch for more than a dozen containers: each one's systemd takes nine of 128 instances.

    Source of the setting: inotify(7).
    """
    try:
        have = int(file.read_text())
    except (OSError, ValueError):
        return
    if have < _INOTIFY_INSTANCES:
        progress(f"raising fs.inotify.max_user_instances of this machine from {have} to {_INOTIFY_INSTANCES}")
        # Where it cannot be raised, a small lab still comes up.
        with contextlib.suppress(OSError):
            file.write_text(f"{_INOTIFY_INSTANCES}\n")


def _start(lab: Record, progress: Progress) -> Path:
    settings, folder = lab.settings, lab.settings.folder
    keys.ensure_ssh_key(folder / "keys/guest", "provision lab guest")
    fingerprint = keys.ensure_certificate(folder / "keys", settings)
    gate = router.container(settings, lab.images.rootfs)
    head = _hypervisor(lab)
    try:
        new = gate.pid() is None
        if new:
            progress("starting the router")
            router.prepare(settings, gate)
            gate.start()
        if head.pid() is None:
            _start_hypervisor(lab, head, progress)
        pins = _pin_hosts(settings)
        _start_daemon(settings, progress)
        _wait_ssh(settings, gate, settings.gateway, _CONTAINER_DEADLINE)
        if new:
            _wait_dnsmasq(settings, gate)
        deadline = _BOOT_DEADLINE if settings.driver == "qemu" else _CONTAINER_DEADLINE
        _wait_ssh(settings, head, settings.hypervisor[1], deadline)
    except GuestError as error:
        raise LabError(str(error)) from error
    overlay = folder / "site.yaml"
    record.replace(
        overlay, record.overlay(lab, api_fingerprint=fingerprint, token_id=TOKEN_ID, host_keys=pins)
    )
    return overlay


def _hypervisor(lab: Record) -> Container | Machine:
    if lab.settings.driver == "qemu":
        return hypervisor_machine.vm(lab.settings)
    return hypervisor_machine.container(lab.settings, lab.images.rootfs)


def _start_hypervisor(lab: Record, head: Container | Machine, progress: Progress) -> None:
    if isinstance(head, Container):
        progress("starting the hypervisor (a container stands in for it)")
        hypervisor_machine.prepare_container(lab.settings, head)
        head.start()
        return
    assert lab.images.vm is not None  # noqa: S101 - the qemu driver always has it
    how = "KVM" if "kvm" in lab.accelerator else "emulated processor, about a minute"
    progress(f"booting the hypervisor VM ({how})")
    hypervisor_machine.prepare_vm(lab.settings, head, lab.images.vm)
    hypervisor_machine.start_vm(lab.settings, head, lab.accelerator)


def _pin_hosts(settings: LabSettings) -> dict[str, str]:
    """Write known_hosts and return the fingerprints of router and hypervisor."""
    folder = settings.folder / "keys"
    pins, lines = {}, []
    for key, address in ((router.KEY, settings.gateway), (hypervisor_machine.KEY, settings.hypervisor[1])):
        public = (folder / f"{key}-host.pub").read_text()
        pins[key] = keys.fingerprint(public)
        lines.append(f"{address} {' '.join(public.split()[:2])}\n")
    record.replace(folder / "known_hosts", "".join(lines))
    return pins


def _start_daemon(settings: LabSettings, progress: Progress) -> None:
    folder, space = settings.folder, namespace(settings.name)
    if processes.read_pid(folder / "daemon.pid") is None:
        progress("starting the API")
        with (folder / "daemon.out").open("w") as out:
            started = subprocess.Popen(
                [sys.executable, "-m", "provision.lab.daemon", str(folder)],
                env={**processes.environment(folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                cwd="/",
            )
        record.replace(folder / "daemon.pid", f"{started.pid}\n")
        # Until it has become another program, the child has no mark yet.
        while processes.read_pid(folder / "daemon.pid") is None and started.poll() is None:
            time.sleep(0.01)
    deadline = time.monotonic() + _DAEMON_DEADLINE
    while not (
        _listens(space, settings.host_address, API_PORT)
        and _listens(space, settings.host_address, IMAGE_PORT)
    ):
        if processes.read_pid(folder / "daemon.pid") is None or time.monotonic() > deadline:
            said = (folder / "daemon.out").read_text().strip()[-800:]
            raise LabError(f"the lab's API did not start; {folder / 'daemon.log'}\n{said}")
        time.sleep(0.1)


def _listens(space: str, address: str, port: int) -> bool:
    try:
        netns.connect(space, address, port, 2.0).close()
    except OSError:
        return False
    return True


def _wait_ssh(settings: LabSettings, machine: Container | Machine, address: str, timeout: float) -> None:
    space = namespace(settings.name)
    if netns.ssh_banner(space, address):
        return

    def answers() -> bool:
        return netns.ssh_banner(space, address)

    def begin() -> None:
        pass

    if isinstance(machine, Machine):
        booted = bootslot.hold(machine, begin, answers, timeout)
    else:
        deadline = time.monotonic() + timeout
        while not (booted := answers()) and machine.pid() is not None and time.monotonic() < deadline:
            time.sleep(0.1)
    if not booted:
        tail = machine.console.read_text(errors="replace")[-1500:]
        raise LabError(f"{address} did not answer over SSH in {timeout:.0f} s; {machine.console}:\n{tail}")


def _wait_dnsmasq(settings: LabSettings, gate: Container) -> None:
    """Wait until the router serves: a guest that asks before gets no address, and says so minutes later."""
    deadline = time.monotonic() + _CONTAINER_DEADLINE
    while not _listens(namespace(settings.name), settings.gateway, _DNS_PORT):
        if gate.pid() is None or time.monotonic() > deadline:
            tail = gate.console.read_text(errors="replace")[-1500:]
            raise LabError(f"dnsmasq of the router does not answer at {settings.gateway}:\n{tail}")
        time.sleep(0.1)


def down(name: str) -> None:
    """Remove every process, namespace, mount, loop device and file of a lab; images stay in the cache.

    Raises:
        LabError: something of the lab is still there, named.
    """
    folder = lab_folder(name)
    labs_root().mkdir(parents=True, exist_ok=True)
    with exclusive(_lock(name)):
        for _ in range(5):
            spaces = netns.names(name)
            found = processes.of_lab(folder, spaces) | processes.in_cgroups(name)
            if not found:
                break
            processes.end(found, grace=0)
        for mount in sorted(_mounts(folder), reverse=True):
            subprocess.run(["umount", "-l", mount], capture_output=True, check=False)
        for device in _loops(folder):
            subprocess.run(["losetup", "-d", device], capture_output=True, check=False)
        for space in netns.names(name):
            netns.remove(space)
        processes.remove_cgroups(name)
        shutil.rmtree(folder, ignore_errors=True)
        left = leftovers(name)
        _lock(name).unlink(missing_ok=True)
    if left:
        raise LabError(f"lab {name}: still there: {', '.join(left)}")


def leftovers(name: str) -> tuple[str, ...]:
    """Return what is there of a lab, each thing in words; nothing for one that is down."""
    folder = lab_folder(name)
    spaces = netns.names(name)
    left = [f"process {pid}" for pid in sorted(processes.of_lab(folder, spaces) | processes.in_cgroups(name))]
    left += [f"namespace {space}" for space in spaces]
    left += [f"mount {mount}" for mount in _mounts(folder)]
    left += [f"loop device {device}" for device in _loops(folder)]
    if folder.exists():
        left.append(f"folder {folder}")
    return tuple(left)


def status(name: str) -> Status:
    """Tell how a lab is; one that does not exist is down."""
    folder = lab_folder(name)
    try:
        lab = record.load(folder)
    except LabError:
        return Status(name, "", up=False, parts=(), overlay=None)
    settings, space = lab.settings, namespace(name)
    api = processes.read_pid(folder / "daemon.pid")
    parts = [
        _part(
            "daemon", "api", api, ready=api is not None and _listens(space, settings.host_address, API_PORT)
        )
    ]
    machines = (
        ("router", router.container(settings, lab.images.rootfs), settings.gateway),
        ("hypervisor", _hypervisor(lab), settings.hypervisor[1]),
    )
    for kind, machine, address in machines:
        pid = machine.pid()
        ready = pid is not None and netns.ssh_banner(space, address)
        parts.append(_part(kind, settings.hypervisor[0] if kind == "hypervisor" else kind, pid, ready=ready))
    running = all(part.state == "up" for part in parts)
    for guest in sorted((folder / "guests").glob("[0-9]*")):
        pid = processes.read_pid(guest / "pid")
        parts.append(_part("guest", guest.name, pid, ready=pid is not None))
    overlay = folder / "site.yaml"
    return Status(name, settings.driver, running, tuple(parts), overlay if overlay.exists() else None)


def _part(kind: str, name: str, pid: int | None, *, ready: bool) -> Part:
    state = "up" if ready else "down" if pid is None else "starting"
    return Part(kind, name, state, pid, "")


def console(name: str, node: str) -> Path:
    """Return the console log of a machine: `router`, the hypervisor's name, or a VM's name.

    Raises:
        LabError: there is none; the text names those that there are.
    """
    folder = lab_folder(name) / "console"
    known = sorted(file.stem for file in folder.glob("*.log"))
    if node not in known:
        raise LabError(f"lab {name} has no console of {node!r}; there are: {', '.join(known) or 'none'}")
    return folder / f"{node}.log"


def enter(name: str, argv: list[str]) -> NoReturn:
    """Replace this process by `argv` inside the lab's network namespace; mounts and environment stay.

    Raises:
        LabError: the lab is not up, or there is no such program.
    """
    netns.join(namespace(name))
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - no shell is the point
    except OSError as error:
        raise LabError(f"{argv[0]}: {error.strerror}") from error


def hypervisor(name: str) -> SshHypervisor:
    """Return the lab's own connection to its hypervisor, from outside the namespace."""
    lab = record.load(lab_folder(name))
    stand_in = lab.settings.driver == "container"
    return SshHypervisor(lab.settings.folder, lab.settings.hypervisor[1], namespace(name), stand_in=stand_in)


def _lock(name: str) -> Path:
    return labs_root() / f".{name}.lock"


def _mounts(folder: Path) -> list[str]:
    """Return the mounts below a lab's folder that this mount namespace sees."""
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        target = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), line.split()[1])
        if folder in (Path(target), *Path(target).parents):
            found.append(target)
    return found


def _loops(folder: Path) -> list[str]:
    """Return the loop devices whose file lies below a lab's folder."""
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            file = backing.read_text().strip().removesuffix(" (deleted)")
        except OSError:
            continue
        if folder in Path(file).parents:
            found.append(f"/dev/{backing.parts[3]}")
    return found
