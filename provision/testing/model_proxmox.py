"""A Proxmox VE that lives in memory: an ApiConnection with the behaviour that was measured on a real one.

It refuses impossible states (a number used twice, a disk that shrinks, a VM without its mapping), keeps
pending keys of running VMs, checks digests and ends every task at once.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from provision.connections.contracts import ApiError
from provision.connections.https import plain
from provision.proxmox.driver import ProxmoxDriver
from provision.proxmox.formats import NIC_MODELS, join, parse

ALL_RIGHTS = re.findall(
    r"\S+",
    "Datastore.Allocate Datastore.AllocateSpace Datastore.AllocateTemplate Datastore.Audit Mapping.Audit"
    " Mapping.Modify Mapping.Use SDN.Use Sys.AccessNetwork Sys.Audit Sys.Modify VM.Allocate VM.Audit"
    " VM.Config.CDROM VM.Config.CPU VM.Config.Cloudinit VM.Config.Disk VM.Config.HWType VM.Config.Memory"
    " VM.Config.Network VM.Config.Options VM.PowerMgmt",
)
LIVE = re.compile(
    r"name|description|onboot|protection|startup|tags|cicustom|net\d+|usb\d+|scsi\d+|sshkeys|ci\w+|ipconfig\d+"
)
MIB = 1024 * 1024
LOGIN = "provision@pve!model"
"""Who its tasks are from."""


@dataclass
class ModelVm:
    """One VM of the model.

    Args:
        vmid: its number.
        config: active values.
        pending: what waits for a power cycle.
        running: whether it runs.
        snapshots: names of snapshots that somebody made, with the volumes that each needs.
        images: how many disks it got from an image after its creation: its system is a new one then.
    """

    vmid: int
    config: dict[str, str]
    pending: dict[str, str | None] = field(default_factory=dict)
    running: bool = False
    images: int = 0
    snapshots: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Digest of the configuration with what is pending."""
        text = json.dumps([self.config, self.pending], sort_keys=True)
        return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@dataclass
class ModelProxmox:
    """A hypervisor's API; an ApiConnection.

    Args:
        node: node name.
        vms: VMs by number.
        others: further entries of the VM list: containers, VMs of other nodes.
        volumes: volumes by storage.
        swapped: volumes whose content is not what their digest says.
        storages: what the list of storages says differently of one (`content`, `enabled`, `active`).
        bridges: kinds of bridges by name.
        mappings: PCI mappings by id: their entries.
        usb: USB mappings by id: their entries.
        descriptions: texts of mappings by id.
        problems: what the node's check says of mappings, by id.
        rights: privileges by path.
        on_power: called with a VM and whether it runs now.
        faults: next answers by (method, path): an exception that is raised once.
        log: all requests, in order.
        requests: how many there were.
        pools: the pool of each VM that has one.
        vms_elsewhere: VMs of other nodes of its cluster, which this node asks for.
        has_root: a driver of it can log in as root@pam.
    """

    node: str = "pve"
    vms: dict[int, ModelVm] = field(default_factory=dict)
    others: list[dict[str, Any]] = field(default_factory=list)
    volumes: dict[str, list[str]] = field(default_factory=lambda: {"local": [], "local-lvm": []})
    swapped: set[str] = field(default_factory=set)
    storages: dict[str, dict[str, object]] = field(default_factory=dict)
    bridges: dict[str, str] = field(default_factory=lambda: {"vmbr0": "bridge"})
    mappings: dict[str, list[str]] = field(default_factory=dict)
    usb: dict[str, list[str]] = field(default_factory=dict)
    descriptions: dict[str, str] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)
    rights: dict[str, dict[str, int]] = field(default_factory=lambda: {"/": dict.fromkeys(ALL_RIGHTS, 1)})
    on_power: Callable[[ModelVm, bool], None] | None = None
    faults: dict[tuple[str, str], Exception] = field(default_factory=dict)
    log: list[tuple[str, str, dict[str, object]]] = field(default_factory=list)
    requests: int = 0
    has_root: bool = False
    _by_root: bool = field(default=False, repr=False)
    pools: dict[int, str] = field(default_factory=dict)
    vms_elsewhere: dict[int, ModelVm] = field(default_factory=dict)
    _tasks: dict[str, str] = field(default_factory=dict)

    def driver(self, system: str = "pve/api") -> ProxmoxDriver:
        """Return the real driver over this model."""
        root = _AsRoot(self) if self.has_root else None
        return ProxmoxDriver(system, self, self.node, login=LOGIN, root=root)

    def close(self) -> None:
        """Do nothing."""

    def dump(self) -> dict[str, object]:
        """Return the whole state as plain values, to be compared."""
        return {
            "vms": {
                str(vm.vmid): [dict(sorted(vm.config.items())), dict(vm.pending), vm.running]
                for vm in self.vms.values()
            },
            "volumes": {storage: sorted(names) for storage, names in self.volumes.items()},
            "mappings": {name: sorted(entries) for name, entries in self.mappings.items()},
            "usb": {name: sorted(entries) for name, entries in self.usb.items()},
        }

    def request(self, method: str, path: str, data: Mapping[str, object] | None = None) -> object:
        """Answer one request; see ApiConnection."""
        self.requests += 1
        sent = plain(data or {})
        self.log.append((method, path, dict(sent)))
        fault = self.faults.pop((method, path), None)
        if fault is not None:
            raise fault
        for pattern, verb, handler in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match is not None and verb == method:
                return handler(self, sent, *match.groups())
        raise ApiError(501, f"Method '{method} {path}' not implemented")

    # ------------------------------------------------------------ reading

    def _permissions(self, _data: dict[str, object]) -> object:
        return self.rights

    def _resources(self, data: dict[str, object]) -> object:
        if not any("VM.Audit" in right for right in self.rights.values()):
            return []
        rows = self._qemu(data)
        own = [{**row, "node": self.node, "type": "qemu"} for row in rows if isinstance(row, dict)]
        for row in own:
            row.update({"pool": self.pools[row["vmid"]]} if row["vmid"] in self.pools else {})
        return [*own, *self.others]

    def _qemu(self, _data: dict[str, object]) -> list[object]:
        if not any("VM.Audit" in right for right in self.rights.values()):
            return []
        return [
            {
                "vmid": vm.vmid,
                "name": vm.config.get("name", f"VM {vm.vmid}"),
                "status": "running" if vm.running else "stopped",
                "tags": vm.config.get("tags", ""),
                "maxmem": int(vm.config.get("memory", "512").removeprefix("current=")) * MIB,
            }
            for vm in self.vms.values()
        ]

    def _store(self, bus: str) -> dict[str, list[str]]:
        return self.usb if bus == "usb" else self.mappings

    def _mapping_list(self, _data: dict[str, object], bus: str) -> object:
        return [
            {
                "id": name,
                "map": list(entries),
                "checks": [
                    {"severity": "error", "message": problem} for problem in self.problems.get(name, ())
                ],
                "digest": _sha(entries),
                "type": bus,
                "description": self.descriptions.get(name, ""),
            }
            for name, entries in self._store(bus).items()
        ]

    def _content(self, _data: dict[str, object], storage: str) -> object:
        if storage not in self.volumes:
            raise ApiError(500, f"storage '{storage}' does not exist")
        return [{"volid": volume, "content": "import", "size": 1} for volume in self.volumes[storage]]

    def _storages(self, _data: dict[str, object]) -> object:
        listed = {storage: {"storage": storage, **_STORAGE} for storage in self.volumes}
        for storage, flags in self.storages.items():
            listed[storage] = {**listed.get(storage, {"storage": storage, **_STORAGE}), **flags}
        return list(listed.values())

    def _bridges(self, _data: dict[str, object]) -> object:
        return [{"iface": name, "type": kind, "active": 1} for name, kind in self.bridges.items()]

    def _pending(self, _data: dict[str, object], vmid: str) -> object:
        vm = self.vms_elsewhere.get(int(vmid)) or self._vm(vmid)
        rows: list[dict[str, object]] = [{"key": "digest", "value": vm.digest}]
        for key in sorted({*vm.config, *vm.pending}):
            row: dict[str, object] = {"key": key}
            if key in vm.config:
                row["value"] = vm.config[key]
            if key in vm.pending:
                row.update({"delete": 1} if vm.pending[key] is None else {"pending": vm.pending[key]})
            rows.append(row)
        return rows

    def _task_list(self, data: dict[str, object]) -> object:
        """List the tasks about one VM; one without an exit status runs."""
        rows: list[dict[str, object]] = []
        for start, (upid, status) in enumerate(self._tasks.items()):
            kind, about = upid.split(":")[5:7]
            if about == str(data["vmid"]):
                rows.append({"upid": upid, "type": kind, "starttime": start})
                rows[-1] |= {"endtime": start, "status": status} if status else {}
        return rows

    def interrupt_creation(self, vmid: int, *, running: bool = False, login: str = LOGIN) -> None:
        """Leave of a VM what a killed worker leaves: the lock, and a disk that nothing names.

        Args:
            vmid: its number.
            running: the worker is still alive.
            login: who began the task.
        """
        upid = self._begin("qmcreate", str(vmid), "" if running else "unexpected status")
        if login != LOGIN:
            self._tasks[upid.replace(LOGIN, login)] = self._tasks.pop(upid)
        self.vms[vmid] = ModelVm(vmid, {"lock": "create"})

    def _task(self, _data: dict[str, object], upid: str) -> object:
        return {"status": "stopped", "exitstatus": self._tasks[unquote(upid)]}

    def _task_log(self, _data: dict[str, object], upid: str) -> object:
        status = self._tasks[unquote(upid)]
        return [{"n": 1, "t": "TASK OK" if status == "OK" else f"TASK ERROR: {status}"}]

    # ------------------------------------------------------------ VMs

    def _vm(self, vmid: str) -> ModelVm:
        if int(vmid) not in self.vms:
            raise ApiError(
                500, f"Configuration file 'nodes/{self.node}/qemu-server/{vmid}.conf' does not exist"
            )
        return self.vms[int(vmid)]

    def _begin(self, kind: str, about: str, error: str = "OK") -> str:
        number = len(self._tasks) + 1
        upid = f"UPID:{self.node}:{number:08X}:0000ABCD:6B0C2B82:{kind}:{about}:{LOGIN}:"
        self._tasks[upid] = error
        return upid

    def _create(self, data: dict[str, object]) -> object:
        vmid = int(str(data.pop("vmid")))
        if vmid in self.vms or any(other["vmid"] == vmid for other in self.others):
            raise ApiError(
                500, f"unable to create VM {vmid} - VM {vmid} already exists on node '{self.node}'"
            )
        config = {key: str(value) for key, value in data.items()}
        for key, value in config.items():
            self._check_root(key, value)
        pool = config.pop("pool", "")
        for key in sorted(config):
            try:
                config[key] = self._stored(vmid, key, config[key])
            except ValueError as error:
                return self._begin("qmcreate", str(vmid), str(error))
        self.vms[vmid] = ModelVm(vmid, config)
        if pool:
            self.pools[vmid] = pool
        return self._begin("qmcreate", str(vmid))

    def _stored(self, vmid: int, key: str, text: str) -> str:
        """Return a value as PVE keeps it: drives get their volume, tags are sorted."""
        if key == "tags":
            return ";".join(sorted({word.lower() for word in re.split("[;, ]", text) if word}))
        if re.fullmatch(r"(scsi|virtio|sata|ide|efidisk|tpmstate)\d+", key):
            return self._drive(vmid, key, text)
        if key.startswith("net"):
            parts = parse(text)
            model = next((nic_model for nic_model in NIC_MODELS if nic_model in parts), "virtio")
            return join({model: parts.pop(model, "BC:24:11:00:00:00"), **parts})
        return text

    def _drive(self, vmid: int, key: str, text: str) -> str:
        parts = parse(text)
        storage, _, size = parts.get("", "").partition(":")
        if storage not in self.volumes:
            raise ValueError(f"storage '{storage}' does not exist")
        if not size.isdecimal():
            if size == "cloudinit":
                return f"{storage}:vm-{vmid}-cloudinit,media=cdrom"
            if size.startswith("iso/") and parts[""] not in self.volumes[storage]:
                raise ValueError(f"volume '{parts['']}' does not exist")
            return text
        image = parts.pop("import-from", "")
        if image:
            if image not in self.volumes.get(image.partition(":")[0], []):
                raise ValueError(f"volume '{image}' does not exist")
            size = "2"
        volume = f"{storage}:vm-{vmid}-{key}"
        self.volumes[storage].append(volume)
        parts[""] = volume
        return join({**parts, "size": f"{size}G"})

    def _check_root(self, key: str, *values: str | None) -> None:
        """Refuse what only root@pam may set or remove: a device without a mapping."""
        raw = any(value and "mapping=" not in value for value in values)
        if raw and re.fullmatch(r"hostpci\d+", key) and not self._by_root:
            raise ApiError(500, f"only root can set '{key}' config for non-mapped devices")
        real = any(value and not re.search(r"mapping=|spice", value) for value in values)
        if real and re.fullmatch(r"usb\d+", key) and not self._by_root:
            raise ApiError(500, f"only root can set '{key}' config for real devices")

    def as_root(self, method: str, path: str, data: Mapping[str, object] | None = None) -> object:
        """Answer a request that root@pam sends with a ticket."""
        self._by_root = True
        try:
            return self.request(method, path, data)
        finally:
            self._by_root = False

    def _config(self, data: dict[str, object], vmid: str) -> object:
        vm = self._vm(vmid)
        for key in (*data, *str(data.get("delete", "")).split(",")):
            new = str(data[key]) if key in data else None
            self._check_root(key, vm.config.get(key), new)
        digest = data.pop("digest", None)
        if digest is not None and digest != vm.digest:
            raise ApiError(500, "checksum mismatch (file change by other user?)")
        for key in [word for word in str(data.pop("delete", "")).split(",") if word]:
            self._set(vm, key, None)
        for key, value in data.items():
            vm.images += "import-from=" in str(value)
            self._set(vm, key, self._stored(vm.vmid, key, str(value)))
        return None

    def _config_task(self, data: dict[str, object], vmid: str) -> object:
        try:
            self._config(data, vmid)
        except ValueError as error:
            return self._begin("qmconfig", vmid, str(error))
        return self._begin("qmconfig", vmid)

    def _unlink(self, data: dict[str, object], vmid: str) -> object:
        vm = self._vm(vmid)
        for key in str(data["idlist"]).split(","):
            volume = parse(vm.config.get(key, "")).get("", "")
            if data.get("force") and any(volume in kept for kept in vm.snapshots.values()):
                raise ApiError(500, f"unable to delete '{volume}' - volume is still in use (snapshot?)")
            vm.config.pop(key, None)
            storage = volume.partition(":")[0]
            if data.get("force") and volume in self.volumes.get(storage, ()):
                self.volumes[storage].remove(volume)
        return None

    @staticmethod
    def _set(vm: ModelVm, key: str, value: str | None) -> None:
        if vm.running and not LIVE.fullmatch(key):
            if vm.config.get(key) == value:
                vm.pending.pop(key, None)
            else:
                vm.pending[key] = value
        elif value is None:
            vm.config.pop(key, None)
        else:
            vm.config[key] = value

    def _resize(self, data: dict[str, object], vmid: str) -> object:
        vm = self._vm(vmid)
        parts = parse(vm.config[str(data["disk"])])
        old, new = int(parts["size"].rstrip("G")), int(str(data["size"]).rstrip("G"))
        if new < old:
            return self._begin("resize", vmid, "shrinking disks is not supported")
        parts["size"] = f"{new}G"
        vm.config[str(data["disk"])] = join(parts)
        return self._begin("resize", vmid)

    def _start(self, _data: dict[str, object], vmid: str) -> object:
        vm = self._vm(vmid)
        if vm.running:
            return self._begin("qmstart", vmid, f"VM {vmid} already running")
        for key, text in vm.config.items():
            name = parse(text).get("mapping") if key.startswith("hostpci") else None
            if name is not None and name not in self.mappings:
                return self._begin("qmstart", vmid, f"PCI device mapping not found for '{name}'")
            if name is not None and self._taken(name, vmid) >= len(self.mappings[name]):
                return self._begin("qmstart", vmid, f"could not find a free device for '{key}'")
        self._power(vm, on=True)
        return self._begin("qmstart", vmid)

    def _taken(self, mapping: str, vmid: str) -> int:
        """Return how many other running VMs have a card of a mapping."""
        return sum(
            parse(text).get("mapping") == mapping
            for vm in self.vms.values()
            if vm.running and str(vm.vmid) != vmid
            for key, text in vm.config.items()
            if key.startswith("hostpci")
        )

    def _stop(self, _data: dict[str, object], vmid: str) -> object:
        self._power(self._vm(vmid), on=False)
        return self._begin("qmstop", vmid)

    def _power(self, vm: ModelVm, *, on: bool) -> None:
        vm.running = on
        if not on:
            pending, vm.pending = vm.pending, {}
            for key, value in pending.items():
                self._set(vm, key, value)
        if self.on_power is not None:
            self.on_power(vm, on)

    def _delete(self, _data: dict[str, object], vmid: str) -> object:
        vm = self._vm(vmid)
        if vm.running:
            raise ApiError(500, f"VM {vmid} is running - destroy failed")
        del self.vms[vm.vmid]
        for storage, names in self.volumes.items():
            self.volumes[storage] = [name for name in names if f":vm-{vmid}-" not in name]
        return self._begin("qmdestroy", vmid)

    # ------------------------------------------------------------ images and mappings

    def _download(self, data: dict[str, object], storage: str) -> object:
        name, content = str(data["filename"]), str(data["content"])
        known = (".iso", ".img") if content == "iso" else (".qcow2", ".raw", ".vmdk", ".ova")
        if not name.endswith(known):
            raise ApiError(400, "Parameter verification failed.", {"filename": "wrong file extension"})
        volume = f"{storage}:{content}/{name}"
        if volume in self.swapped:
            error = f"checksum mismatch: got '{'0' * 64}' != expect '{data['checksum']}', aborting"
            return self._begin("download", name, error)
        if volume not in self.volumes[storage]:
            self.volumes[storage].append(volume)
        return self._begin("download", name)

    def _remove(self, _data: dict[str, object], storage: str, volume: str) -> object:
        self.volumes[storage].remove(unquote(volume))
        return self._begin("imgdel", unquote(volume))

    def _mapping_create(self, data: dict[str, object], bus: str) -> object:
        name, store = str(data["id"]), self._store(bus)
        if name in store:
            raise ApiError(500, f"{bus} ID '{name}' already defined")
        store[name] = _entries(data["map"])
        self.descriptions[name] = str(data.get("description", ""))
        return None

    def _mapping_update(self, data: dict[str, object], bus: str, name: str) -> object:
        store = self._store(bus)
        if name not in store:
            raise ApiError(500, f"{bus} ID '{name}' does not exist")
        if data.get("digest", _sha(store[name])) != _sha(store[name]):
            raise ApiError(500, "detected modified configuration - file changed by other user? Try again.")
        store[name] = _entries(data["map"])
        return None

    def _mapping_delete(self, _data: dict[str, object], bus: str, name: str) -> object:
        del self._store(bus)[name]
        self.descriptions.pop(name, None)
        return None


@dataclass
class _AsRoot:
    """The API as root@pam reaches it; an ApiConnection."""

    model: ModelProxmox
    requests: int = 0

    def request(self, method: str, path: str, data: Mapping[str, object] | None = None) -> object:
        """Answer one request."""
        self.requests += 1
        return self.model.as_root(method, path, data)

    def close(self) -> None:
        """Do nothing."""


def _entries(value: object) -> list[str]:
    return [str(entry) for entry in value] if isinstance(value, list) else [str(value)]


def _sha(entries: list[str]) -> str:
    return hashlib.sha1(json.dumps(entries).encode(), usedforsecurity=False).hexdigest()


_STORAGE = {
    "type": "dir",
    "content": "images,import,iso,rootdir,snippets,vztmpl",
    "active": 1,
    "enabled": 1,
    "shared": 0,
}
_VM = r"/nodes/[^/]+/qemu/(\d+)"
_ONE_STORAGE = r"/nodes/[^/]+/storage/([^/]+)"
_ROUTES: tuple[tuple[str, str, Callable[..., object]], ...] = (
    (r"/access/permissions", "GET", ModelProxmox._permissions),  # noqa: SLF001 - the class's own table
    (r"/cluster/resources", "GET", ModelProxmox._resources),  # noqa: SLF001 - the same
    (r"/cluster/mapping/(pci|usb)", "GET", ModelProxmox._mapping_list),  # noqa: SLF001 - the same
    (r"/cluster/mapping/(pci|usb)", "POST", ModelProxmox._mapping_create),  # noqa: SLF001 - the same
    (r"/cluster/mapping/(pci|usb)/([^/]+)", "PUT", ModelProxmox._mapping_update),  # noqa: SLF001 - the same
    (r"/cluster/mapping/(pci|usb)/([^/]+)", "DELETE", ModelProxmox._mapping_delete),  # noqa: SLF001 - the same
    (r"/nodes/[^/]+/storage", "GET", ModelProxmox._storages),  # noqa: SLF001 - the same
    (r"/nodes/[^/]+/network", "GET", ModelProxmox._bridges),  # noqa: SLF001 - the same
    (_ONE_STORAGE + "/content", "GET", ModelProxmox._content),  # noqa: SLF001 - the same
    (_ONE_STORAGE + "/content/([^/]+)", "DELETE", ModelProxmox._remove),  # noqa: SLF001 - the same
    (_ONE_STORAGE + "/download-url", "POST", ModelProxmox._download),  # noqa: SLF001 - the same
    (_VM + "/pending", "GET", ModelProxmox._pending),  # noqa: SLF001 - the same
    (_VM + "/config", "PUT", ModelProxmox._config),  # noqa: SLF001 - the same
    (_VM + "/config", "POST", ModelProxmox._config_task),  # noqa: SLF001 - the same
    (_VM + "/unlink", "PUT", ModelProxmox._unlink),  # noqa: SLF001 - the same
    (_VM + "/resize", "PUT", ModelProxmox._resize),  # noqa: SLF001 - the same
    (_VM + "/status/start", "POST", ModelProxmox._start),  # noqa: SLF001 - the same
    (_VM + "/status/(?:stop|shutdown)", "POST", ModelProxmox._stop),  # noqa: SLF001 - the same
    (_VM, "DELETE", ModelProxmox._delete),  # noqa: SLF001 - the same
    (r"/nodes/[^/]+/qemu", "GET", ModelProxmox._qemu),  # noqa: SLF001 - the same
    (r"/nodes/[^/]+/qemu", "POST", ModelProxmox._create),  # noqa: SLF001 - the same
    (r"/nodes/[^/]+/tasks", "GET", ModelProxmox._task_list),  # noqa: SLF001 - the same
    (r"/nodes/[^/]+/tasks/([^/]+)/status", "GET", ModelProxmox._task),  # noqa: SLF001 - the same
    (r"/nodes/[^/]+/tasks/([^/]+)/log", "GET", ModelProxmox._task_log),  # noqa: SLF001 - the same
)
