"""The ASGI application: reads a request, finds its route, checks, calls, and answers as Proxmox VE does."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from provision.lab.api import (
    access_routes,
    cluster_routes,
    copy_routes,
    disk_routes,
    mapping_routes,
    node_routes,
    power_routes,
    storage_routes,
    task_routes,
    usb_routes,
    vm_routes,
)
from provision.lab.api.access import Auth
from provision.lab.api.core import Call, Lab, Route, Total
from provision.lab.api.errors import ApiError, failed
from provision.lab.api.schema import validate
from provision.lab.api.storages import LOCAL, LOCAL_DISKS, Storage
from provision.lab.contracts import Guests, Hypervisor

_LOG = logging.getLogger(__name__)
_PREFIX = "/api2/json"
_BODY_LIMIT = 512 * 1024

ROUTES: tuple[Route, ...] = (
    *access_routes.ROUTES,
    *cluster_routes.ROUTES,
    *mapping_routes.ROUTES,
    *usb_routes.ROUTES,
    *node_routes.ROUTES,
    *storage_routes.ROUTES,
    *task_routes.ROUTES,
    *vm_routes.ROUTES,
    *disk_routes.ROUTES,
    *copy_routes.ROUTES,
    *power_routes.ROUTES,
)


def create_app(
    folder: Path,
    guests: Guests,
    hypervisor: Hypervisor,
    *,
    node: str = "pve",
    bridges: tuple[str, ...] = ("vmbr0",),
    storages: tuple[Storage, ...] = (LOCAL, LOCAL_DISKS),
    address: str = "127.0.0.1/8",
) -> Starlette:
    """Make the application on a state folder; all that is needed after a restart is in its files.

    The lab's state is at `app.state.lab`.

    Args:
        folder: state; made when absent. `root-password` in it is root@pam's, mode 0600.
        guests: runs guests.
        hypervisor: the hypervisor VM.
        node: the node's name.
        bridges: bridges that the node has.
        storages: storages that the node has.
        address: the node's IPv4 address with its prefix length.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lab = Lab(folder, guests, hypervisor, node=node, bridges=bridges, storages=storages, address=address)

    async def endpoint(request: Request) -> Response:
        body = await request.body()
        return await run_in_threadpool(_answer, lab, request, body)

    methods = ["GET", "POST", "PUT", "DELETE"]
    app = Starlette(routes=[StarletteRoute("/{path:path}", endpoint, methods=methods)])
    app.state.lab = lab
    return app


def _response(status: int, body: Any, reason: str = "OK") -> Response:
    content = b"" if body is None else json.dumps(body).encode()
    plain = reason.encode("ascii", "replace").decode().replace("\n", " ").strip()
    headers = {"x-lab-reason": plain, "cache-control": "max-age=0"}
    return Response(content, status, headers, media_type="application/json;charset=UTF-8")


def _answer(lab: Lab, request: Request, body: bytes) -> Response:
    try:
        result = _dispatch(lab, request, body)
    except ApiError as error:
        if error.bare:
            return _response(error.status, None, error.message)
        if error.text:
            return _response(error.status, error.message + "\n", error.message)
        answer: dict[str, Any] = {"data": None, "message": error.message + "\n"}
        if error.errors:
            answer["errors"] = error.errors
        return _response(error.status, answer, error.message)
    except Exception as error:  # noqa: BLE001 - like a worker that dies: 500 with its text
        _LOG.exception("%s %s", request.method, request.url.path)
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        return _response(500, {"data": None, "message": text + "\n"}, text)
    if isinstance(result, Total):
        return _response(200, {"data": result.data, "total": result.total})
    return _response(200, {"data": result})


def _parameters(request: Request, body: bytes) -> dict[str, list[str]]:
    if len(body) > _BODY_LIMIT:
        raise ApiError(413, "request entity too large")
    pairs = parse_qsl(request.url.query, keep_blank_values=True)
    given: dict[str, list[str]] = {}
    if request.headers.get("content-type", "").startswith("application/json") and body:
        try:
            fields = json.loads(body)
        except ValueError as error:
            raise ApiError(500, _perl_json_error(body, error), text=True) from error
        if not isinstance(fields, Mapping):
            raise ApiError(
                500, "Not a HASH reference at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 935."
            )
        for name, value in fields.items():
            given[name] = [_plain(item) for item in (value if isinstance(value, list) else [value])]
    else:
        pairs += parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
    for name, value in pairs:
        given.setdefault(name, []).append(value)
    return given


def _perl_json_error(body: bytes, error: ValueError) -> str:
    """Return what JSON::XS says of a body that is no JSON."""
    position = getattr(error, "pos", 0)
    rest = body.decode("utf-8", "replace")[position:]
    before = f'(before "{rest}")' if rest else '(before "(end of string)")'
    problem = (
        "'\"' expected"
        if position
        else "malformed JSON string, neither tag, array, object, number, string or atom"
    )
    where = "at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 934."
    return f"{problem}, at character offset {position} {before} {where}"


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def _authenticate(lab: Lab, request: Request) -> Auth:
    cookie = SimpleCookie(request.headers.get("cookie", "")).get("PVEAuthCookie")
    return lab.access.authenticate(
        request.method,
        unquote(cookie.value) if cookie is not None else None,
        request.headers.get("authorization"),
        request.headers.get("csrfpreventiontoken"),
    )


def _dispatch(lab: Lab, request: Request, body: bytes) -> Any:
    path = unquote(request.scope["raw_path"].decode("ascii").partition("?")[0])
    relative = path.removeprefix(_PREFIX).rstrip("/") or "/"
    method = request.method
    route, path_params = _find(method, relative)
    auth = _authenticate(lab, request) if route is None or not route.public else Auth("")
    if route is None or not path.startswith(_PREFIX):
        raise ApiError(501, f"Method '{method} {relative}' not implemented")
    given = _parameters(request, body)
    for name, value in path_params.items():
        if name in given and given[name] != [value]:
            text = "duplicate parameter (already defined in URI) with conflicting values"
            raise ApiError(400, text, {name: text})
        given[name] = [value]
    if route.need is not None:
        need = route.need
        lab.access.check(auth, need.path.format_map(path_params), *need.privs, some=need.some)
    node = path_params.get("node", lab.node)
    if node != lab.node:
        why = f"failed to get address info for: {node}: Temporary failure in name resolution"
        raise failed(f"hostname lookup '{node}' failed - {why}")
    return route.handler(Call(lab, auth, validate(route.params, given)))


def _find(method: str, path: str) -> tuple[Route | None, dict[str, str]]:
    for route in ROUTES:
        path_params = route.match(method, path)
        if path_params is not None:
            return route, path_params
    return None, {}
