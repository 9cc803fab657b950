"""What every part of the API works on: the lab's state, one request, and a route."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from provision.lab.api.access import Access, Auth
from provision.lab.api.configs import Configs
from provision.lab.api.errors import ApiError
from provision.lab.api.schema import Field, Params, Value
from provision.lab.api.storages import Storage, Storages
from provision.lab.api.store import read_json, write_json
from provision.lab.api.tasks import Tasks, Work
from provision.lab.contracts import GuestError, Guests, Hypervisor, PciDevice

NODE = Field(required=True)
# Seconds until lists ask an unreachable hypervisor again.
_ASK_AGAIN = 30.0
STATD_SECONDS = 10.0


class Lab:
    """The state of one lab's API; everything that must survive is in files.

    Args:
        folder: state folder.
        guests: runs guests.
        hypervisor: the hypervisor VM.
        node: the node's name.
        bridges: names of its bridges; one that begins with `ovs` is Open vSwitch's.
        storages: its storages.
        address: its IPv4 address with prefix length, for `network` and `cluster/status`.
    """

    def __init__(
        self,
        folder: Path,
        guests: Guests,
        hypervisor: Hypervisor,
        *,
        node: str,
        bridges: tuple[str, ...],
        storages: tuple[Storage, ...],
        address: str,
    ) -> None:
        self.folder = folder
        self.guests = guests
        self.hypervisor = hypervisor
        self.node = node
        self.bridges = bridges
        self.address = address
        self.access = Access(folder)
        self.tasks = Tasks(folder / "tasks", node)
        self.configs = Configs(folder / "qemu-server", node)
        self.storages = Storages(folder / "storage", storages, node)
        self.mapping_lock = threading.Lock()
        self.disk_lock = threading.RLock()
        self.card_lock = threading.Lock()
        self.reserved: dict[str, int] = {}  # PCI functions of VMs that are being started
        self._cpus: int | None = None
        self._asked_cpus = -_ASK_AGAIN
        self._figures: dict[int, dict[str, Any]] = {}
        self._figures_at = -STATD_SECONDS

    def facts(self) -> dict[str, Any]:
        """Return the hypervisor's facts; 595 while it cannot be reached."""
        try:
            facts = dict(self.hypervisor.facts())
        except (GuestError, OSError) as error:
            raise ApiError(595, f"hypervisor cannot be reached: {error}".splitlines()[0]) from error
        self._cpus = int(str(facts["cpus"]))
        return facts

    def cpus(self) -> int | None:
        """Return the hypervisor's processors, or None as long as it was never reached."""
        if self._cpus is None and time.monotonic() - self._asked_cpus >= _ASK_AGAIN:
            self._asked_cpus = time.monotonic()
            try:
                self.facts()
            except ApiError:
                return None
        return self._cpus

    def figures(self, look: Callable[[], dict[int, dict[str, Any]]]) -> dict[int, dict[str, Any]]:
        """Return what pvestatd saw of all VMs; it looks every ten seconds."""
        if time.monotonic() - self._figures_at >= STATD_SECONDS:
            self._figures, self._figures_at = look(), time.monotonic()
        return self._figures

    def mappings(self) -> dict[str, dict[str, Any]]:
        """Return PCI mappings by id."""
        mappings: dict[str, dict[str, Any]] = read_json(self.folder / "mapping" / "pci.json", {})
        return mappings

    def save_mappings(self, mappings: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the PCI mappings."""
        write_json(self.folder / "mapping" / "pci.json", mappings)

    def run_file(self, vmid: int) -> Path:
        """Return the file with when a guest was started and which PCI functions it holds."""
        return self.folder / "run" / f"{vmid}.json"

    def pci(self) -> Mapping[str, PciDevice]:
        """Return functions by address; 595 while the hypervisor cannot be reached."""
        try:
            return {pci_device.address: pci_device for pci_device in self.hypervisor.pci_devices()}
        except (GuestError, OSError) as error:
            raise ApiError(595, f"hypervisor cannot be reached: {error}".splitlines()[0]) from error


@dataclass(frozen=True, slots=True)
class Call:
    """One checked request."""

    lab: Lab
    auth: Auth
    params: Mapping[str, Value]

    def text(self, name: str, default: str = "") -> str:
        """Return a string parameter."""
        value = self.params.get(name, default)
        return value if isinstance(value, str) else str(value)

    def number(self, name: str, default: int = 0) -> int:
        """Return an integer parameter."""
        value = self.params.get(name, default)
        return value if isinstance(value, int) else int(str(value))

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean parameter."""
        return bool(self.number(name, int(default)))

    def items(self, name: str) -> list[str]:
        """Return an array parameter."""
        value = self.params.get(name, [])
        return value if isinstance(value, list) else [str(value)]

    @property
    def vmid(self) -> int:
        """The VM's number."""
        return self.number("vmid")

    def may(self, path: str, *privs: str, some: bool = False) -> bool:
        """Say whether the caller holds privileges."""
        return self.lab.access.may(self.auth, path, *privs, some=some)

    def check(self, path: str, *privs: str, some: bool = False) -> None:
        """Raise 403 unless the caller holds privileges."""
        self.lab.access.check(self.auth, path, *privs, some=some)

    def start(self, kind: str, subject: str, work: Work) -> str:
        """Start a task and return its UPID."""
        return self.lab.tasks.start(self.auth, kind, subject, work)


@dataclass(frozen=True, slots=True)
class Need:
    """Privileges that a method needs before anything else is looked at.

    Args:
        path: access path; `{name}` is a part of the request's path.
        privs: their names.
        some: one of them is enough.
    """

    path: str
    privs: tuple[str, ...]
    some: bool = False


@dataclass(frozen=True, slots=True)
class Total:
    """A result that also says how many there are (tasks, logs)."""

    data: Any
    total: int


@cache
def _form(pattern: str) -> re.Pattern[str]:
    text = re.escape(pattern).replace(r"\{", "{").replace(r"\}", "}")
    text = re.sub(r"\{(\w+)\\\*\}", r"(?P<\1>.+)", text)
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", text))


@dataclass(frozen=True, slots=True)
class Route:
    """One method of the API.

    Args:
        method: GET, POST, PUT or DELETE.
        pattern: path; `{name}` is one part, `{name*}` the rest.
        handler: answers a checked request.
        params: known parameters, those of the path among them.
        need: privileges; None for methods that check by themselves.
        public: needs no login.
    """

    method: str
    pattern: str
    handler: Callable[[Call], Any]
    params: Params = field(default_factory=Params)
    need: Need | None = None
    public: bool = False

    def match(self, method: str, path: str) -> dict[str, str] | None:
        """Return the path's parameters, or None for another path."""
        if method != self.method:
            return None
        match = _form(self.pattern).fullmatch(path)
        return match.groupdict() if match else None
