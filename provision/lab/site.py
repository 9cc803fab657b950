"""Starts a lab, reports its state, and removes it completely. Idempotent; safe after a kill at any point."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import NoReturn

from provision.lab import (
    accel,
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
    IMAGE,
    IMAGE_PORT,
    OVERLAY,
    LabError,
    LabSettings,
    lab_folder,
    labs_root,
    namespace,
)
from provision.values.suggestions import known_names
from provision.values.whole_file import write_whole

Progress = Callable[[str], None]
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_INOTIFY_INSTANCES = 4096
_DNS_PORT = 53
# Much longer than a boot takes: a machine of two cores may run three emulated machines at once.
_BOOT_DEADLINE = 900.0
_CONTAINER_DEADLINE = 300.0
_DAEMON_DEADLINE = 300.0
_ANNOUNCE_AFTER = 15.0
_TAIL = 25
_TRY_AGAIN = (
    "start the stopped parts and wait again: `provision lab up INVENTORY`; "
    "to start from scratch, first run `provision lab down INVENTORY`"
)
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a lab.

    Args:
        kind: daemon, router, hypervisor or guest.
        name: as `console` takes it.
        state: up, starting (it runs and does not answer yet) or down; a guest is up or off.
        pid: its process.
        detail: further information as text, or empty.
    """

    kind: str
    name: str
    state: str
    pid: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Status:
    """The current state of a lab.

    Args:
        name: the lab's name.
        driver: `qemu` or `container`; empty when there is no lab.
        up: everything except the guests runs and answers.
        parts: its parts.
    """

    name: str
    driver: str
    up: bool
    parts: tuple[Part, ...]


def up(settings: LabSettings, progress: Progress) -> Path:
    """Start a lab and return its inventory overlay; parts that already run are not restarted.

    Args:
        settings: the lab. A lab that exists with other settings is refused.
        progress: called with one line before every slow operation.

    Raises:
        LabError: something is missing or did not start; the text has the end of its console.
    """
    if os.geteuid() != 0:
        raise LabError("the lab needs root to create network namespaces, containers and virtual machines")
    folder = settings.folder
    labs_root().mkdir(parents=True, exist_ok=True)
    with _hold_lock(settings.name, progress):
        packages.install(packages.missing(settings.driver), progress)
        make_room(progress)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
        for name in ("keys", "console", "guests"):
            (folder / name).mkdir(exist_ok=True, mode=0o700)
        lab = _load_record(settings) or _create_record(settings, progress)
        netns.ensure(settings)
        return _start(lab, progress)


def _load_record(settings: LabSettings) -> Record | None:
    """Return the lab's record, or None if there is none or its images were removed from the cache."""
    if not (settings.folder / record.FILE).exists():
        return None
    refuse_other(settings)
    known = record.load(settings.folder)
    if not images.use(known.images):
        return None
    return replace(known, accelerator=_accelerator(known.images))


def _create_record(settings: LabSettings, progress: Progress) -> Record:
    for name in settings.images:
        if name.removesuffix("-lvm") != IMAGE:
            progress(f"the image {name} is replaced by the lab's own Debian")
    made = images.prepare(settings, progress, images_in_use)
    lab = Record(settings, made, _accelerator(made))
    record.save(lab)
    return lab


def refuse_other(settings: LabSettings) -> None:
    """Check that no lab of this name exists with other settings.

    Raises:
        LabError: one exists; the text names the settings that differ.
    """
    if others := differences(settings):
        summary = f"the lab {settings.name} runs with other settings ({others})"
        raise LabError(summary, "remove it with `provision lab down INVENTORY`, then run the command again")


def differences(settings: LabSettings) -> str:
    """Return the names of the settings in which an existing lab differs; empty if there is no lab."""
    try:
        known = record.load(settings.folder).settings
    except LabError:
        return ""
    names = (field.name for field in fields(settings))
    others = [name for name in names if getattr(settings, name) != getattr(known, name)]
    return ", ".join(others).replace("_", " ")


def images_in_use() -> frozenset[Path]:
    """Return the image folders of all known labs: those in the lab folder and those with a process."""
    folders: set[Path] = set()
    for lab_dir in {*labs_root().iterdir(), *processes.labs()}:
        with contextlib.suppress(LabError):
            folders |= record.load(lab_dir).images.folders
    return frozenset(folders)


def _accelerator(made: images.Images) -> tuple[str, ...]:
    return accel.choose(made.vm / "vmlinuz") if made.vm else ()


def make_room(progress: Progress, file: Path = _INOTIFY) -> None:
    """Raise the limit of inotify instances, which a dozen containers exhaust.

    The default limit is 128 and the systemd of one container takes nine (inotify(7)).
    """
    try:
        limit = int(file.read_text())
    except (OSError, ValueError):
        return
    if limit < _INOTIFY_INSTANCES:
        progress(
            f"raising fs.inotify.max_user_instances of this machine from {limit} to {_INOTIFY_INSTANCES}"
        )
        # If the limit cannot be raised, a small lab still starts.
        with contextlib.suppress(OSError):
            file.write_text(f"{_INOTIFY_INSTANCES}\n")


def _start(lab: Record, progress: Progress) -> Path:
    settings, folder = lab.settings, lab.settings.folder
    space = namespace(folder)
    keys.ensure_ssh_key(folder / "keys/guest", "provision lab guest")
    fingerprint = keys.ensure_certificate(folder / "keys", settings)
    gate = router.container(settings, lab.images.rootfs)
    head = _hypervisor(lab)
    if None in (gate.pid(), head.pid(), processes.read_pid(folder / "daemon.pid")):
        # The overlay says that the whole lab is ready, so one of an earlier boot must not be used.
        settings.overlay.unlink(missing_ok=True)
    try:
        if gate.pid() is None:
            progress("starting the router")
            router.prepare(settings, gate)
            gate.start()
        if head.pid() is None:
            _start_hypervisor(lab, head, progress)
        pins = _pin_hosts(settings)
        _start_daemon(settings, progress)
        # A guest that boots before the router serves gets neither address nor time, and fails minutes later.
        gateway, (name, address) = settings.gateway, settings.hypervisor
        for machine, what, answers in (
            (gate, "SSH of the router", lambda: netns.ssh_banner(space, gateway)),
            (gate, "dnsmasq of the router", lambda: netns.listens(space, gateway, _DNS_PORT)),
            (gate, "chrony of the router", lambda: netns.serves_time(space, gateway)),
            (head, f"SSH of {name}", lambda: netns.ssh_banner(space, address)),
            (head, f"the API's own login to {name}", lambda: bool(_connection(lab).facts())),
            (head, f"the API at {name}", lambda: netns.listens(space, address, API_PORT)),
        ):
            _await(machine, what, answers, progress)
    except GuestError as error:
        raise LabError(str(error), _TRY_AGAIN) from error
    text = record.overlay(lab, api_fingerprint=fingerprint, token_id=TOKEN_ID, host_keys=pins)
    write_whole(settings.overlay, text, 0o644)
    return settings.overlay


def _hypervisor(lab: Record) -> Container | Machine:
    if lab.settings.driver == "qemu":
        return hypervisor_machine.vm(lab.settings)
    return hypervisor_machine.container(lab.settings, lab.images.rootfs)


def _start_hypervisor(lab: Record, head: Container | Machine, progress: Progress) -> None:
    if isinstance(head, Container):
        progress("starting the hypervisor (as a container)")
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
    write_whole(folder / "known_hosts", "".join(lines), 0o644)
    return pins


def _start_daemon(settings: LabSettings, progress: Progress) -> None:
    folder, space = settings.folder, namespace(settings.folder)
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
        write_whole(folder / "daemon.pid", f"{started.pid}\n", 0o644)
        # The child carries the mark only after exec.
        while processes.read_pid(folder / "daemon.pid") is None and started.poll() is None:
            time.sleep(0.01)
    deadline = time.monotonic() + _DAEMON_DEADLINE
    while not all(netns.listens(space, settings.host_address, port) for port in (IMAGE_PORT, API_PORT)):
        ended = processes.read_pid(folder / "daemon.pid") is None
        if ended or time.monotonic() > deadline:
            logs = "".join(
                f"\n{file}:\n{_last_lines(file)}" for file in (folder / "daemon.out", folder / "daemon.log")
            )
            failure = "ended" if ended else f"did not listen in {_DAEMON_DEADLINE:.0f} s"
            raise LabError(f"the lab's API {failure}{logs}", _TRY_AGAIN)
        time.sleep(0.1)


def _await(machine: Container | Machine, what: str, answers: Callable[[], bool], progress: Progress) -> None:
    """Wait until a service of a machine answers; report a long wait.

    Raises:
        LabError: it did not answer in time; the text has the end of the machine's console.
    """
    timeout = _BOOT_DEADLINE if isinstance(machine, Machine) else _CONTAINER_DEADLINE
    start, announced, last_error = time.monotonic(), False, ""
    while True:
        try:
            if answers():
                return
        except GuestError as error:
            last_error = f" ({error})"
        ended, waited = machine.pid() is None, time.monotonic() - start
        if waited > _ANNOUNCE_AFTER and not announced:
            announced = True
            progress(f"waiting for {what}")
        if ended or waited > timeout:
            failure = "the machine stopped" if ended else f"no answer in {timeout:.0f} s{last_error}"
            summary = f"{what}: {failure}; {machine.console} ends with\n{_last_lines(machine.console)}"
            raise LabError(summary, _TRY_AGAIN)
        time.sleep(0.1)


def _last_lines(log: Path) -> str:
    """Return the last non-empty lines of a log, without colours."""
    try:
        lines = _COLOUR.sub("", log.read_text(errors="replace")).splitlines()
    except OSError as error:
        return error.strerror or ""
    return "\n".join([line for line in lines if line.strip()][-_TAIL:])


def down(name: str, progress: Progress = lambda _: None) -> bool:
    """Remove every process, namespace, mount, loop device and file of a lab; images stay in the cache.

    Returns:
        Whether anything of the lab existed.

    Raises:
        LabError: something could not be removed; the text names it.
    """
    folder = lab_folder(name)
    labs_root().mkdir(parents=True, exist_ok=True)
    with _hold_lock(name, progress):
        existed = bool(leftovers(name))
        for _ in range(5):
            spaces = netns.names(folder)
            pids = processes.of_lab(folder, spaces) | processes.in_cgroups(folder)
            if not pids:
                break
            processes.end(pids, grace=0)
        for mount in sorted(_mounts(folder), reverse=True):
            subprocess.run(["umount", "-l", mount], capture_output=True, check=False)
        for device in _loops(folder):
            subprocess.run(["losetup", "-d", device], capture_output=True, check=False)
        for space in netns.names(folder):
            netns.remove(space)
        processes.remove_cgroups(folder)
        shutil.rmtree(folder, ignore_errors=True)
        remaining = leftovers(name)
        _lock(name).unlink(missing_ok=True)
    if remaining:
        remedy = "stop your own processes that use it, then run `provision lab down INVENTORY`"
        summary = f"the lab {name} could not be removed completely; remaining: {', '.join(remaining)}"
        raise LabError(summary, remedy)
    return existed


def leftovers(name: str) -> tuple[str, ...]:
    """Return a description of everything that exists of a lab; empty for a lab that is down."""
    folder = lab_folder(name)
    spaces = netns.names(folder)
    pids = processes.of_lab(folder, spaces) | processes.in_cgroups(folder)
    remaining = [f"process {pid}" for pid in sorted(pids)]
    remaining += [f"namespace {space}" for space in spaces]
    remaining += [f"mount {mount}" for mount in _mounts(folder)]
    remaining += [f"loop device {device}" for device in _loops(folder)]
    if folder.exists():
        remaining.append(f"folder {folder}")
    return tuple(remaining)


def status(name: str) -> Status:
    """Return the state of a lab; one that does not exist is down."""
    folder = lab_folder(name)
    try:
        lab = record.load(folder)
    except LabError:
        return Status(name, "", up=False, parts=())
    settings, space = lab.settings, namespace(folder)
    api = processes.read_pid(folder / "daemon.pid")
    listens = api is not None and netns.listens(space, settings.host_address, API_PORT)
    parts = [_part("daemon", "api", api, ready=listens, missing=f"does not listen; {folder / 'daemon.log'}")]
    machines = (
        ("router", "router", settings.gateway, router.container(settings, lab.images.rootfs)),
        ("hypervisor", *settings.hypervisor, _hypervisor(lab)),
    )
    for kind, known_as, address, machine in machines:
        pid = machine.pid()
        ready = pid is not None and netns.ssh_banner(space, address)
        parts.append(_part(kind, known_as, pid, ready=ready, missing="SSH does not answer"))
    # The overlay is written last, so its presence means that the lab is ready.
    running = all(part.state == "up" for part in parts) and (folder / OVERLAY).exists()
    for guest in sorted((folder / "guests").glob("[0-9]*")):
        pid, vmid = processes.read_pid(guest / "pid"), int(guest.name)
        state = "off" if pid is None else "up"
        parts.append(Part("guest", record.name_of(folder, vmid), state, pid, f"VM {vmid}"))
    return Status(name, settings.driver, running, tuple(parts))


def _part(kind: str, name: str, pid: int | None, *, ready: bool, missing: str) -> Part:
    if ready or pid is None:
        return Part(kind, name, "up" if ready else "down", pid, "")
    return Part(kind, name, "starting", pid, missing)


def console(name: str, node: str) -> Path:
    """Return the console log of a machine: `router`, the hypervisor's name, or a VM's name.

    Raises:
        LabError: there is none; the remedy names the existing ones.
    """
    folder = lab_folder(name) / "console"
    known = sorted(file.stem for file in folder.glob("*.log"))
    if not known:
        raise LabError(
            f"the lab {name} is not up, so it has no consoles", "start it: `provision lab up INVENTORY`"
        )
    if node not in known:
        raise LabError(f"the lab {name} has no console of {node!r}", known_names(node, known))
    return folder / f"{node}.log"


def enter(name: str, argv: list[str]) -> NoReturn:
    """Replace this process by `argv` inside the lab's network namespace; mounts and environment stay.

    Raises:
        LabError: the lab is not up, or there is no such program.
    """
    netns.join(namespace(lab_folder(name)))
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - no shell is the point
    except OSError as error:
        raise LabError(f"{argv[0]}: {error.strerror}") from error


def hypervisor(name: str) -> SshHypervisor:
    """Return the lab's own connection to its hypervisor, from outside the namespace."""
    return _connection(record.load(lab_folder(name)))


def _connection(lab: Record) -> SshHypervisor:
    settings, folder = lab.settings, lab.settings.folder
    stand_in = settings.driver == "container"
    return SshHypervisor(folder, settings.hypervisor[1], namespace(folder), stand_in=stand_in)


@contextlib.contextmanager
def _hold_lock(name: str, progress: Progress) -> Iterator[None]:
    """Hold the lock of a lab."""
    message = f"waiting for another 'lab up' or 'lab down' of {name} to finish"
    with exclusive(_lock(name), waiting=lambda: progress(message)):
        yield


def _lock(name: str) -> Path:
    return labs_root() / f".{name}.lock"


def _mounts(folder: Path) -> list[str]:
    """Return the mounts below a lab's folder that this mount namespace sees."""
    mount_points = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        target = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), line.split()[1])
        if folder in (Path(target), *Path(target).parents):
            mount_points.append(target)
    return mount_points


def _loops(folder: Path) -> list[str]:
    """Return the loop devices whose backing file is below a lab's folder."""
    devices = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            file = backing.read_text().strip().removesuffix(" (deleted)")
        except OSError:
            continue
        if folder in Path(file).parents:
            devices.append(f"/dev/{backing.parts[3]}")
    return devices
