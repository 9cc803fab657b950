"""Calls the application in-process and reads answers as a client on the wire would."""

from __future__ import annotations

import asyncio
import atexit
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from starlette.applications import Starlette
from starlette.types import Message

from provision.lab.api.core import Lab

ROOT = "root@pam"


@dataclass(frozen=True)
class Answer:
    status: int
    reason: str
    body: Any

    @property
    def data(self) -> Any:
        assert self.status == 200, (self.status, self.reason, self.body)
        return self.body["data"]

    @property
    def errors(self) -> dict[str, str]:
        return dict(self.body.get("errors", {})) if isinstance(self.body, dict) else {}


@cache
def _runner() -> asyncio.Runner:
    """Return one event loop for all requests: a loop and its worker threads cost more than a request."""
    runner = asyncio.Runner()
    atexit.register(runner.close)
    return runner


async def _call(app: Starlette, scope: dict[str, Any], body: bytes) -> tuple[int, str, bytes]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers["x-lab-reason"], b"".join(each.get("body", b"") for each in sent[1:])


def request(
    app: Starlette,
    method: str,
    path: str,
    *,
    query: Mapping[str, Any] | None = None,
    form: Mapping[str, Any] | None = None,
    raw: bytes | None = None,
    content_type: str = "application/x-www-form-urlencoded",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    body = raw if raw is not None else urlencode(form or {}, doseq=True).encode()
    full = f"/api2/json{path}"
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "https",
        "path": full,
        "raw_path": quote(full).encode(),
        "root_path": "",
        "query_string": urlencode(query or {}, doseq=True).encode(),
        "headers": [
            (b"host", b"pve"),
            (b"content-type", content_type.encode()),
            *((name.lower().encode(), value.encode()) for name, value in (headers or {}).items()),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8006),
    }
    status, reason, text = _runner().run(_call(app, scope, body))
    return Answer(status, reason, json.loads(text) if text else None)


@dataclass
class Client:
    """A logged-in client; without headers, an anonymous one."""

    app: Starlette
    headers: dict[str, str] = field(default_factory=dict)

    def __call__(
        self, method: str, path: str, query: Mapping[str, Any] | None = None, /, **form: Any
    ) -> Answer:
        plain = {name.replace("__", "-"): value for name, value in form.items()}
        return request(self.app, method, path, query=query, form=plain, headers=self.headers)

    @property
    def lab(self) -> Lab:
        lab: Lab = self.app.state.lab
        return lab

    def task(self, method: str, path: str, query: Mapping[str, Any] | None = None, /, **form: Any) -> str:
        """Send a request that starts a task, wait for its end and return its exit status."""
        upid = self(method, path, query, **form).data
        self.lab.tasks.wait(upid, 20)
        status = self("GET", f"/nodes/{self.lab.node}/tasks/{upid}/status").data
        assert status["status"] == "stopped"
        return str(status["exitstatus"])

    def log(self, upid: str) -> list[str]:
        return [each["t"] for each in self("GET", f"/nodes/{self.lab.node}/tasks/{upid}/log").data]


def root_client(app: Starlette, folder: Path) -> Client:
    password = (folder / "root-password").read_text().strip()
    found = request(app, "POST", "/access/ticket", form={"username": ROOT, "password": password}).data
    return Client(
        app,
        {
            "cookie": f"PVEAuthCookie={found['ticket']}",
            "csrfpreventiontoken": found["CSRFPreventionToken"],
        },
    )


def token_client(app: Starlette, token: str, secret: str) -> Client:
    return Client(app, {"authorization": f"PVEAPIToken={token}={secret}"})
