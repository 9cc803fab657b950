"""How the web APIs of routers want to be logged in to, and how they say that a request failed.

Sources: OPNsense's documentation, "Use the API"; opnsense/core, `ApiControllerBase.php`; Ubiquiti's help
page "Getting Started with the Official UniFi API", and the wiki page "UniFi Controller API" of the community;
MikroTik's documentation, "REST API"; pi-hole/FTL, `src/api/auth.c` and its specification `auth.yaml`.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from pydantic import SecretStr

from provision.connections.contracts import (
    HTTP_OK,
    HTTP_REDIRECT,
    WebConnection,
    WebEndpoint,
    WebReply,
)
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, ProvisionError, Transient
from provision.values.redaction import Redactor

UNAUTHORIZED = 401
RESTART_SECONDS = 30.0
"""How long Pi-hole's FTL may be away after a write that restarts it."""
RESTART_PAUSE = 0.5


class RouterSession(Protocol):
    """A login to a router's API."""

    @property
    def requests(self) -> int:
        """How many requests were sent."""

    def request(self, method: str, path: str, body: object = None) -> WebReply:
        """Send one request with what proves who asks.

        Raises:
            Permanent: the router does not accept the credentials.
            Transient, Refused, UnknownOutcome: see WebConnection.
        """

    def close(self) -> None:
        """End the connection."""


def problem_of(reply: WebReply) -> str:
    """Return why a router did not do what it was asked; empty if it did.

    OPNsense answers 200 with `result: failed` and reasons in `validations`, or a `status` other than `ok`.
    UniFi has `meta.rc` and `meta.msg`; RouterOS `message` and `detail`; Pi-hole `error.message` and `.hint`;
    Proxmox VE `message` and `errors`.
    """
    body = reply.body if isinstance(reply.body, Mapping) else {}
    meta = body.get("meta")
    if isinstance(meta, Mapping) and meta.get("rc") != "ok":
        return f"{reply.status} {meta.get('msg') or meta.get('rc')}"
    if not HTTP_OK <= reply.status < HTTP_REDIRECT:
        error = body.get("error")
        texts = [body.get(key) for key in ("message", "detail", "errorMessage")]
        texts += [error.get(key) for key in ("message", "hint")] if isinstance(error, Mapping) else ()
        errors = body.get("errors")
        texts += [f"{key}: {text}" for key, text in errors.items()] if isinstance(errors, Mapping) else ()
        return " ".join([str(reply.status), *(str(text) for text in texts if text)])
    validations = body.get("validations")
    if isinstance(validations, Mapping) and validations:
        return "; ".join(f"{field}: {text}" for field, text in validations.items())
    if body.get("result") in ("failed", "not found"):
        return str(body["result"])
    if isinstance(body.get("status"), str) and body["status"] != "ok":
        return f"status {body['status']}"
    return "" if reply.body is None or isinstance(reply.body, Mapping | list) else "the answer is not JSON"


class BasicSession:
    """OPNsense and RouterOS: name and secret with each request.

    Args:
        connection: to the API.
        endpoint: whose credentials are sent.
    """

    def __init__(self, connection: WebConnection, endpoint: WebEndpoint) -> None:
        self._connection = connection
        self._endpoint = endpoint

    @property
    def requests(self) -> int:
        """How many requests were sent."""
        return self._connection.requests

    def request(self, method: str, path: str, body: object = None) -> WebReply:
        """Send one request; see RouterSession."""
        reply = self._connection.request(method, path, body, {"Authorization": self._authorization()})
        if reply.status == UNAUTHORIZED:
            raise _refused(self._endpoint, reply)
        return reply

    def _authorization(self) -> str:
        pair = f"{self._endpoint.user}:{self._endpoint.token.get_secret_value()}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


class PveTokenSession(BasicSession):
    """Proxmox VE: a token, whose id (`user@realm!name`) is the user, with each request."""

    def __init__(self, connection: WebConnection, endpoint: WebEndpoint, _redactor: Redactor) -> None:
        super().__init__(connection, endpoint)

    def _authorization(self) -> str:
        return f"PVEAPIToken={self._endpoint.user}={self._endpoint.token.get_secret_value()}"


class UniFiSession:
    """UniFi Network, on a UniFi OS console or on a server of its own.

    With a user, it logs in and sends the cookie and the CSRF token that it got; without, `token` is a key of
    the API. On a console all paths are below `/proxy/network`, and its start page answers 200, where the
    older server redirects.

    Args:
        connection: to the API; it keeps cookies.
        endpoint: whose credentials are sent.
        redactor: masks the tokens of the session.
    """

    def __init__(self, connection: WebConnection, endpoint: WebEndpoint, redactor: Redactor) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._redactor = redactor
        self._prefix: str | None = None
        self._headers: dict[str, str] = {}

    @property
    def requests(self) -> int:
        """How many requests were sent."""
        return self._connection.requests

    def request(self, method: str, path: str, body: object = None) -> WebReply:
        """Send one request; see RouterSession."""
        is_new = self._prefix is None
        reply = self._send(method, path, body)
        if reply.status == UNAUTHORIZED and self._endpoint.user and not is_new:
            self._prefix = None  # a session ends after some hours, and a run may take longer
            reply = self._send(method, path, body)
        if reply.status == UNAUTHORIZED:
            raise _refused(self._endpoint, reply)
        self._learn(reply)
        return reply

    def _send(self, method: str, path: str, body: object) -> WebReply:
        prefix = self._log_in() if self._prefix is None else self._prefix
        return self._connection.request(method, f"{prefix}{path}", body, self._headers)

    def close(self) -> None:
        """End the connection."""
        self._prefix = None
        self._connection.close()

    def _log_in(self) -> str:
        secret = self._endpoint.token.get_secret_value()
        if not self._endpoint.user:
            self._headers = {"X-API-KEY": secret}
            self._prefix = "/proxy/network"
            return self._prefix
        is_console = self._connection.request("GET", "/").status == HTTP_OK
        credentials = {"username": self._endpoint.user, "password": secret}
        path = "/api/auth/login" if is_console else "/api/login"
        reply = self._connection.request("POST", path, credentials)
        if reply.status != HTTP_OK:
            raise _refused(self._endpoint, reply)
        self._learn(reply)
        self._prefix = "/proxy/network" if is_console else ""
        return self._prefix

    def _learn(self, reply: WebReply) -> None:
        """Keep the CSRF token of an answer: a console gives a new one from time to time."""
        for token in (
            reply.headers.get("x-updated-csrf-token"),
            reply.headers.get("x-csrf-token"),
            self._connection.cookie("csrf_token"),
        ):
            if token and token.isascii() and token.isprintable():
                if self._headers.get("X-CSRF-Token") != token:
                    self._redactor.add(SecretStr(token))
                self._headers["X-CSRF-Token"] = token
                return


class PiHoleSession:
    """Pi-hole 6: a login with a password, and the id of the session with each request.

    Pi-hole keeps few sessions at a time, so ours is ended with the connection. Its server restarts after a
    write, and is waited for.

    Args:
        connection: to the API.
        endpoint: whose credentials are sent.
        redactor: masks the session's id.
    """

    def __init__(self, connection: WebConnection, endpoint: WebEndpoint, redactor: Redactor) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._redactor = redactor
        self._headers: dict[str, str] | None = None
        self._restarts_until = 0.0

    @property
    def requests(self) -> int:
        """How many requests were sent."""
        return self._connection.requests

    def request(self, method: str, path: str, body: object = None) -> WebReply:
        """Send one request; see RouterSession."""
        is_new = self._headers is None
        reply = self._send(method, path, body)
        if reply.status == UNAUTHORIZED and not is_new:
            self._headers = None  # a session ends after some idle time, or with a restart
            reply = self._send(method, path, body)
        if reply.status == UNAUTHORIZED:
            raise _refused(self._endpoint, reply)
        if method != "GET":
            self._restarts_until = time.monotonic() + RESTART_SECONDS
        return reply

    def _send(self, method: str, path: str, body: object) -> WebReply:
        while True:
            try:
                headers = self._log_in() if self._headers is None else self._headers
                return self._connection.request(method, path, body, headers)
            except Transient:  # of a write only where nothing was sent
                if time.monotonic() > self._restarts_until:
                    raise
                time.sleep(RESTART_PAUSE)

    def close(self) -> None:
        """End the session and the connection."""
        if self._headers:
            with contextlib.suppress(ProvisionError):
                self._connection.request("DELETE", "/api/auth", None, self._headers)
        self._headers = None
        self._connection.close()

    def _log_in(self) -> dict[str, str]:
        credentials = {"password": self._endpoint.token.get_secret_value()}
        reply = self._connection.request("POST", "/api/auth", credentials)
        session = reply.body.get("session") if isinstance(reply.body, Mapping) else None
        if reply.status != HTTP_OK or not isinstance(session, Mapping) or session.get("valid") is not True:
            raise _refused(self._endpoint, reply)
        sid = session.get("sid")
        self._headers = {"X-FTL-SID": sid} if isinstance(sid, str) and sid else {}
        if self._headers:
            self._redactor.add(SecretStr(self._headers["X-FTL-SID"]))
        return self._headers


def _refused(endpoint: WebEndpoint, reply: WebReply) -> Permanent:
    who = f"the login {endpoint.user}" if endpoint.user else "the token"
    why = problem_of(reply) or "the answer has no session"
    return Permanent(
        Diagnostic(
            "API_AUTH_FAILED",
            f"{endpoint.url} does not accept {who}: {why}",
            "router",
            remedy="Check `network.dhcp.api.user` and the secret that `network.dhcp.api.token` names.",
        )
    )


SESSIONS: Mapping[str, Callable[[WebConnection, WebEndpoint, Redactor], RouterSession]] = {
    "unifi": UniFiSession,
    "pihole": PiHoleSession,
    "proxmox_sdn": PveTokenSession,
}
"""How a back end logs in, by its name; those that are not here send name and secret with each request."""


def session_of(
    backend: str, connection: WebConnection, endpoint: WebEndpoint, redactor: Redactor
) -> RouterSession:
    """Return a login for a back end; nothing is sent yet."""
    opener = SESSIONS.get(backend)
    return BasicSession(connection, endpoint) if opener is None else opener(connection, endpoint, redactor)
