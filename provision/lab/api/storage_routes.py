"""`/nodes/{node}/storage` and `/storage`: storages, their content, downloads."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from provision.lab.api import download
from provision.lab.api.core import NODE, Call, Need, Route
from provision.lab.api.errors import TaskError, bad_parameter, failed
from provision.lab.api.schema import Field, Params
from provision.lab.api.storages import Storage, Volume
from provision.lab.api.tasks import TaskLog

BOOL = Field("boolean")
TEXT = Field()
_STORAGE = {"node": NODE, "storage": Field(required=True, pattern=r"[A-Za-z][\w.-]+")}
_READ = ("Datastore.Audit", "Datastore.AllocateSpace")
_READ_NEED = Need("/storage/{storage}", _READ, some=True)
_URL = Field(required=True, pattern=r"https?://.*")
_ALGORITHMS = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")
_NAMES = {
    "iso": (r"[^/]+\.(iso|img)", "wrong file extension"),
    "import": (r"[A-Za-z0-9_.+-]+\.(ova|qcow2|raw|vmdk)", "invalid filename or wrong extension"),
}


def _usage(call: Call, storage: Storage) -> dict[str, Any]:
    usable = not storage.hindrance(call.lab.node)
    total, used, available = call.lab.storages.usage(storage) if usable else (0, 0, 0)
    return {
        "type": storage.kind,
        "content": ",".join(storage.content),
        "active": int(usable),
        "enabled": int(usable),
        "shared": 0,
        "total": total,
        "used": used,
        "avail": available,
    }


def _list(call: Call) -> Any:
    content_types = [word for word in call.text("content").split(",") if word]
    result = []
    for name, storage in call.lab.storages.all.items():
        fits = not content_types or any(content_type in storage.content for content_type in content_types)
        chosen = call.text("storage", name) == name
        shown = not call.flag("enabled") or not storage.hindrance(call.lab.node)
        if fits and chosen and shown and call.may(f"/storage/{name}", *_READ, some=True):
            usage = _usage(call, storage)
            fraction = {"used_fraction": usage["used"] / usage["total"]} if usage["total"] else {}
            result.append({"storage": name, **usage, **fraction})
    return result


def _status(call: Call) -> Any:
    return _usage(call, call.lab.storages.get(call.text("storage")))


def _definitions(call: Call) -> Any:
    text = repr(sorted(call.lab.storages.all.items()))
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return [
        {
            "storage": name,
            "type": storage.kind,
            "content": ",".join(storage.content),
            "digest": digest,
            **({"path": "/var/lib/vz"} if storage.kind == "dir" else {}),
            **({"disable": 1} if storage.disabled else {}),
            **({"nodes": ",".join(storage.nodes)} if storage.nodes else {}),
        }
        for name, storage in call.lab.storages.all.items()
        if call.may(f"/storage/{name}", *_READ, some=True)
    ]


def _entry(volume: Volume) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "volid": volume.volid,
        "content": volume.content,
        "format": volume.format,
        "size": volume.size,
    }
    if volume.vmid is None:
        return entry | {"ctime": volume.ctime}
    return entry | {"vmid": volume.vmid, "name": volume.volid.partition(":")[2], "parent": None}


def _may_see(call: Call, volume: Volume) -> bool:
    if volume.vmid is None or call.may(f"/storage/{call.text('storage')}", "Datastore.Allocate"):
        return True
    return call.may(f"/vms/{volume.vmid}", "VM.Config.Disk")


def _content(call: Call) -> Any:
    storage = call.lab.storages.get(call.text("storage"))
    return [
        _entry(volume)
        for volume in call.lab.storages.volumes(storage)
        if call.text("content", volume.content) == volume.content
        and ("vmid" not in call.params or volume.vmid == call.number("vmid"))
        and _may_see(call, volume)
    ]


def _find(call: Call) -> Volume:
    name = call.text("volume")
    volid = name if ":" in name else f"{call.text('storage')}:{name}"
    if not volid.startswith(f"{call.text('storage')}:"):
        raise failed(f"unable to parse volume ID '{name}'")
    call.lab.storages.get(call.text("storage"))
    volume = call.lab.storages.find(volid)
    if volume is None:
        raise failed(f"volume '{volid}' does not exist")
    return volume


def _volume(call: Call) -> Any:
    volume = _find(call)
    if volume.vmid is None:
        call.check(f"/storage/{call.text('storage')}", *_READ, some=True)
    elif not _may_see(call, volume):
        call.check(f"/vms/{volume.vmid}", "VM.Config.Disk")
    return {"path": str(volume.path), "size": volume.size, "used": volume.size, "format": volume.format}


def _delete(call: Call) -> str:
    call.check(f"/storage/{call.text('storage')}", "Datastore.Allocate")
    volume = _find(call)

    def work(log: TaskLog) -> None:
        volume.path.unlink(missing_ok=True)
        log.line(f"Removed volume '{volume.volid}'")

    return call.start("imgdel", f"{volume.vmid or ''}@{call.text('storage')}", work)


def _may_fetch(call: Call) -> None:
    if not call.may("/", "Sys.Audit", "Sys.Modify"):
        call.check(f"/nodes/{call.lab.node}", "Sys.AccessNetwork")


def _download(call: Call) -> str:
    _may_fetch(call)
    lab, content = call.lab, call.text("content")
    name = call.text("filename").rpartition("/")[2]  # PVE drops folders
    storage = lab.storages.get(call.text("storage"))
    if content not in storage.content:
        raise failed(f"storage '{storage.name}' is not configured for content-type '{content}'")
    form, complaint = _NAMES[content]
    if not re.fullmatch(form, name):
        raise bad_parameter("filename", complaint)
    job = download.Download(
        url=call.text("url"),
        target=lab.storages.files(storage, content) / name,
        shown=lab.storages.shown_path(content, name),
        algorithm=call.text("checksum-algorithm") if "checksum" in call.params else "",
        checksum=call.text("checksum"),
        verify=call.flag("verify-certificates", default=True),
    )
    return call.start("download", name, lambda log: download.run(job, log))


def _metadata(call: Call) -> Any:
    _may_fetch(call)
    try:
        return download.metadata(call.text("url"), verify=call.flag("verify-certificates", default=True))
    except TaskError as error:
        raise failed(str(error)) from error


_CONTENT = "/nodes/{node}/storage/{storage}/content"
_ONE_VOLUME = {**_STORAGE, "volume": Field(required=True)}

ROUTES: tuple[Route, ...] = (
    Route("GET", "/storage", _definitions, Params({"type": TEXT})),
    Route(
        "GET",
        "/nodes/{node}/storage",
        _list,
        Params(
            {"node": NODE, "content": TEXT, "enabled": BOOL, "format": BOOL, "storage": TEXT, "target": TEXT}
        ),
    ),
    Route("GET", "/nodes/{node}/storage/{storage}/status", _status, Params(_STORAGE), _READ_NEED),
    Route(
        "GET",
        _CONTENT,
        _content,
        Params({**_STORAGE, "content": TEXT, "vmid": Field("integer", minimum=100)}),
        _READ_NEED,
    ),
    Route("GET", f"{_CONTENT}/{{volume*}}", _volume, Params(_ONE_VOLUME)),
    Route(
        "DELETE",
        f"{_CONTENT}/{{volume*}}",
        _delete,
        Params({**_ONE_VOLUME, "delay": Field("integer", minimum=1)}),
    ),
    Route(
        "POST",
        "/nodes/{node}/storage/{storage}/download-url",
        _download,
        Params(
            {
                **_STORAGE,
                "url": _URL,
                "content": Field(required=True, choices=("iso", "vztmpl", "import")),
                "filename": Field(required=True, max_length=255),
                "checksum": Field(requires="checksum-algorithm", pattern=r"[0-9a-fA-F]+"),
                "checksum-algorithm": Field(choices=_ALGORITHMS, requires="checksum"),
                "compression": TEXT,
                "verify-certificates": BOOL,
            }
        ),
        Need("/storage/{storage}", ("Datastore.AllocateTemplate",)),
    ),
    Route(
        "GET",
        "/nodes/{node}/query-url-metadata",
        _metadata,
        Params({"node": NODE, "url": _URL, "verify-certificates": BOOL}),
    ),
)
