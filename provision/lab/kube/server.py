"""Serves the API over HTTPS (or HTTP, in a namespace of its own) with the standard library alone."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from provision.lab.kube.app import KubeApi, Request, Response
from provision.lab.kube.protobuf import MAGIC, secret_json

Login = Callable[[str, str], str | None]
"""From the bearer token and the common name of the client certificate to the user: empty for nobody, None for
credentials that are wrong."""


Beside = Callable[[str, str, str, str], tuple[int, str] | None]
"""From method, path, `Authorization` header and body to status and text; None for what the API answers."""


def _nothing(method: str, path: str, authorization: str, body: str) -> None:
    """Serve nothing beside Kubernetes."""
    del method, path, authorization, body


def admin(token: str, common_name: str) -> str | None:
    """Accept any client certificate that the server's authority has signed, and no token."""
    if token:
        return None
    return common_name


class KubeServer:
    """One API on one address.

    Args:
        api: answers.
        address: host and port; port 0 for any.
        context: certificate, key and the authority of clients; None for plain HTTP.
        login: who a client is.
        beside: what is served beside Kubernetes.
    """

    def __init__(
        self,
        api: KubeApi,
        address: tuple[str, int],
        context: ssl.SSLContext | None,
        login: Login = admin,
        beside: Beside | None = None,
    ) -> None:
        members = {"api": api, "login": staticmethod(login), "beside": staticmethod(beside or _nothing)}
        handler = type("Handler", (_Handler,), members)
        self._server = _Server(address, handler)
        self._context = context
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )

    @property
    def port(self) -> int:
        """The port that is served."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Serve in a thread of its own."""
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def serve(self) -> None:
        """Serve until the process ends."""
        self._server.serve_forever()

    def stop(self) -> None:
        """End serving."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Pass over clients that went away in the middle of an answer."""
        del request, client_address


class _Handler(BaseHTTPRequestHandler):
    api: KubeApi
    login: Login
    beside: Beside
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        packed = secret_json(data) if data.startswith(MAGIC) else None
        body = packed or data.decode("utf-8", "replace")
        other = type(self).beside(self.command, self.path, self.headers.get("Authorization") or "", body)
        if other is not None:
            self._send(Response(*other))
            return
        kind = (self.headers.get("Content-Type") or "").partition(";")[0].strip()
        kind = "application/json" if packed is not None else kind
        self._send(self.api.handle(Request(self.command, self.path, kind, body, self._user())))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - http.server's names

    def _user(self) -> str | None:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ").strip()
        name = ""
        if isinstance(self.connection, ssl.SSLSocket):
            certificate: Any = self.connection.getpeercert() or {}
            pairs = dict(pair[0] for pair in certificate.get("subject", ()))
            name = str(pairs.get("commonName", ""))
        return type(self).login(token, name)

    def _send(self, response: Response) -> None:
        if response.stream is not None:
            self.send_response(response.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            for event in response.stream:
                self.wfile.write(json.dumps(event).encode() + b"\n")
                self.wfile.flush()
            self.close_connection = True
            return
        is_text = isinstance(response.body, str)
        data = (str(response.body) if is_text else json.dumps(response.body)).encode()
        self.send_response(response.status)
        self.send_header("Content-Type", "text/plain; charset=utf-8" if is_text else "application/json")
        self.send_header("Content-Length", str(len(data)))
        if response.warning:
            self.send_header("Warning", response.warning)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        del format, args
